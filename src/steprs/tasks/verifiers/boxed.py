r"""The `boxed` convention: the last complete `\boxed{...}`, compared by math-verify in a process of its own.

The box is found by counting braces here; what is in it is only ever parsed in the worker process.
"""

from __future__ import annotations

import re

from ...types import Status
from .math_worker_pool import shared_pool

# Only the end of a completion is read, and only boxes of a sane size are compared.
TAIL_CHARACTERS = 20_000
MAX_BOX_CHARACTERS = 1_000
_BRACES = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|textit)\s*\{([^{}\\]*)\}")


def check_boxed(gold: str, completion: str) -> Status:
    r"""Compare the last complete box with the gold LaTeX.

    Words (two letters or more, also inside `\text{}`) are compared as text: read as mathematics, `live` and `evil`
    would be the same product of letters. Everything else is compared by math-verify; a comparison that fails or takes
    too long is `wrong`.

    Args:
        gold: LaTeX without the box.
        completion: text that a model wrote; only its last 20,000 characters are read.

    Raises:
        DependencyError: math-verify is not installed.

    >>> check_boxed("live", r"so \boxed{\text{Live}}"), check_boxed("live", r"so \boxed{evil}")
    ('right', 'wrong')
    """
    pool = shared_pool()
    box = last_box(completion)
    if box is None or not box.strip():
        return "unparsed"
    if len(box) > MAX_BOX_CHARACTERS:
        return "wrong"
    if (word := _word(gold)) is not None:
        return "right" if _word(box) == word else "wrong"
    return "right" if pool.same(gold, box) else "wrong"


def last_box(text: str) -> str | None:
    r"""The content of the box that closes last; None when no box is complete.

    >>> last_box(r"\boxed{1} and \boxed{\frac{1}{2}} or \boxed{3")
    '\\frac{1}{2}'
    """
    tail = text[-TAIL_CHARACTERS:]
    # For every open brace, where its box's content begins; -1 for a brace that is not a box.
    opened: list[int] = []
    content = None
    for match in _BRACES.finditer(tail):
        if match[0] == "}":
            start = opened.pop() if opened else -1
            content = (start, match.start()) if start >= 0 else content
        elif match[0].endswith("{") and match[0] != "\\{":
            opened.append(match.end() if len(match[0]) > 1 else -1)
    return tail[slice(*content)] if content else None


def _word(latex: str) -> str | None:
    """The lower-case word or words that the LaTeX is, None when it could be mathematics."""
    text = " ".join(_TEXT.sub(r"\1", latex).split()).strip("$. ")
    letters = text.replace(" ", "")
    return text.casefold() if len(letters) > 1 and letters.isalpha() and letters.isascii() else None
