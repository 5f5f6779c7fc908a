"""Verifiable tasks: `TASKS` need nothing, `FILE_TASKS` need a file or a dataset; `get_task` builds one by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ArgumentError, ConfigError, did_you_mean, unknown_name
from .base import AbstractTask
from .chain_arithmetic import ChainArithmeticTask
from .countdown import CountdownTask
from .files import FILE_TASKS
from .options import require_option_types
from .reasoning_gym import PREFIX, ReasoningGymTask
from .sudoku4 import Sudoku4Task

TASKS: Mapping[str, Callable[..., AbstractTask]] = {
    "chain_arithmetic": ChainArithmeticTask,
    "countdown": CountdownTask,
    "sudoku4": Sudoku4Task,
}


def get_task(name: str, **options: Any) -> AbstractTask:
    """The task called `name`, or `reasoning_gym:<dataset>`, built with its own options.

    Raises:
        ConfigError: the name or an option is unknown, or an option is not of its type.
        DependencyError: a task without the package that it needs.

    >>> get_task("countdown").completion_length
    12
    """
    if name.startswith(PREFIX):
        require_option_types(name, ReasoningGymTask, options)
        return ReasoningGymTask(name.removeprefix(PREFIX), **options)
    known = {**TASKS, **FILE_TASKS}
    if name not in known:
        raise ConfigError(unknown_name("task", name, [*known, f"{PREFIX}<name>"]))
    allowed = inspect.signature(known[name]).parameters
    for option in options:
        if option not in allowed:
            raise ConfigError(
                f"task {name} has no option {option!r}; allowed: {', '.join(allowed)}.{did_you_mean(option, allowed)}"
            )
    require_option_types(name, known[name], options)
    try:
        return known[name](**options)
    except ArgumentError as error:
        raise ConfigError(f"task.options: {error}") from None


__all__ = ["FILE_TASKS", "TASKS", "AbstractTask", "get_task"]
