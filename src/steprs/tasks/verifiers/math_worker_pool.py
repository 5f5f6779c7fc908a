"""Runs `math_worker.py` in processes that can be killed: a time limit that holds from any thread.

A signal handler cannot interrupt a long multiplication inside Python's C code and works in the main thread only, so
the parent watches the clock and kills the process. The clock starts when the item is handed to a worker that said
it is ready: waiting for a free worker, or for its imports, counts against nobody. The clock is the worker's CPU time
where the system shows it, so that a busy machine does not turn right answers into wrong ones; waiting is bounded by ten
times as much on the wall.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import ArgumentError, DependencyError, StepRSError

TIME_LIMIT_S = 5.0
# An item may wait this many time limits on the wall when its worker gets no CPU time.
WALL_FACTOR = 10.0
START_LIMIT_S = 300.0
WORKERS = min(4, os.cpu_count() or 1)
MEMORY_LIMIT_BYTES = 1 << 30
_SCRIPT = Path(__file__).with_name("math_worker.py")


class MathWorkerPool:
    """Compares LaTeX answers in `processes` workers; safe to call from any thread.

    Workers start when they are first needed and again after each kill. `counts` says how many items were compared
    and how many failed: `errors` (math-verify raised, or ran out of memory), `timeouts` (killed), `restarts`.

    Args:
        processes: workers that may run at once; a call beyond that waits for a free one.
        time_limit_s: seconds of CPU time an item may take; on the wall where CPU time is not shown (not Linux).
        memory_limit_bytes: address space of a worker.

    Raises:
        DependencyError: math-verify is not installed.
        ArgumentError: a limit is not positive.
    """

    def __init__(
        self,
        processes: int = 1,
        *,
        time_limit_s: float = TIME_LIMIT_S,
        memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    ) -> None:
        require_math_verify()
        if processes < 1 or time_limit_s <= 0 or memory_limit_bytes <= 0:
            raise ArgumentError(
                f"processes={processes}, time_limit_s={time_limit_s}, memory_limit_bytes={memory_limit_bytes}; "
                "each must be positive"
            )
        self.counts = {"items": 0, "errors": 0, "timeouts": 0, "restarts": 0}
        self._time_limit_s = time_limit_s
        self._memory_limit_bytes = memory_limit_bytes
        self._counts_lock = threading.Lock()
        # Last in, first out: a warm worker is taken before a slot (None) that would have to start one.
        self._slots: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(processes):
            self._slots.put(None)

    def same(self, gold: str, answer: str) -> bool:
        """Whether math-verify takes `answer` for `gold`; False when it raises or does not finish in time."""
        worker = self._slots.get()
        try:
            if worker is None or not worker.alive:
                self._count("restarts", int(worker is not None))
                worker = _Worker(self._memory_limit_bytes, self._time_limit_s)
            reply = worker.ask(gold, answer)
        finally:
            self._slots.put(worker)
        self._count("items", 1)
        if reply is None:
            self._count("timeouts", 1)
            return False
        self._count("errors", int(reply["error"] is not None))
        return bool(reply["same"])

    def close(self) -> None:
        """End every worker that is not at work; the pool stays usable."""
        idle: list[_Worker | None] = []
        with contextlib.suppress(queue.Empty):
            while True:
                idle.append(self._slots.get_nowait())
        for worker in idle:
            if worker is not None:
                worker.kill()
            self._slots.put(None)

    def _count(self, name: str, number: int) -> None:
        with self._counts_lock:
            self.counts[name] += number


class _Worker:
    """One process. Used by one thread at a time; a thread of its own reads its replies."""

    def __init__(self, memory_limit_bytes: int, time_limit_s: float) -> None:
        # -P keeps this folder, which has a `numbers.py`, off the module path of the child.
        command = [sys.executable, "-P", str(_SCRIPT), str(memory_limit_bytes), str(time_limit_s)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=environment,
        )
        self._replies: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._asked = 0
        self._time_limit_s = time_limit_s
        self._reader = threading.Thread(target=self._read, daemon=True, name="math-verify-replies")
        self._reader.start()
        if not (self._next_reply(START_LIMIT_S) or {}).get("ready"):
            self.kill()
            raise StepRSError(
                f"the math-verify worker did not start within {START_LIMIT_S:.0f} s "
                f"(exit status {self._process.returncode}); run `{' '.join(command)}` to see why"
            )

    @property
    def alive(self) -> bool:
        """The process has not ended."""
        return self._process.poll() is None

    def ask(self, gold: str, answer: str) -> dict[str, Any] | None:
        """The reply to one item; None when the process did not answer in time or died, and is now dead."""
        self._asked += 1
        item = json.dumps({"id": self._asked, "gold": gold, "answer": answer})
        reply = None
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(item + "\n")
            self._process.stdin.flush()
            reply = self._reply_in_time()
        except OSError:
            reply = None
        finally:
            # Also when this thread is interrupted: the late reply must not become the next item's.
            if reply is None:
                self.kill()
        return reply

    def kill(self) -> None:
        """End the process and collect it."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def _reply_in_time(self) -> dict[str, Any] | None:
        """The reply, unless the process uses up its CPU time or the wall limit passes."""
        began, used_before = time.monotonic(), self._cpu_seconds()
        remaining = self._time_limit_s
        while True:
            with contextlib.suppress(queue.Empty):
                return self._replies.get(timeout=max(remaining, 0.01))
            if used_before is None or time.monotonic() - began >= WALL_FACTOR * self._time_limit_s:
                return None
            used = self._cpu_seconds()
            remaining = self._time_limit_s - ((used or 0.0) - used_before)
            if used is None or remaining <= 0:
                return None

    def _cpu_seconds(self) -> float | None:
        """CPU time the process has used, None where the system does not show it."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        except OSError:
            return None
        # Fields 14 and 15 of proc(5), counted from the state, which is field 3.
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _next_reply(self, time_limit_s: float) -> dict[str, Any] | None:
        try:
            return self._replies.get(timeout=time_limit_s)
        except queue.Empty:
            return None

    def _read(self) -> None:
        """Pass replies on until the process closes its output; None says that it did."""
        assert self._process.stdout is not None
        with self._process.stdout as lines, contextlib.suppress(ValueError, OSError):
            for line in lines:
                self._replies.put(json.loads(line))
        self._replies.put(None)


def require_math_verify() -> None:
    """Say how to install math-verify when it is missing.

    Raises:
        DependencyError: holds the install command.
    """
    if importlib.util.find_spec("math_verify") is None:
        raise DependencyError("boxed answers are compared by math-verify; install it: pip install 'steprs[math]'")


def shared_pool() -> MathWorkerPool:
    """The pool of this process; one worker a core, four at most."""
    require_math_verify()
    # Keyed by process id: a forked child must not talk to its parent's workers.
    return _pool_of(os.getpid())


@cache
def _pool_of(process_id: int) -> MathWorkerPool:
    del process_id
    pool = MathWorkerPool(WORKERS)
    atexit.register(pool.close)
    return pool
