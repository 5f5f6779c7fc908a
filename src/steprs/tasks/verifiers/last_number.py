"""The `number` convention: the last number of the completion, for prompts that ask for no form of answer."""

from __future__ import annotations

import re

from ...errors import ArgumentError
from ...types import Status
from .numbers import CURRENCY, Quantity, read_quantity

# Only the end of a completion is read.
TAIL_CHARACTERS = 20_000
# A run of digits and separators is one number or none: "1,23" is not 1 and then 23. A sign after a digit, a letter or a
# bracket is an operation. The lengths are bounded so that a million digits cost no more than a hundred.
_NUMBERS = re.compile(
    rf"(?:(?<![0-9A-Za-z)\]][ \t])(?<![0-9A-Za-z)\]])[+\-−])?{CURRENCY}?"
    r"(?:[0-9][0-9,]{0,60}(?:\.[0-9]{1,40})?|\.[0-9]{1,40})"
    r"(?:[ \t]?/[ \t]?[0-9]{1,40})?[ \t]?%?"
)


def check_number(gold: str, completion: str) -> Status:
    """Compare the last number of the completion with the gold number, exactly.

    Args:
        gold: a number, with a unit word, currency or percent sign at most.
        completion: text that a model wrote; only its last 20,000 characters are read.

    Raises:
        ArgumentError: the gold answer is not a number.

    >>> check_number("1,234", "That makes 1000 + 234 = 1,234 dollars.")
    'right'
    >>> check_number("7", "It is 10 - 3, I think.")
    'wrong'
    """
    expected = read_quantity(gold)
    if expected is None:
        raise ArgumentError(f"gold answer {gold[:80]!r} is not a number; give digits, with one unit at most")
    given = last_number(completion)
    if given is None:
        return "unparsed"
    return "right" if given.value == expected.value else "wrong"


def last_number(text: str) -> Quantity | None:
    """The last number of a text; None without one, or when the last run of digits is not a number.

    >>> last_number("from 3 to -1,200 and 1/2").key, last_number("it is 1,23")
    ('1/2', None)
    """
    span = last_number_span(text)
    return read_quantity(text[slice(*span)]) if span else None


def last_number_span(text: str) -> tuple[int, int] | None:
    """Where the last run of digits and separators stands."""
    *_, last = None, *_NUMBERS.finditer(text, max(0, len(text) - TAIL_CHARACTERS))
    if last is None:
        return None
    return last.start(), last.start() + len(last[0].rstrip(",. \t"))
