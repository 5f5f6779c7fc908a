"""The `gsm8k` convention: the answer stands behind the last `####` that is followed by a number."""

from __future__ import annotations

import re
from fractions import Fraction

from ...errors import ArgumentError
from ...types import Status
from .numbers import NUMBER_PATTERN, parse_number

# Only the end of a completion is read: the answer is there, and a million characters cost nothing.
TAIL_CHARACTERS = 20_000
_CURRENCY = "[$€£¥]"
_MARKED = re.compile(rf"####[ \t]*(?=[+\-−]?{_CURRENCY}?[+\-−]?\.?[0-9])([^\n#]{{1,200}})")
# One number, a currency sign before or after it, at most one unit word, a full stop.
_ANSWER = re.compile(
    rf"(?P<sign>[+\-−]?){_CURRENCY}?(?P<inner>[+\-−]?)(?P<number>{NUMBER_PATTERN})"
    rf"[ \t]*(?:{_CURRENCY}|%|°|[A-Za-z]+)?[ \t]*\.?[ \t\r]*"
)


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
    *_, last = None, *_MARKED.finditer(text[-TAIL_CHARACTERS:])
    answer = _ANSWER.fullmatch(last[1]) if last else None
    if answer is None or (answer["sign"] and answer["inner"]):
        return None
    return parse_number((answer["sign"] or answer["inner"]) + answer["number"])
