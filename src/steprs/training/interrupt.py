"""Ctrl-C and SIGTERM end a run between two optimiser steps, with a checkpoint; a second Ctrl-C ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


class RunInterrupted(KeyboardInterrupt):
    """The run stopped on request and can be resumed from `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"stopped on request; `--resume` continues {folder}")
        self.folder = folder


class StopRequest:
    """Whether somebody asked the run to stop."""

    def __init__(self) -> None:
        self.requested = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Catch SIGINT and SIGTERM for the body; outside the main thread nothing is caught."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
