"""What a task is: problems in three disjoint splits, a written gold solution, and an exact verifier.

Prompts and completions are words separated by single spaces, so that the tiny policy's word tokenizer reads
them and a large model's tokenizer does too.
"""

from __future__ import annotations

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from ..errors import ArgumentError, TaskError, unknown_name
from ..types import Problem, Verdict

if TYPE_CHECKING:
    from .files.report import RowReport

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
# Upper edges of the splits on the unit interval: eight tenths to train on, a tenth each to choose and to report.
SPLIT_EDGES: Mapping[Split, float] = {"train": 0.8, "dev": 0.9, "test": 1.0}

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """What a completion wrote down on the way to its answer, true or not, in a form that can be compared.

    Attributes:
        signature: the operators in the order they were written, as a short text; None where a task has none.
        equations: statements in the order they were written, equal for two that differ by commuting operands only.
    """

    signature: str | None
    equations: tuple[str, ...]


class UndecidedError(TaskError):
    """Whether a problem has a solution was not found out within a bound; it is no fault of the problem."""


class AbstractTask(ABC):
    """The interface of every task; a new one is a file, a line in `TASKS` and a row in the conformance test.

    Rules that `steprs.testing.check_task` checks:

    - a problem's `id` is canonical: equal ids are equal problems, and no id is in two splits;
    - `problems` gives the same problems in the same order in every process;
    - `score` takes the gold completion, refuses its corruption, and answers (never raises) on any text;
    - completions with the same `answer_key` have the same status: majority votes and distinct answers rely on it.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in configurations and run folders."""

    @property
    @abstractmethod
    def completion_length(self) -> int:
        """Words of the longest gold completion (with the end token, if the task uses one): the default length."""

    @property
    def block_size(self) -> int:
        """Words that belong together (one written step): the default block of block-wise decoding."""
        return self.completion_length

    @property
    def binary(self) -> bool:
        """Rewards are 0 or 1; other scores are thresholded, and the exact rescaling theorem holds."""
        return True

    @property
    def reward_range(self) -> tuple[float, float]:
        """Least and largest reward; risk coefficients have the unit 1 / reward."""
        return (0.0, 1.0)

    @property
    def verifier_failures(self) -> int:
        """Answers that the verifier failed on in this process so far; they count as wrong and are logged."""
        return 0

    def row_report(self) -> RowReport | None:
        """What became of the rows of a file; None for tasks that are generated."""
        return None

    @property
    def ends_with_eos(self) -> bool:
        """Gold completions differ in length, so the policy must learn to end them."""
        return False

    @abstractmethod
    def problems(self, split: Split, limit: int | None = None) -> Sequence[Problem]:
        """The first `limit` problems of a split (all of them when None), in a fixed shuffled order."""

    @abstractmethod
    def gold_completion(self, problem: Problem) -> str:
        """A written solution that the verifier takes."""

    def solution(self, problem: Problem, rng: random.Random) -> str:
        """A random right solution, for pretraining; the gold one where a task knows no other."""
        del rng
        return self.gold_completion(problem)

    @abstractmethod
    def corrupt(self, problem: Problem, completion: str) -> str:
        """A nearby completion that the verifier must refuse, made from one that it takes."""

    @abstractmethod
    def score(self, problem: Problem, completion: str) -> Verdict:
        """The verdict on a completion; exact, bounded in time, and never an exception because of the text."""

    def trace(self, problem: Problem, completion: str) -> Trace | None:
        """The way to the answer as written, for statistics of diversity; None where it cannot be read.

        A function of the text alone as far as it can be: whether a step is true is the verdict's business.
        """
        del problem, completion
        return None

    def answer_span(self, problem: Problem, completion: str) -> tuple[int, int] | None:
        """First and one past the last character of the final answer as written; None where there is none."""
        del problem, completion
        return None

    @abstractmethod
    def vocabulary(self) -> tuple[str, ...]:
        """Every word of prompts and gold completions, without special tokens; fixes the tiny tokenizer's ids."""


def unit_hash(key: str, purpose: str) -> float:
    """A number in [0, 1) that depends on the two texts only: not on the process, platform or hash seed.

    >>> unit_hash("1 2 3 4>10", "split") == unit_hash("1 2 3 4>10", "split")
    True
    """
    digest = hashlib.blake2b(f"{purpose}\x00{key}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53


def split_of(key: str) -> Split:
    """The split that owns the canonical problem `key`; the same whatever other problems exist."""
    position = unit_hash(key, "split")
    return next(split for split in SPLITS if position < SPLIT_EDGES[split])


def hash_order(items: Iterable[ItemT], keys: Iterable[str]) -> list[ItemT]:
    """`items` shuffled by the hash of their keys: one more item leaves the order of the others alone."""
    keyed = sorted(zip((unit_hash(key, "order") for key in keys), keys, items, strict=True), key=lambda row: row[:2])
    return [item for _, _, item in keyed]


def require_split(split: str, limit: int | None = None) -> None:
    """Refuse an unknown split or a limit that is not positive.

    Raises:
        ArgumentError: names what is allowed.
    """
    if split not in SPLITS:
        raise ArgumentError(unknown_name("split", split, SPLITS))
    if limit is not None and limit < 1:
        raise ArgumentError(f"limit is {limit}; ask for at least one problem, or None for all of them")


def as_problem(task: AbstractTask, key: str, prompt: str, answer: str, metadata: Mapping[str, Any]) -> Problem:
    """A problem whose id is the task's name and the canonical key."""
    return Problem(id=f"{task.name}/{key}", prompt=prompt, answer=answer, metadata=dict(metadata))
