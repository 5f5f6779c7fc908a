"""`countdown-file`: reach a target from given numbers with one expression, in d1's or TinyZero's files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ...errors import TaskError
from ...types import Problem, Verdict
from ..base import Trace, UndecidedError
from ..verifiers.countdown import countdown_verdict, operators_in, read_expression
from .base import AbstractFileTask
from .columns import RowFault, RowNotAskedFor, as_text, take
from .loading import Item

FEWEST, MOST = 2, 6
LARGEST = 10**6
# States that a search for an expression looks at, a second or two: all states of five numbers, a part of those of six.
SEARCH_STATES = 200_000
QUESTION = (
    "Use the numbers {numbers}, each exactly once, to write an arithmetic expression whose value is exactly {target}. "
    "The operations +, -, *, / and brackets are allowed. Give only the expression as your answer, without an equals "
    "sign: for the numbers 2, 3, 4 and the target 5 a valid answer is 2 * 4 - 3."
)


@dataclass(frozen=True, kw_only=True)
class CountdownFileTask(AbstractFileTask):
    """Countdown from a file (columns `nums` and `target`, or `input` "19,36,55,7" and `output` "65").

    Two rows with the same numbers in another order are the same problem.

    Attributes:
        count: only rows with so many numbers are used; null for all.
        numbers_column, target_column: what the columns are called, where not as usual.

    Raises:
        ArgumentError: see `AbstractFileTask`.
    """

    count: int | None = None
    numbers_column: str | None = None
    target_column: str | None = None

    name = "countdown-file"
    allowed_formats = ("answer_tag", "plain")

    def read_row(self, values: Mapping[str, Any]) -> Item:
        """Numbers as a list, or as a text with commas or spaces between them."""
        numbers = _numbers(take(values, ("nums", "numbers", "input"), self.numbers_column))
        target = _integer(take(values, ("target", "output"), self.target_column), "the target")
        if not FEWEST <= len(numbers) <= MOST:
            raise RowFault(f"{len(numbers)} numbers; allowed are {FEWEST} to {MOST}")
        if self.count is not None and len(numbers) != self.count:
            raise RowNotAskedFor(f"{len(numbers)} numbers, not count={self.count}")
        key = f"{' '.join(map(str, sorted(numbers)))}>{target}"
        shown = ", ".join(map(str, numbers))
        question = QUESTION.format(numbers=shown, target=target)
        if self.answer_format == "plain":
            question = f"{' '.join(map(str, numbers))} {target}"
        metadata = {"numbers": numbers, "target": target}
        return Item(key=key, question=question, answer=str(target), metadata=metadata, value=str(target))

    def gold_fault(self, item: Item) -> str | None:
        """Finding an expression takes too long for every row of a long file: `steprs tasks validate` does it."""
        return None

    def gold_completion(self, problem: Problem) -> str:
        """An expression that is found by search.

        Raises:
            UndecidedError: the search ended at its bound.
            TaskError: none reaches the target.
        """
        numbers, target = problem.metadata["numbers"], int(problem.metadata["target"])
        try:
            expression = find_expression(tuple(sorted(numbers)), target)
        except UndecidedError as error:
            raise UndecidedError(f"{problem.id}: {error}") from None
        if expression is None:
            raise TaskError(f"{problem.id}: no expression of {numbers}, each used once, reaches {target}")
        return self.format.write("", expression)

    def corrupt(self, problem: Problem, completion: str) -> str:
        """The expression with a one added to it, which is a number too many."""
        return self.format.write("", f"{self.format.answer(completion)} + 1")

    def score(self, problem: Problem, completion: str) -> Verdict:
        """Take one expression that uses every number once and has the target's value."""
        answer = self.format.answer(completion)
        if answer is None:
            return Verdict(reward=0.0, status="unparsed")
        numbers, target = problem.metadata["numbers"], problem.metadata["target"]
        return countdown_verdict(f"{' '.join(map(str, numbers))}|{target}", answer)

    def trace(self, problem: Problem, completion: str) -> Trace | None:
        """The operators of the final expression, and it itself in one form for all orders of commuting operands."""
        answer = self.format.answer(completion)
        expression = read_expression(answer) if answer else None
        if answer is None or expression is None:
            return None
        return Trace(signature=operators_in(answer), equations=(expression.canonical,))


def _numbers(value: Any) -> list[int]:
    if isinstance(value, str):
        value = value.strip().strip("[]").replace(",", " ").split()
    if not isinstance(value, Sequence):
        raise RowFault(f"the numbers are a {type(value).__name__}, not a list or a text such as 19,36,55,7")
    return [_integer(number, "a number") for number in value]


def _integer(value: Any, what: str) -> int:
    text = as_text(value, what)
    if not (text.isascii() and text.isdigit() and len(text) <= 7 and int(text) <= LARGEST):
        raise RowFault(f"{what} is {text[:20]!r}; allowed are whole numbers from 0 to {LARGEST:,}")
    return int(text)


def find_expression(numbers: tuple[int, ...], target: int, states: int = SEARCH_STATES) -> str | None:
    """An expression that uses every number once and has the target's value; None if there is none.

    Args:
        numbers: in any order; another order may find another expression.
        target: the value to reach.
        states: sets of values that are looked at before the search gives up.

    Raises:
        UndecidedError: so many states were not enough to say.

    >>> find_expression((2, 3, 4), 5)
    '4 - (2 - 3)'
    >>> find_expression((1, 1), 7) is None
    True
    """
    found, decided = _searched(numbers, target, states)
    if not decided:
        raise UndecidedError(f"whether {numbers} reach {target} is not decided within {states:,} states of the search")
    return found


@lru_cache(maxsize=4096)
def _searched(numbers: tuple[int, ...], target: int, states: int) -> tuple[str | None, bool]:
    """The expression, and whether the search came to an end; kept, an end at the bound as well."""
    leaves = tuple((Fraction(number), str(number)) for number in numbers)
    try:
        found = _search(leaves, Fraction(target), set(), iter(range(states)))
    except UndecidedError:
        return None, False
    return (found[1:-1] if found and found.startswith("(") else found), True


def _search(
    leaves: tuple[tuple[Fraction, str], ...],
    target: Fraction,
    failed: set[tuple[Fraction, ...]],
    budget: Iterator[int],
) -> str | None:
    """Join two values, then solve what is left; states that failed are not tried again."""
    if next(budget, None) is None:
        raise UndecidedError
    if len(leaves) == 1:
        return leaves[0][1] if leaves[0][0] == target else None
    state = tuple(sorted(value for value, _ in leaves))
    if state in failed:
        return None
    for i, first in enumerate(leaves):
        for j, second in enumerate(leaves[:i]):
            rest = (*leaves[:j], *leaves[j + 1 : i], *leaves[i + 1 :])
            for joined in _joined(second, first):
                if found := _search((joined, *rest), target, failed, budget):
                    return found
    failed.add(state)
    return None


def _joined(first: tuple[Fraction, str], second: tuple[Fraction, str]) -> list[tuple[Fraction, str]]:
    (a, left), (b, right) = first, second
    pairs = [
        (a + b, f"({left} + {right})"), (a - b, f"({left} - {right})"), (b - a, f"({right} - {left})"),
        (a * b, f"({left} * {right})"),
    ]  # fmt: skip
    if b:
        pairs.append((a / b, f"({left} / {right})"))
    if a:
        pairs.append((b / a, f"({right} / {left})"))
    return pairs
