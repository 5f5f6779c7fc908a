"""Numbers as people write them, read exactly; no float and no evaluation anywhere."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

# Reading and comparing stays far below a millisecond at this length; no answer is longer.
MAX_NUMBER_CHARACTERS = 100
# Digits with thousands separators in threes, or without; then decimals. The separator may be LaTeX's `{,}`.
NUMBER_PATTERN = r"(?:[0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
CURRENCY = "[$€£¥]"
_NUMBER = re.compile(rf"([+\-−]?)({NUMBER_PATTERN})")
# One number, a currency sign before or after it, at most one unit word, a full stop.
_QUANTITY = re.compile(
    rf"(?P<sign>[+\-−]?){CURRENCY}?(?P<inner>[+\-−]?)(?P<number>{NUMBER_PATTERN})"
    rf"(?P<below>[ \t]*/[ \t]*[0-9]+)?[ \t]*(?P<unit>{CURRENCY}|%|°|[A-Za-z]+)?[ \t]*\.?[ \t\r]*"
)
# LaTeX that only sets a quantity: what it becomes, in this order.
_SETTING = (
    (re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[!,;: ]|~"), ""),
    (re.compile(r"\\(?:text|textbf|textrm|mathrm|mbox)\s*\{([^{}\\]*)\}"), r" \1 "),
    (re.compile(r"\\[dt]?frac\s*\{([0-9]+)\}\s*\{([0-9]+)\}"), r"\1/\2"),
    (re.compile(r"\\[dt]?frac\s*([0-9])\s*([0-9])"), r"\1/\2"),
    (re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degree(?![A-Za-z])"), "°"),
    (re.compile(r"\\([$%])"), r"\1"),
)


class Quantity(NamedTuple):
    """A number as an answer states it.

    Attributes:
        value: the number, without its unit; 50% is 50.
        unit: what stands behind it: a word, `%`, `°`, a currency sign, or nothing.
        whole: a plain integer: no unit, sign of currency, decimals or fraction that could change what is meant.
    """

    value: Fraction
    unit: str
    whole: bool

    @property
    def key(self) -> str:
        """Equal for equal quantities."""
        return f"{self.value}{'%' if self.unit == '%' else ''}"


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


def read_quantity(text: str, *, fractions: bool = True) -> Quantity | None:
    r"""The one number that a text is, with at most one unit word, currency or percent sign; None for anything else.

    LaTeX that only sets the number is understood, nothing else of it.

    Args:
        text: a number as `parse_number` reads it, or (with `fractions`) two of them around a slash.
        fractions: whether `3/4` is a number.

    >>> read_quantity("-$1,234.50").key, read_quantity(r"\frac{3}{4}").key, read_quantity("50 %").key
    ('-2469/2', '3/4', '50%')
    >>> read_quantity("18 eggs per day") is None
    True
    """
    if len(text) > 2 * MAX_NUMBER_CHARACTERS:
        return None
    plain = text.strip()
    if "\\" in plain or "~" in plain or plain.count("$") > 1:
        plain = _unset(plain)
    match = _QUANTITY.fullmatch(plain)
    if match is None or (match["sign"] and match["inner"]) or (match["below"] and not fractions):
        return None
    value = parse_number((match["sign"] or match["inner"]) + match["number"])
    below = int(match["below"].strip("/ \t")) if match["below"] else 1
    if value is None or below == 0:
        return None
    return Quantity(
        value=value / below,
        unit=match["unit"] or "",
        whole=bool(re.fullmatch(r"[+\-−]?[0-9]+", plain)),
    )


def _unset(latex: str) -> str:
    """The quantity without the LaTeX that sets it."""
    plain = latex
    for pair in (("$", "$"), ("\\(", "\\)")):
        if plain.startswith(pair[0]) and plain.endswith(pair[1]) and len(plain) >= len("".join(pair)):
            plain = plain[len(pair[0]) : -len(pair[1])]
            break
    for pattern, becomes in _SETTING:
        plain = pattern.sub(becomes, plain)
    return plain.strip()
