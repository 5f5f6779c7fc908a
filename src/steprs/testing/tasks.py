"""Conformance check for a task of your own."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from ..tasks.base import SPLITS, AbstractTask
from ..tasks.scoring import score_rollouts
from ..types import Problem, Verdict

# Texts that broke verifiers elsewhere: towers of powers, depth, length, odd characters, half-written answers.
HOSTILE_TEXTS = (
    "",
    " ",
    "\x00",
    "\ud800",
    "9**9**9**9",
    "(" * 5_000,
    "[" * 5_000,
    "9" * 100_000,
    "1e999999999",
    "-1 " * 2_000,
    "NaN",
    "None",
    "١٢٣",
    "²",
    "\n\n\n",
    "####",
    "<answer>",
    "\\boxed{",
    "__import__('os').system('true')",
    "{" * 1_000 + "}" * 1_000,
    "\U0001f600" * 1_000,
)


def check_task(make_task: Callable[[], AbstractTask], *, limit: int = 50) -> None:
    """Check that a task keeps the promises of `AbstractTask`; call it from a test of your own.

    Args:
        make_task: builds the task; called twice, to see that the problems come out the same.
        limit: problems of each split that the verifier is tried on.

    Raises:
        AssertionError: names the promise that is broken and the problem it is broken for.

    >>> from steprs.tasks import get_task
    >>> check_task(lambda: get_task("sudoku4"), limit=3)
    """
    task = make_task()
    _check_splits(task, make_task(), limit)
    words = set(task.vocabulary())
    for split in SPLITS:
        for problem in task.problems(split, limit):
            _check_problem(problem)
            _check_verifier(task, problem)
            _check_reading(task, problem, task.gold_completion(problem))
            _check_words(task, problem, words)
    problem = task.problems("train", 1)[0]
    for text in HOSTILE_TEXTS:
        _check_verdict(task, problem, text)
        _check_reading(task, problem, text)


def _check_splits(task: AbstractTask, again: AbstractTask, limit: int) -> None:
    owner: dict[str, str] = {}
    for split in SPLITS:
        problems = task.problems(split)
        _require(len(problems) > 0, f"split {split} is empty")
        _require(list(problems) == list(again.problems(split)), f"split {split} differs between two builds of the task")
        first = min(limit, len(problems))
        _require(
            list(task.problems(split, first)) == list(problems[:first]),
            f"problems({split!r}, {first}) is not the beginning of the whole split",
        )
        for problem in problems:
            _require(problem.id not in owner, f"id {problem.id!r} is in {split} and already in {owner.get(problem.id)}")
            owner[problem.id] = split


def _check_problem(problem: Problem) -> None:
    _require(bool(problem.prompt.strip()), f"{problem.id!r} has an empty prompt")
    try:
        same = json.loads(json.dumps(dict(problem.metadata))) == dict(problem.metadata)
    except (TypeError, ValueError):
        same = False
    _require(same, f"metadata of {problem.id!r} does not survive JSON; use plain lists, texts and numbers")


def _check_verifier(task: AbstractTask, problem: Problem) -> None:
    gold = task.gold_completion(problem)
    taken = _check_verdict(task, problem, gold)
    _require(taken.status == "right", f"gold completion of {problem.id!r} is {taken.status}: {gold!r}")
    _require(taken == task.score(problem, gold), f"two verdicts on the gold completion of {problem.id!r} differ")
    by_key = {taken.answer_key: taken.status}
    for text in (task.corrupt(problem, gold), " ".join(gold.split()[:-1]), ""):
        verdict = _check_verdict(task, problem, text)
        _require(verdict.status != "right", f"{problem.id!r}: the verifier takes the corrupted completion {text!r}")
        if verdict.answer_key is not None:
            known = by_key.setdefault(verdict.answer_key, verdict.status)
            _require(
                known == verdict.status,
                f"{problem.id!r}: answer_key {verdict.answer_key!r} is both {known} and {verdict.status}; "
                "give an answer whose derivation fails a key of its own",
            )
    (rewards,) = score_rollouts(task, [problem], [gold, ""], 2).rewards_PG.tolist()
    _require(
        rewards[0] > rewards[1], f"{problem.id!r}: the gold completion earns {rewards[0]}, an empty one {rewards[1]}"
    )


def _check_verdict(task: AbstractTask, problem: Problem, text: str) -> Verdict:
    shown = text[:60]
    try:
        verdict = task.score(problem, text)
    except Exception as error:
        raise AssertionError(f"{task.name}: score raised {type(error).__name__} on {shown!r}: {error}") from error
    low, high = task.reward_range
    reward: Any = verdict.reward
    number = isinstance(reward, int | float) and math.isfinite(reward) and low <= reward <= high
    _require(number, f"reward {reward!r} for {shown!r} is not a number in {low}..{high}")
    _require(verdict.status in ("right", "wrong", "unparsed"), f"status {verdict.status!r} for {shown!r}")
    keyless = (verdict.answer_key is None) == (verdict.status == "unparsed")
    _require(keyless, f"status {verdict.status} with answer_key {verdict.answer_key!r} for {shown!r}")
    return verdict


def _check_reading(task: AbstractTask, problem: Problem, text: str) -> None:
    """Trace and answer span, which a task may leave out, are read from any text without an exception."""
    shown = text[:60]
    try:
        trace, span = task.trace(problem, text), task.answer_span(problem, text)
    except Exception as error:
        raise AssertionError(f"{task.name}: reading {shown!r} raised {type(error).__name__}: {error}") from error
    if trace is not None:
        texts = (*trace.equations, trace.signature or "")
        _require(all(isinstance(part, str) for part in texts), f"the trace of {shown!r} does not hold texts: {trace}")
    if span is not None:
        _require(0 <= span[0] < span[1] <= len(text), f"answer_span {span} lies outside {shown!r}")


def _check_words(task: AbstractTask, problem: Problem, words: set[str]) -> None:
    missing = sorted(set(_words(task, problem)) - words)
    _require(not missing, f"words of {problem.id!r} are not in the vocabulary: {', '.join(missing[:10])}")


def _words(task: AbstractTask, problem: Problem) -> Iterator[str]:
    yield from problem.prompt.split()
    yield from task.gold_completion(problem).split()


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
