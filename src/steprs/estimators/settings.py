"""Settings of estimators as a file or a command line gives them, held against the types they are declared with."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Literal, Union

from ..errors import ConfigError

# Counts beyond it overflow in the tensors they are compared with, and none is meant.
_LARGEST = 2**31 - 1
_SAID: Mapping[type, str] = {float: "a finite number", int: "a whole number of at most 32 bits", bool: "true or false"}


def check_types(estimator: str, kind: type, settings: Mapping[str, Any]) -> None:
    """Refuse what is of another type than the class's annotation says. Ranges and names are the class's own business.

    A float may be given as a whole number, but never as NaN or infinity; true and false are no numbers.

    Args:
        estimator: name for the message.
        kind: dataclass of the estimator.
        settings: of it, by name; all of them are its fields.

    Raises:
        ConfigError: names the estimator, the setting, what was given and what is allowed.

    >>> from steprs.estimators import ESTIMATORS
    >>> check_types("pkpo", ESTIMATORS["pkpo"], {"k": True})
    Traceback (most recent call last):
    ...
    steprs.errors.ConfigError: estimator 'pkpo': setting 'k' is True (bool); a whole number of at most 32 bits is needed
    """
    hints = typing.get_type_hints(kind)
    for name, value in settings.items():
        if not _fits(value, hints[name]):
            raise ConfigError(
                f"estimator {estimator!r}: setting {name!r} is {_shown(value)} ({type(value).__name__}); "
                f"{_said(hints[name])} is needed"
            )


def _fits(value: Any, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in typing.get_args(hint))
    if origin is Literal:
        # A name that is not among them is left to the class, which refuses it with the nearest.
        allowed = typing.get_args(hint)
        return type(value) in {type(one) for one in allowed} and (isinstance(value, str) or value in allowed)
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, Integral) and not isinstance(value, bool) and abs(int(value)) <= _LARGEST
    if hint is float:
        return isinstance(value, Real) and not isinstance(value, bool) and _finite(value)
    return not isinstance(hint, type) or isinstance(value, hint)


def _finite(value: Real) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:60]}..."


def _said(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_said(one) for one in typing.get_args(hint))
    if origin is Literal:
        return "one of " + ", ".join(repr(one) for one in typing.get_args(hint))
    if hint is type(None):
        return "null"
    return _SAID.get(hint, getattr(hint, "__name__", str(hint)))
