"""A pool of processes, one thread each, whose progress is read from the files they write. Never imports torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import RunFolderError
from ..progress import track

WORKER = ("-m", "steprs.experiments.worker")
POLL_SECONDS = 0.25
GRACE_SECONDS = 90.0  # a stopped training run still has to finish its step and write a checkpoint


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One process.

    Attributes:
        name: for the progress line and the log file.
        spec: what `worker` is told, as plain JSON values.
        units: size, in the units of the progress bar.
        done: units whose results lie on disk; all of them means that the job need not run.
    """

    name: str
    spec: Mapping[str, Any]
    units: int
    done: Callable[[], int]


def run_jobs(
    jobs: Sequence[Job],
    folder: Path,
    *,
    title: str,
    at_once: int,
    finished: Callable[[Job], None] | None = None,
) -> None:
    """Run every job that is not done yet, `at_once` at a time, in the given order.

    A job that fails does not stop the others; what failed is said at the end. Ctrl-C asks the running processes to
    stop and waits for the checkpoints they write.

    Args:
        jobs: what to run.
        folder: `jobs/NAME.json` and `jobs/NAME.log` are written below it.
        title: of the progress line.
        at_once: processes at a time.
        finished: called after each job that ended well.

    Raises:
        RunFolderError: a job failed; names each log and shows the end of it.
    """
    units = {job.name: min(job.done(), job.units) for job in jobs}
    waiting = [job for job in jobs if units[job.name] < job.units]
    running: dict[str, tuple[Job, subprocess.Popen[bytes]]] = {}
    failures: list[str] = []
    before = sum(units.values())
    with track(title, sum(job.units for job in jobs), done=before) as bar:
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    job = waiting.pop(0)
                    running[job.name] = (job, _start(job, folder))
                time.sleep(POLL_SECONDS)
                for name, (job, process) in list(running.items()):
                    if process.poll() is not None:
                        del running[name]
                        failures += _failure(name, process, folder)
                        if process.returncode == 0 and finished is not None:
                            finished(job)
                    units[name] = max(units[name], min(job.done(), job.units))
                now = sum(units.values())
                if now > before:
                    bar.advance(
                        now - before, ", ".join(f"{name} {units[name]}/{j.units}" for name, (j, _) in running.items())
                    )
                    before = now
        finally:
            _stop([process for _, process in running.values()])
    if failures:
        raise RunFolderError("\n".join(failures))


def processes_at_once(limit: int) -> int:
    """Processes that the machine has cores for, at most `limit`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(limit, cores))


def _start(job: Job, folder: Path) -> subprocess.Popen[bytes]:
    place = folder / "jobs"
    place.mkdir(parents=True, exist_ok=True)
    spec = place / f"{job.name}.json"
    spec.write_text(json.dumps({**job.spec, "parent": os.getpid()}, indent=1), encoding="utf-8")
    # Two threads on two busy cores can be five times slower than one.
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with (place / f"{job.name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *WORKER, str(spec)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **threads},
            # Ctrl-C must reach a run once, through `_stop`: a second one would cut its checkpoint off.
            start_new_session=True,
        )


def _failure(name: str, process: subprocess.Popen[bytes], folder: Path) -> list[str]:
    """What to say of a process that ended, nothing if it ended well."""
    if process.returncode == 0:
        return []
    log = folder / "jobs" / f"{name}.log"
    end = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-12:]
    how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit status {process.returncode}"
    return [f"{name} ended with {how}; its log {log} ends with:", *end]


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask once, wait for checkpoints, then insist."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    for process in running:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
