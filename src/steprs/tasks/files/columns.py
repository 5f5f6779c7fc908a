"""Values of a row by the names that a column usually has."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

# Of a number that is no text; verifiers read numbers of so many characters.
MAX_DIGITS = 100
LARGEST_NUMBER = 10**MAX_DIGITS


class RowFault(Exception):
    """This row cannot be used, and why; caught by the loader, which knows the row's place."""


class RowNotAskedFor(Exception):
    """A whole row that the options leave out."""


def take(values: Mapping[str, Any], names: Sequence[str], option: str | None) -> Any:
    """The value of the first column that the row has, exact names before other capitals.

    Args:
        values: a row.
        names: what the column is usually called.
        option: what the configuration calls it; then only that counts.

    Raises:
        RowFault: there is none, or it is empty.

    >>> take({"Problem": "1 + 1?"}, ("question", "problem"), None)
    '1 + 1?'
    """
    found = find(values, names, option)
    if found is None:
        raise RowFault(f"no column {' or '.join([option] if option else names)}; it has {_named(values)}")
    value = values[found]
    if value is None or value == "":
        raise RowFault(f"column {found} is empty")
    return value


def find(values: Mapping[str, Any], names: Sequence[str], option: str | None) -> str | None:
    """The row's own name of the column; None where it has none."""
    if option is not None:
        return option if option in values else None
    small = {name.lower(): name for name in reversed(list(values))}
    return next((name for name in names if name in values), None) or next(
        (small[name] for name in names if name in small), None
    )


def take_filled(values: Mapping[str, Any], names: Sequence[str], option: str | None) -> Any:
    """The value of a column that a row may do without; None where it lacks the column or leaves it empty.

    >>> take_filled({"solution": " "}, ("solution", "answer"), None) is None
    True
    """
    found = find(values, names, option)
    value = None if found is None else values[found]
    return None if isinstance(value, str) and not value.strip() else value


def as_text(value: Any, what: str) -> str:
    """A text, or a number as text, without white space around it.

    Raises:
        RowFault: it is neither, or nothing is in it.

    >>> as_text(42, "answer")
    '42'
    """
    # An integer is compared, not measured: a long one is no float, and a longer one cannot even be written.
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) >= LARGEST_NUMBER:
            raise RowFault(f"{what} is a number of more than {MAX_DIGITS} digits")
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value == int(value) else repr(value)
    if not isinstance(value, str):
        raise RowFault(f"{what} is {json.dumps(value, default=str)[:60]}, not text")
    text = value.strip()
    if not text:
        raise RowFault(f"{what} is empty")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RowFault(f"{what} holds half a character (a lone surrogate), which no tokenizer takes") from None
    return text


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(map(str, values)) or "none"
