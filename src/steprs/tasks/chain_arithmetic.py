"""Chain arithmetic: work an expression off from left to right and write every step.

The prompt is `7 + 5 * 2 - 9` (read strictly from left to right, without precedence); the completion is
`7 + 5 12 12 * 2 24 24 - 9 15`. Chains differ in length, so completions end with an end token. Every problem has one
derivation: this is the task where coverage cannot come from several right solutions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from ..errors import ArgumentError
from ..types import Problem, Verdict
from .base import AbstractTask, Split, Trace, as_problem, hash_order, require_split, split_of, unit_hash
from .steps import (
    OPERATIONS,
    STEP_WORDS,
    Derivation,
    Step,
    apply,
    last_number_span,
    off_by_one,
    ordered,
    parse_steps,
    trace_of,
    written,
)

Chain = tuple[int | str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainArithmeticTask(AbstractTask):
    """Integer arithmetic in written steps, every value within 0..largest_value.

    Attributes:
        fewest_steps: steps of the shortest chains.
        most_steps: steps of the longest chains.
        largest_operand: numbers in the prompt are 1..largest_operand.
        largest_value: no step may leave 0..largest_value.
        size: problems over all three splits, drawn evenly from the chain lengths.

    Raises:
        ArgumentError: when the ranges are empty or too large to enumerate.

    >>> task = ChainArithmeticTask()
    >>> problem = task.problems("test", 1)[0]
    >>> task.score(problem, task.gold_completion(problem)).status
    'right'
    """

    fewest_steps: int = 2
    most_steps: int = 4
    largest_operand: int = 9
    largest_value: int = 99
    size: int = 9000

    name = "chain_arithmetic"
    block_size = STEP_WORDS

    def __post_init__(self) -> None:
        """Check the ranges before anything is generated."""
        steps_fit = 1 <= self.fewest_steps <= self.most_steps <= 6
        if not (steps_fit and 2 <= self.largest_operand <= self.largest_value <= 99 and self.size >= 30):
            raise ArgumentError(
                f"chain_arithmetic with {self}; allowed: 1 <= fewest_steps <= most_steps <= 6, "
                "2 <= largest_operand <= largest_value <= 99, size >= 30"
            )

    @property
    def ends_with_eos(self) -> bool:
        """True when chains differ in length."""
        return self.fewest_steps < self.most_steps

    @property
    def completion_length(self) -> int:
        """Four words a step, and one whole block more where an end token must fit."""
        return STEP_WORDS * (self.most_steps + self.ends_with_eos)

    def problems(self, split: Split, limit: int | None = None) -> Sequence[Problem]:
        """Chains of a split; `7 + 5 ...` and `5 + 7 ...` are one problem, shown in one of the two orders."""
        require_split(split, limit)
        return _all_problems(self)[split][:limit]

    def gold_completion(self, problem: Problem) -> str:
        """The steps with the running value first."""
        return written(_carried_out(_chain(problem)))

    def solution(self, problem: Problem, rng: random.Random) -> str:
        """The steps with the operands of + and * in random order."""
        return written(_carried_out(_chain(problem)), rng)

    def corrupt(self, problem: Problem, completion: str) -> str:
        """The same steps with the last value off by one."""
        return off_by_one(completion, self.largest_value)

    def score(self, problem: Problem, completion: str) -> Verdict:
        """Take the chain's own steps, each true; operands of + and * may change places.

        The right end after a false or foreign step is wrong: its `answer_key` ends in `?`, so that it is not counted
        as a vote for the right value.
        """
        steps = parse_steps(completion)
        if steps is None:
            return Verdict(reward=0.0, status="unparsed")
        right = [ordered(*step) for step in steps] == [ordered(*step) for step in _carried_out(_chain(problem))]
        reached = str(steps[-1][3])
        if not right and reached == problem.answer:
            reached += "?"
        return Verdict(reward=float(right), status="right" if right else "wrong", answer_key=reached)

    def trace(self, problem: Problem, completion: str) -> Trace | None:
        """The written steps."""
        return trace_of(completion)

    def answer_span(self, problem: Problem, completion: str) -> tuple[int, int] | None:
        """The last number: the value that the steps arrive at."""
        return last_number_span(completion)

    def vocabulary(self) -> tuple[str, ...]:
        """The numbers that can be written, then the operations."""
        return (*map(str, range(self.largest_value + 1)), *OPERATIONS)


def _chain(problem: Problem) -> Chain:
    return tuple(problem.metadata["chain"])


def _carried_out(chain: Chain) -> Derivation:
    """Each operation on the running value.

    >>> _carried_out((7, "+", 5, "*", 2))
    ((7, '+', 5, 12), (12, '*', 2, 24))
    """
    value = int(chain[0])
    steps: list[Step] = []
    for op, operand in zip(chain[1::2], chain[2::2], strict=True):
        steps.append((value, str(op), int(operand), apply(str(op), value, int(operand))))
        value = steps[-1][3]
    return tuple(steps)


@cache
def _all_problems(task: ChainArithmeticTask) -> dict[Split, tuple[Problem, ...]]:
    """`size` problems by split; the same whatever is asked for first."""
    chains = dict(_draw(task))
    kept: dict[Split, dict[str, Problem]] = {"train": {}, "dev": {}, "test": {}}
    for key, chain in chains.items():
        first, op, second, *rest = chain
        swap = op != "-" and unit_hash(key, "shown") < 0.5
        shown = (second, op, first, *rest) if swap else chain
        answer = str(_carried_out(shown)[-1][3])
        kept[split_of(key)][key] = as_problem(task, key, " ".join(map(str, shown)), answer, {"chain": list(shown)})
    return {split: tuple(hash_order(found.values(), found.keys())) for split, found in kept.items()}


def _draw(task: ChainArithmeticTask) -> Iterator[tuple[str, Chain]]:
    """Different chains with a canonical key; lengths take turns, short ones give out when all of them are used."""
    rng = random.Random("chain_arithmetic")
    lengths = range(task.fewest_steps, task.most_steps + 1)
    seen: set[str] = set()
    # Forty draws a problem: lengths with few chains are exhausted long before that.
    for attempt in range(40 * task.size):
        chain = _random_chain(lengths[attempt % len(lengths)], task, rng)
        key = " ".join(map(str, chain))
        if key in seen:
            continue
        seen.add(key)
        yield key, chain
        if len(seen) == task.size:
            return


def _random_chain(steps: int, task: ChainArithmeticTask, rng: random.Random) -> Chain:
    """A chain whose values stay in range; the first two operands of + and * in ascending order."""
    value = rng.randint(1, task.largest_operand)
    chain: list[int | str] = [value]
    while len(chain) < 2 * steps + 1:
        operation, operand = rng.choice(OPERATIONS), rng.randint(1, task.largest_operand)
        result = apply(operation, value, operand)
        if 0 <= result <= task.largest_value:
            chain += (operation, operand)
            value = result
    first, op, second, *rest = chain
    return (second, op, first, *rest) if op != "-" and int(first) > int(second) else tuple(chain)
