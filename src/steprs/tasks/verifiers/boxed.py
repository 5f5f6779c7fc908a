r"""The `boxed` convention: the last complete `\boxed{...}`, compared by math-verify in a process of its own.

The box is found by counting braces here; what is in it is only ever parsed in the worker process.
"""

from __future__ import annotations

import re

from ...types import Status
from .math_worker_pool import require_math_verify, shared_pool
from .numbers import read_quantity

# Only the end of a completion is read, and only boxes of a sane size are compared.
TAIL_CHARACTERS = 20_000
MAX_BOX_CHARACTERS = 1_000
_BRACES = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|textit)\s*\{([^{}\\]*)\}")


def check_boxed(gold: str, completion: str) -> Status:
    r"""Compare the last complete box with the gold LaTeX.

    Words (two letters or more, also inside `\text{}`) are compared as text: read as mathematics, `live` and `evil`
    would be the same product of letters. Numbers that are equal, and integers that are not, are settled here;
    everything else is compared by math-verify, and a comparison that fails or takes too long is `wrong`.

    Args:
        gold: LaTeX without the box.
        completion: text that a model wrote; only its last 20,000 characters are read.

    Raises:
        DependencyError: math-verify is not installed.

    >>> check_boxed("live", r"so \boxed{\text{Live}}"), check_boxed("live", r"so \boxed{evil}")
    ('right', 'wrong')
    """
    require_math_verify()
    box = last_box(completion)
    if box is None or not box.strip():
        return "unparsed"
    return "right" if compare_latex(gold, box) else "wrong"


def compare_latex(gold: str, answer: str) -> bool:
    """Whether an answer without its box is the gold one; see `check_boxed`."""
    if len(answer) > MAX_BOX_CHARACTERS:
        return False
    if (word := _word(gold)) is not None:
        return _word(answer) == word
    # Most answers are plain numbers, which need no other process.
    expected, given = read_quantity(gold), read_quantity(answer)
    if expected is not None and given is not None:
        # A letter behind a number is a unit for people and a factor for mathematics.
        if expected.key == given.key and not (expected.unit + given.unit).isalpha():
            return True
        if expected.whole and given.whole:
            return False
    return shared_pool().same(gold, answer)


def last_box(text: str) -> str | None:
    r"""The content of the box that closes last; None when no box is complete.

    >>> last_box(r"\boxed{1} and \boxed{\frac{1}{2}} or \boxed{3")
    '\\frac{1}{2}'
    """
    span = last_box_span(text)
    return text[slice(*span)] if span else None


def last_box_span(text: str) -> tuple[int, int] | None:
    """Where the content of the box that closes last stands; only the last 20,000 characters are read."""
    # For every open brace, where its box's content begins; -1 for a brace that is not a box.
    opened: list[int] = []
    content = None
    for match in _BRACES.finditer(text, max(0, len(text) - TAIL_CHARACTERS)):
        if match[0] == "}":
            start = opened.pop() if opened else -1
            content = (start, match.start()) if start >= 0 else content
        elif match[0].endswith("{") and match[0] != "\\{":
            opened.append(match.end() if len(match[0]) > 1 else -1)
    return content


def unboxed(text: str) -> str:
    r"""The text without its boxes, their content kept.

    >>> unboxed(r"so $\boxed{\frac{1}{2}}$ it is")
    'so $\\frac{1}{2}$ it is'
    """
    while (span := last_box_span(text)) is not None:
        start = text.rindex("\\boxed", 0, span[0])
        text = text[:start] + text[slice(*span)] + text[span[1] + 1 :]
    return text


def _word(latex: str) -> str | None:
    """The lower-case word or words that the LaTeX is, None when it could be mathematics."""
    text = " ".join(_TEXT.sub(r"\1", latex).split()).strip("$. ")
    letters = text.replace(" ", "")
    return text.casefold() if len(letters) > 1 and letters.isalpha() and letters.isascii() else None
