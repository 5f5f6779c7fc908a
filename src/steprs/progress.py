"""One way to show that something long is going on: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol


class Progress(Protocol):
    """What the body of `track` may call."""

    def advance(self, amount: int = 1, text: str = "") -> None:
        """Move on by `amount`; `text` is what there is to see now."""


@dataclass
class _Lines:
    """A line with the time left, at most every `every` seconds, and always at the end."""

    title: str
    total: int
    every: float = 10.0
    done: int = 0
    started: float = field(default_factory=time.monotonic)
    last: float = field(default_factory=time.monotonic)

    def advance(self, amount: int = 1, text: str = "") -> None:
        self.done += amount
        now = time.monotonic()
        if now - self.last < self.every and self.done < self.total:
            return
        self.last = now
        spent = now - self.started
        left = spent / max(self.done, 1) * (self.total - self.done)
        print(
            f"{self.title} {self.done}/{self.total}  {spent:.0f} s, {left:.0f} s left  {text}".rstrip(),
            file=sys.stderr,
            flush=True,
        )


@dataclass
class _Silent:
    def advance(self, amount: int = 1, text: str = "") -> None:
        """Nothing is shown."""


@contextmanager
def track(title: str, total: int, *, done: int = 0, show: bool = True) -> Iterator[Progress]:
    """Show progress of `total` units on standard error: what a command prints may go into a file.

    Args:
        title: what is going on, in a word or two.
        total: units of work.
        done: units already done by an earlier, resumed run.
        show: false for every process but the main one.

    >>> from contextlib import redirect_stderr
    >>> with redirect_stderr(sys.stdout), track("counting", 2) as bar:
    ...     bar.advance(2, "all")
    counting 2/2  0 s, 0 s left  all
    """
    if not show:
        yield _Silent()
        return
    if not sys.stderr.isatty():
        yield _Lines(title, total - done)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}"),
    ]
    with RichProgress(*columns, console=Console(stderr=True)) as rich:
        job = rich.add_task(title, total=total, completed=done, text="")

        @dataclass
        class _Bar:
            def advance(self, amount: int = 1, text: str = "") -> None:
                rich.update(job, advance=amount, text=text)

        yield _Bar()
