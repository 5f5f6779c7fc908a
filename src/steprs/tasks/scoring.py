"""From completions to rewards: verdicts checked, thresholded where the task is binary, never repaired in silence."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import torch

from ..errors import ArgumentError, RewardError, unknown_name
from ..types import Problem, Rewards, Verdict
from .base import AbstractTask

BadRewards = Literal["error", "mask"]
# A binary task's score counts as 1 from here on; partial credit (0.01 for a wrong answer) is 0.
THRESHOLD = 1.0 - 1e-9


def score_rollouts(
    task: AbstractTask,
    problems: Sequence[Problem],
    completions: Sequence[str],
    group_size: int,
    *,
    bad_rewards: BadRewards = "error",
) -> Rewards:
    """Score P groups of G completions.

    Args:
        task: gives the verdicts; its `binary` says whether scores are thresholded to 0 and 1.
        problems: P problems.
        completions: B = P * G texts, the G of a problem together.
        group_size: G.
        bad_rewards: what to do with a score that is None, NaN, infinite or outside the task's range: "error", or
            "mask" to leave the sample out (reward 0, `valid_PG` false).

    Raises:
        RewardError: a score is not a finite number in the task's range; names the problem and the completion's place.
        ArgumentError: the number of completions is not P * G.

    >>> from steprs.tasks import get_task
    >>> task = get_task("countdown")
    >>> problem = task.problems("test", 1)[0]
    >>> score_rollouts(task, [problem], [task.gold_completion(problem), "1 + 1 2"], 2).rewards_PG.tolist()
    [[1.0, 0.0]]
    """
    if group_size < 1 or len(completions) != len(problems) * group_size:
        raise ArgumentError(
            f"{len(completions)} completions for {len(problems)} problems of group_size {group_size}; "
            f"give {len(problems) * group_size}"
        )
    if bad_rewards not in ("error", "mask"):
        raise ArgumentError(unknown_name("bad_rewards", bad_rewards, ("error", "mask")))
    verdicts, valid = [], []
    for row, completion in enumerate(completions):
        problem = problems[row // group_size]
        verdict = task.score(problem, completion)
        fault = _fault(verdict.reward, task)
        if fault and bad_rewards == "error":
            raise RewardError(
                f"task {task.name} gave the reward {verdict.reward!r} ({fault}) for problem {problem.id!r}, rollout "
                f"{row % group_size} of its group; mend the verifier, or set task.bad_rewards=mask to leave it out"
            )
        valid.append(not fault)
        verdicts.append(dataclasses.replace(verdict, reward=_reward(verdict, task, valid=not fault)))
    shape = (len(problems), group_size)
    rewards = torch.tensor([verdict.reward for verdict in verdicts], dtype=torch.float64)
    return Rewards(
        rewards_PG=rewards.reshape(shape),
        valid_PG=torch.tensor(valid, dtype=torch.bool).reshape(shape),
        verdicts=tuple(verdicts),
        binary=task.binary,
    )


def _reward(verdict: Verdict, task: AbstractTask, *, valid: bool) -> float:
    if not valid:
        return 0.0
    return float(verdict.reward >= THRESHOLD) if task.binary else float(verdict.reward)


def _fault(reward: Any, task: AbstractTask) -> str:
    """Why a reward cannot be used, or an empty text."""
    if reward is None:
        return "not a number"
    try:
        value = float(reward)
    except (TypeError, ValueError):
        return "not a number"
    if not math.isfinite(value):
        return "not finite"
    low, high = task.reward_range
    # A hair of room for sums of parts, as in 0.1 + 0.2.
    slack = 1e-9 * max(1.0, high - low)
    return "" if low - slack <= value <= high + slack else f"outside the task's range {low}..{high}"
