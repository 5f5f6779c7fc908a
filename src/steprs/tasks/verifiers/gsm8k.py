"""The `gsm8k` convention: the answer stands behind the last `####` that is followed by a number."""

from __future__ import annotations

import re
from fractions import Fraction

from ...errors import ArgumentError
from ...types import Status
from .numbers import CURRENCY, parse_number, read_quantity

# Only the end of a completion is read: the answer is there, and a million characters cost nothing.
TAIL_CHARACTERS = 20_000
_MARKED = re.compile(rf"####[ \t]*(?=[+\-−]?{CURRENCY}?[+\-−]?\.?[0-9])([^\n#]{{1,200}})")


def check_gsm8k(gold: str, completion: str) -> Status:
    """Compare the number behind the last marker with the gold number, exactly.

    `unparsed` when no marker is followed by a number, or when what follows is more than one number with at most one
    unit (`#### 1,23` and `#### 3 of 4` are not numbers, whatever earlier markers say).

    Args:
        gold: a number, or a whole solution that ends in `#### number`.
        completion: text that a model wrote; only its last 20,000 characters are read.

    Raises:
        ArgumentError: the gold answer is not a number.

    >>> check_gsm8k("1,234", "so #### $1234.00")
    'right'
    >>> check_gsm8k("1,234", "so #### 1")
    'wrong'
    """
    expected = marked_number(gold) if "####" in gold else parse_number(gold)
    if expected is None:
        raise ArgumentError(
            f"gold answer {gold[:80]!r} is not a number; give digits, or a solution ending in #### digits"
        )
    given = marked_number(completion)
    if given is None:
        return "unparsed"
    return "right" if given == expected else "wrong"


def marked_number(text: str) -> Fraction | None:
    """The number behind the last `####` that is followed by one, None if there is none.

    >>> marked_number("#### 17, no: #### 18 eggs.")
    Fraction(18, 1)
    """
    span = marked_span(text)
    answer = read_quantity(text[slice(*span)], fractions=False) if span else None
    return answer.value if answer else None


def marked_span(text: str) -> tuple[int, int] | None:
    """Where the rest of the line behind the last `####` that is followed by a number stands."""
    *_, last = None, *_MARKED.finditer(text, max(0, len(text) - TAIL_CHARACTERS))
    return last.span(1) if last else None
