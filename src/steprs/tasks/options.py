"""Are a task's options of the types that its annotations declare? YAML gives whatever was typed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..errors import ConfigError

_WORDS: Mapping[type, str] = {str: "a text", int: "a whole number", float: "a finite number", bool: "true or false"}


def require_option_types(task: str, made: Any, options: Mapping[str, Any]) -> None:
    """Refuse options of another type than declared, booleans as numbers, and numbers that are not finite.

    Args:
        task: its name, for the message.
        made: a dataclass, or a class whose `__init__` is annotated; options that it does not declare are left alone.
        options: as given.

    Raises:
        ConfigError: names the option, what was given and what is allowed.

    >>> from steprs.tasks import get_task
    >>> get_task("countdown", numbers="three")
    Traceback (most recent call last):
    steprs.errors.ConfigError: task countdown: numbers is 'three' (a text); allowed: a whole number
    """
    hints = get_type_hints(made if is_dataclass(made) else made.__init__)
    for option, value in options.items():
        allowed = _kinds(hints[option]) if option in hints else ()
        if not allowed or any(_is_a(value, kind) for kind in allowed):
            continue
        words = " or ".join("null" if kind is NoneType else _WORDS[kind] for kind in allowed)
        advice = f"; put it in quotes: {option}=\"'{value}'\"" if str in allowed and _is_plain(value) else ""
        raise ConfigError(f"task {task}: {option} is {value!r} ({_named(value)}); allowed: {words}{advice}")


def _kinds(hint: Any) -> tuple[type, ...]:
    """The plain types of an annotation; nothing where it has others."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        parts = [_kinds(part) for part in get_args(hint)]
        return tuple(kind for part in parts for kind in part) if all(parts) else ()
    if origin is Literal:
        return tuple(dict.fromkeys(map(type, get_args(hint))))
    return (hint,) if hint in (*_WORDS, NoneType) else ()


def _is_a(value: Any, kind: type) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float)


def _named(value: Any) -> str:
    if isinstance(value, float):
        return "a number"
    return "null" if value is None else _WORDS.get(type(value), f"a {type(value).__name__}")
