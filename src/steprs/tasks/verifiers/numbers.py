"""Numbers as people write them, read exactly; no float and no evaluation anywhere."""

from __future__ import annotations

import re
from fractions import Fraction

# Reading and comparing stays far below a millisecond at this length; no answer is longer.
MAX_NUMBER_CHARACTERS = 100
# Digits with thousands separators in threes, or without; then decimals. The separator may be LaTeX's `{,}`.
NUMBER_PATTERN = r"(?:[0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
_NUMBER = re.compile(rf"([+\-−]?)({NUMBER_PATTERN})")


def parse_number(text: str) -> Fraction | None:
    """The number that `text` is, or None when it is anything else.

    Args:
        text: an optional sign, ASCII digits with optional thousands separators in threes, optional decimals.

    >>> parse_number("-1,234.50")
    Fraction(-2469, 2)
    >>> parse_number("1,23") is None
    True
    """
    stripped = text.strip() if len(text) <= MAX_NUMBER_CHARACTERS else ""
    match = _NUMBER.fullmatch(stripped)
    if match is None:
        return None
    value = Fraction(match[2].replace("{,}", "").replace(",", ""))
    return -value if match[1] in ("-", "−") else value


def same_number(left: str, right: str) -> bool:
    """Both texts are numbers, and equal.

    >>> same_number("1,000", "1000.0")
    True
    """
    value = parse_number(left)
    return value is not None and value == parse_number(right)
