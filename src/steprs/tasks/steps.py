"""Arithmetic written as steps of four words, `a op b c` for "a op b is c". Shared by tasks that show their work."""

from __future__ import annotations

import random

from .base import Trace

Step = tuple[int, str, int, int]
Derivation = tuple[Step, ...]

OPERATIONS = ("+", "-", "*")
STEP_WORDS = 4
# The longest gold completion has five steps of 12 characters; anything far longer is not one.
MAX_CHARACTERS = 400


def parse_steps(completion: str) -> Derivation | None:
    """The steps as written, true or not, or None when the text is anything else than whole steps.

    Numbers are one or two ASCII digits without a leading zero.

    >>> parse_steps("3 + 5 8 8 * 2 16")
    ((3, '+', 5, 8), (8, '*', 2, 16))
    >>> parse_steps("3 + 5 = 8") is None
    True
    """
    words = completion.split() if len(completion) <= MAX_CHARACTERS else []
    if not words or len(words) % STEP_WORDS:
        return None
    steps = []
    for a, op, b, c in zip(words[::4], words[1::4], words[2::4], words[3::4], strict=True):
        if op not in OPERATIONS or not all(_is_number(word) for word in (a, b, c)):
            return None
        steps.append((int(a), op, int(b), int(c)))
    return tuple(steps)


def apply(op: str, a: int, b: int) -> int:
    """The value of `a op b`.

    >>> apply("-", 3, 5)
    -2
    """
    return a + b if op == "+" else a - b if op == "-" else a * b


def ordered(a: int, op: str, b: int, c: int) -> Step:
    """The step with the operands of + and * in ascending order: one form for steps that differ by commuting.

    >>> ordered(4, "+", 3, 7)
    (3, '+', 4, 7)
    """
    return (a, op, b, c) if op == "-" or a <= b else (b, op, a, c)


def trace_of(completion: str) -> Trace | None:
    """Operators in written order, and steps with the operands of + and * in ascending order.

    >>> trace_of("8 * 2 16 5 - 3 2")
    Trace(signature='*-', equations=('2*8=16', '5-3=2'))
    """
    steps = parse_steps(completion)
    if steps is None:
        return None
    equations = tuple(f"{a}{op}{b}={c}" for a, op, b, c in (ordered(*step) for step in steps))
    return Trace(signature="".join(op for _, op, _, _ in steps), equations=equations)


def last_number_span(completion: str) -> tuple[int, int] | None:
    """Where the last value is written.

    >>> last_number_span("3 + 5 8 8 * 2 16 ")
    (14, 16)
    """
    if parse_steps(completion) is None:
        return None
    end = len(completion.rstrip())
    return end - len(completion.split()[-1]), end


def written(steps: Derivation, rng: random.Random | None = None) -> str:
    """The steps as text; with `rng`, operands of + and * change places half of the time."""
    words: list[str] = []
    for a, op, b, c in steps:
        first, second = (b, a) if rng and op != "-" and rng.random() < 0.5 else (a, b)
        words += (str(first), op, str(second), str(c))
    return " ".join(words)


def off_by_one(completion: str, largest_value: int) -> str:
    """The completion with its last number changed by one, inside 0..largest_value."""
    *words, last = completion.split()
    return " ".join([*words, str(int(last) + 1 if int(last) < largest_value else int(last) - 1)])


def _is_number(word: str) -> bool:
    return len(word) <= 2 and word.isascii() and word.isdigit() and (word[0] != "0" or word == "0")
