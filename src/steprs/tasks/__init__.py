"""Verifiable tasks. `TASKS` is the whole list; `get_task` builds one by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ConfigError, unknown_name
from .base import AbstractTask
from .chain_arithmetic import ChainArithmeticTask
from .countdown import CountdownTask
from .sudoku4 import Sudoku4Task

TASKS: Mapping[str, Callable[..., AbstractTask]] = {
    "chain_arithmetic": ChainArithmeticTask,
    "countdown": CountdownTask,
    "sudoku4": Sudoku4Task,
}


def get_task(name: str, **options: Any) -> AbstractTask:
    """The task called `name`, built with its own options.

    Raises:
        ConfigError: the name is unknown.

    >>> get_task("countdown").completion_length
    12
    """
    if name not in TASKS:
        raise ConfigError(unknown_name("task", name, TASKS))
    return TASKS[name](**options)


__all__ = ["TASKS", "AbstractTask", "get_task"]
