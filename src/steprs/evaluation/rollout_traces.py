"""Rollouts as plain values that a page can play back: which token was revealed when, with what advantage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..policies.base import Policy
from ..types import Problem, Trajectory, Verdict

DIGITS = 4


def rollout_traces(
    policy: Policy,
    problems: Sequence[Problem],
    trajectory: Trajectory,
    verdicts: Sequence[Verdict],
    *,
    progress_BL: Tensor,
    advantages_BL: Tensor | None = None,
    samples: int = 16,
) -> list[dict[str, Any]]:
    """The entries of `problems` in a `traces.json`, one a problem.

    Args:
        policy: its tokenizer writes single tokens as text; the text is a model's and must be escaped where it is shown.
        problems: P of them.
        trajectory: B = P * n rollouts.
        verdicts: on them.
        progress_BL: denoising progress of each token.
        advantages_BL: of each token, within its group of n; None leaves them out.
        samples: rollouts kept of each problem, the first ones.

    Returns:
        JSON values. Lists of a rollout have one entry for each position up to and including the first end token;
        numbers are rounded to four decimals.
    """
    n = trajectory.group_size
    entries = []
    for number, problem in enumerate(problems):
        group = verdicts[number * n : (number + 1) * n]
        rows = range(number * n, number * n + min(n, samples))
        entries.append(
            {
                "id": problem.id,
                "prompt": problem.prompt,
                "answer": problem.answer,
                "pass_rate": round(sum(verdict.status == "right" for verdict in group) / n, DIGITS),
                "rollouts": [
                    _rollout(policy, trajectory, verdicts[row], row, progress_BL, advantages_BL) for row in rows
                ],
            }
        )
    return entries


def _rollout(
    policy: Policy,
    trajectory: Trajectory,
    verdict: Verdict,
    row: int,
    progress_BL: Tensor,
    advantages_BL: Tensor | None,
) -> dict[str, Any]:
    valid = trajectory.completion_mask_BL[row].nonzero().flatten()
    stop = int(valid[-1]) + 1 if len(valid) else 0
    ids = trajectory.completion_ids_BL[row, :stop].tolist()
    return {
        "tokens": [str(policy.tokenizer.decode([token])) for token in ids],
        "unmask_step": trajectory.unmask_step_BL[row, :stop].tolist(),
        "progress": _rounded(progress_BL[row, :stop]),
        "advantage": None if advantages_BL is None else _rounded(advantages_BL[row, :stop]),
        "entropy": _rounded(trajectory.entropies_BL[row, :stop]),
        "status": verdict.status,
        "answer_key": verdict.answer_key,
        "solution_key": verdict.solution_key,
    }


def _rounded(values_L: Tensor) -> list[float]:
    # + 0.0 turns -0.0 into 0.0
    return [round(value, DIGITS) + 0.0 for value in values_L.tolist()]
