"""Countdown: reach a target from a few small numbers, each used once, in written steps `a op b c`.

The prompt is `n1 n2 n3 n4 target`; a completion is three steps of four words, for example
`3 + 5 8 8 * 2 16 16 - 4 12`. Operations are + - *, and every value written lies in 1..31. Most problems have many
right derivations, which is what makes diversity beyond the final answer measurable.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations_with_replacement, permutations

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


@dataclass(frozen=True, kw_only=True, slots=True)
class CountdownTask(AbstractTask):
    """Countdown with written steps; the default has 9,221 problems, eight tenths of them for training.

    Attributes:
        numbers: how many numbers a problem gives.
        largest_number: numbers are 1..largest_number.
        largest_value: every step's result and the target lie in 1..largest_value.

    Raises:
        ArgumentError: when the numbers asked for cannot be enumerated.

    >>> task = CountdownTask()
    >>> problem = task.problems("test", 1)[0]
    >>> task.score(problem, task.gold_completion(problem)).status
    'right'
    """

    numbers: int = 4
    largest_number: int = 9
    largest_value: int = 31

    name = "countdown"
    block_size = STEP_WORDS

    def __post_init__(self) -> None:
        """Check the ranges before anything is enumerated."""
        if not (2 <= self.numbers <= 4 and 2 <= self.largest_number <= self.largest_value <= 99):
            raise ArgumentError(
                f"countdown with numbers={self.numbers}, largest_number={self.largest_number}, "
                f"largest_value={self.largest_value}; "
                "allowed: 2 to 4 numbers, 2 <= largest_number <= largest_value <= 99"
            )

    @property
    def completion_length(self) -> int:
        """Four words for each of the `numbers - 1` steps."""
        return STEP_WORDS * (self.numbers - 1)

    def problems(self, split: Split, limit: int | None = None) -> Sequence[Problem]:
        """Solvable problems of a split; the split is the hash of (sorted numbers, target)."""
        require_split(split, limit)
        return _all_problems(self)[split][:limit]

    def solutions(self, problem: Problem) -> Sequence[Derivation]:
        """Every right derivation of a problem, operands of + and * in ascending order, steps in written order."""
        state = tuple(sorted(problem.metadata["numbers"]))
        return _derivations(state, self.largest_value)[int(problem.metadata["target"])]

    def gold_completion(self, problem: Problem) -> str:
        """The right derivation that a hash of the problem picks."""
        return self.solution(problem, random.Random(problem.id))

    def solution(self, problem: Problem, rng: random.Random) -> str:
        """A uniformly drawn right derivation with the operands of + and * in random order."""
        found = self.solutions(problem)
        return written(found[rng.randrange(len(found))], rng)

    def corrupt(self, problem: Problem, completion: str) -> str:
        """The same steps with the last value off by one."""
        return off_by_one(completion, self.largest_value)

    def score(self, problem: Problem, completion: str) -> Verdict:
        """Take three true steps that use every number once and end at the target.

        A wrong step makes the completion wrong even when the last value is the target; its `answer_key` then ends in
        `?`, so that a vote for the target counts only derivations that hold. The `solution_key` is an expression,
        the same for every order of commuting operands and of independent steps.
        """
        steps = parse_steps(completion)
        if steps is None or len(steps) != self.numbers - 1:
            return Verdict(reward=0.0, status="unparsed")
        reached = steps[-1][3]
        numbers = tuple(sorted(problem.metadata["numbers"]))
        if not derivation_holds(steps, numbers, self.largest_value):
            return Verdict(reward=0.0, status="wrong", answer_key=f"{reached}?")
        right = reached == problem.metadata["target"]
        return Verdict(
            reward=float(right),
            status="right" if right else "wrong",
            answer_key=str(reached),
            solution_key=canonical_expression(steps, numbers),
        )

    def trace(self, problem: Problem, completion: str) -> Trace | None:
        """The written steps."""
        return trace_of(completion)

    def answer_span(self, problem: Problem, completion: str) -> tuple[int, int] | None:
        """The last number: the value that the steps arrive at."""
        return last_number_span(completion)

    def vocabulary(self) -> tuple[str, ...]:
        """The numbers that can be written, then the operations."""
        return (*map(str, range(1, self.largest_value + 1)), *OPERATIONS)


def derivation_holds(steps: Derivation, numbers: tuple[int, ...], largest_value: int) -> bool:
    """Each step is true arithmetic on values still at hand, within 1..largest_value; all numbers are used."""
    left = Counter(numbers)
    for a, op, b, c in steps:
        left.subtract((a, b))
        if min(left[a], left[b]) < 0 or apply(op, a, b) != c or not 1 <= c <= largest_value:
            return False
        left[c] += 1
    return left.total() == 1


def canonical_expression(steps: Derivation, numbers: tuple[int, ...]) -> str:
    """The derivation as one expression, equal for derivations that differ by commuting only.

    Operands of + and * are put in ascending order and steps are taken as a set, so the key does not depend on how
    the derivation was written. Where a value could be an earlier result or a given number, steps alone cannot
    tell; the least expression is taken.

    >>> canonical_expression(((4, "+", 3, 7), (7, "*", 2, 14)), (2, 3, 4))
    '((3 + 4) * 2)'
    """
    equations = tuple(sorted(ordered(*step) for step in steps))
    return _expression(equations, tuple(sorted(numbers)))


@lru_cache(maxsize=1 << 16)
def _expression(equations: Derivation, numbers: tuple[int, ...]) -> str:
    leaves = tuple((number, str(number)) for number in numbers)
    return min(found for order in set(permutations(equations)) for found in _readings(order, leaves))


def _readings(steps: Derivation, at_hand: tuple[tuple[int, str], ...]) -> Iterator[str]:
    """Expressions that these steps can mean, in this order, given (value, expression) pairs at hand."""
    if not steps:
        yield at_hand[0][1]
        return
    (a, op, b, c), *rest = steps
    for first in {pair for pair in at_hand if pair[0] == a}:
        others = _without(at_hand, first)
        for second in {pair for pair in others if pair[0] == b}:
            sides = (first[1], second[1])
            left, right = sides if op == "-" else sorted(sides)
            yield from _readings(tuple(rest), (*_without(others, second), (c, f"({left} {op} {right})")))


def _without(pairs: tuple[tuple[int, str], ...], one: tuple[int, str]) -> tuple[tuple[int, str], ...]:
    index = pairs.index(one)
    return pairs[:index] + pairs[index + 1 :]


@cache
def _all_problems(task: CountdownTask) -> dict[Split, tuple[Problem, ...]]:
    """Every solvable problem by split; enumerated once a process."""
    kept: dict[Split, dict[str, Problem]] = {"train": {}, "dev": {}, "test": {}}
    for state in combinations_with_replacement(range(1, task.largest_number + 1), task.numbers):
        for target in _derivations(state, task.largest_value):
            key = f"{' '.join(map(str, state))}>{target}"
            kept[split_of(key)][key] = _problem(task, key, state, target)
    return {split: tuple(hash_order(found.values(), found.keys())) for split, found in kept.items()}


def _problem(task: CountdownTask, key: str, state: tuple[int, ...], target: int) -> Problem:
    """The numbers are shown in an order that a hash of the problem picks."""
    orders = sorted(set(permutations(state)))
    shown = orders[int(unit_hash(key, "shown") * len(orders))]
    prompt = " ".join(map(str, (*shown, target)))
    return as_problem(task, key, prompt, str(target), {"numbers": list(shown), "target": target})


@cache
def _derivations(state: tuple[int, ...], largest_value: int) -> dict[int, tuple[Derivation, ...]]:
    """Target -> derivations from a sorted state, by choosing the first step and solving what is left."""
    if len(state) == 1:
        return {state[0]: ((),)}
    found: dict[int, dict[Derivation, None]] = {}
    for i, j in sorted({(state.index(a), b) for b in range(len(state)) for a in state[:b]}):
        rest = state[:i] + state[i + 1 : j] + state[j + 1 :]
        for step in _first_steps(state[i], state[j], largest_value):
            for target, tails in _derivations(tuple(sorted((*rest, step[3]))), largest_value).items():
                found.setdefault(target, {}).update(dict.fromkeys((step, *tail) for tail in tails))
    return {target: tuple(steps) for target, steps in sorted(found.items())}


def _first_steps(a: int, b: int, largest_value: int) -> Iterator[Step]:
    """Steps on a <= b: the larger minus the smaller, sum, product; values outside 1..largest_value are not allowed."""
    for first, op, second in ((a, "+", b), (b, "-", a), (a, "*", b)):
        value = apply(op, first, second)
        if 1 <= value <= largest_value:
            yield (first, op, second, value)
