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


def run_jobs(jobs: Sequence[Job], folder: Path, *, title: str, at_once: int) -> None:
    """Run every job that is not done yet, `at_once` at a time, in the given order.

    Ctrl-C asks the running processes to stop and waits for the checkpoints they write.

    Args:
        jobs: what to run.
        folder: `jobs/NAME.json` and `jobs/NAME.log` are written below it.
        title: of the progress line.
        at_once: processes at a time.

    Raises:
        RunFolderError: a job failed; names its log and shows the end of it.
    """
    waiting = [job for job in jobs if job.done() < job.units]
    running: dict[str, subprocess.Popen[bytes]] = {}
    before = sum(min(job.done(), job.units) for job in jobs)
    with track(title, sum(job.units for job in jobs), done=before) as bar:
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    job = waiting.pop(0)
                    running[job.name] = _start(job, folder)
                time.sleep(POLL_SECONDS)
                for name in [name for name, process in running.items() if process.poll() is not None]:
                    _check(name, running.pop(name), folder)
                now = sum(min(job.done(), job.units) for job in jobs)
                if now > before:
                    bar.advance(
                        now - before, ", ".join(f"{j.name} {j.done()}/{j.units}" for j in jobs if j.name in running)
                    )
                before = max(now, before)
        finally:
            _stop(running.values())


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


def _check(name: str, process: subprocess.Popen[bytes], folder: Path) -> None:
    if process.returncode == 0:
        return
    log = folder / "jobs" / f"{name}.log"
    end = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-12:]
    how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit status {process.returncode}"
    raise RunFolderError(f"{name} ended with {how}; its log {log} ends with:\n" + "\n".join(end))


def _stop(processes: Any) -> None:
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
