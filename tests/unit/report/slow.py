"""The statistics once more, from the plain JSON and by enumeration; shares no code with the package."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean

Problem = dict


def problems_of(folder: Path) -> list[Problem]:
    return json.loads((folder / "eval.json").read_text())["problems"]


def mean_of_subsets(n: int, k: int, value: Callable[[tuple[int, ...]], float]) -> float:
    """The mean over every way to draw k of n samples."""
    return fmean(value(drawn) for drawn in combinations(range(n), k))


def pass_at(problem: Problem, k: int) -> float:
    right = [status == "right" for status in problem["statuses"]]
    return mean_of_subsets(len(right), k, lambda drawn: float(any(right[i] for i in drawn)))


def distinct_right_at(problem: Problem, k: int) -> float:
    keys = [
        solution or answer if status == "right" else None
        for solution, answer, status in zip(
            problem["solution_keys"], problem["answer_keys"], problem["statuses"], strict=True
        )
    ]
    return mean_of_subsets(len(keys), k, lambda drawn: float(len({keys[i] for i in drawn} - {None})))


def distinct_at(problem: Problem, k: int) -> float:
    keys = problem["answer_keys"]
    return mean_of_subsets(len(keys), k, lambda drawn: float(len({keys[i] for i in drawn} - {None})))


def wrong_diversity(problem: Problem) -> float | None:
    wrong = [a for a, s in zip(problem["answer_keys"], problem["statuses"], strict=True) if s == "wrong"]
    pairs = list(combinations(wrong, 2))
    return fmean(float(a != b) for a, b in pairs) if pairs else None


def answer_entropy(problem: Problem) -> float | None:
    counts = Counter(a for a in problem["answer_keys"] if a is not None)
    n = sum(counts.values())
    if n < 2:
        return None
    return sum(-c / n * math.log(c / n) for c in counts.values()) + (len(counts) - 1) / (2 * n)


STATISTICS: dict[str, Callable[[Problem], float | None]] = {
    "pass@1": lambda problem: pass_at(problem, 1),
    "pass@4": lambda problem: pass_at(problem, 4),
    "pass@16": lambda problem: pass_at(problem, 16),
    "distinct right@16": lambda problem: distinct_right_at(problem, 16),
    "distinct answers@16": lambda problem: distinct_at(problem, 16),
    "wrong diversity": wrong_diversity,
    "answer entropy": answer_entropy,
}


def mean(folders: Sequence[Path], heading: str) -> float:
    """Over seeds, then over the problems that have a value in every seed."""
    rows = [[STATISTICS[heading](problem) for problem in problems_of(folder)] for folder in folders]
    known = [column for column in zip(*rows, strict=True) if None not in column]
    return fmean(fmean(column) for column in known)


def mean_difference(pairs: Sequence[tuple[Path, Path]], heading: str) -> float:
    """Of (arm, baseline) folders, seed by seed and problem by problem."""
    value = STATISTICS[heading]
    rows = [
        [
            None if None in (left := value(a), right := value(b)) else left - right
            for a, b in zip(problems_of(one), problems_of(other), strict=True)
        ]
        for one, other in pairs
    ]  # fmt: skip
    known = [column for column in zip(*rows, strict=True) if None not in column]
    return fmean(fmean(column) for column in known)
