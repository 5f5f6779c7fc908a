"""Verifiable tasks. `TASKS` is the whole list; `get_task` builds one by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ConfigError, unknown_name
from .base import AbstractTask
from .countdown import CountdownTask

TASKS: Mapping[str, Callable[..., AbstractTask]] = {
    "countdown": CountdownTask,
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
