"""Rewards of the base policy on training prompts, drawn once for each prompt and kept in the run folder.

They are a baseline that does not depend on the sampled group (PVPO, AAPO). What calibration measured with as many
samples is taken over, so that nothing is drawn twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from accelerate import Accelerator
from torch import Tensor

from ..errors import RewardError
from ..rollout.collect import collect, decode_completions
from ..tasks.base import unit_hash
from ..tasks.scoring import score_rollouts
from ..types import Problem
from .folder import RunFolder

if TYPE_CHECKING:
    from .loop import Run

NAME = "reference_rewards.jsonl"


def reference_rewards(
    run: Run, problems: Sequence[Problem], folder: RunFolder | None, accelerator: Accelerator
) -> tuple[Tensor, dict[str, float]]:
    """float64 [P, M], and how many `reference_rollouts` were made for it now.

    A prompt's rewards depend on the run's seed and the prompt alone, not on when or where they are drawn.
    """
    samples = run.settings.advantage.reference_samples
    known = {} if folder is None else _known(folder, samples, accelerator, binary=run.task.binary)
    missing = [problem for problem in problems if problem.id not in known]
    if missing:
        drawn = _draw(run, missing, samples)
        for problem, rewards in zip(missing, drawn, strict=True):
            known[problem.id] = rewards
            if folder is not None:
                folder.append_jsonl(_name(accelerator), {"id": problem.id, "rewards": rewards})
    rows = [known[problem.id] for problem in problems]
    found_PM = torch.tensor(rows, dtype=torch.float64, device=run.policy.device)
    return found_PM, {"reference_rollouts": float(len(missing) * samples)}


def _name(accelerator: Accelerator) -> str:
    """Each process writes a file of its own; a prompt that two of them met has the same rewards in both."""
    return NAME if accelerator.process_index == 0 else f"reference_rewards-{accelerator.process_index}.jsonl"


def _known(folder: RunFolder, samples: int, accelerator: Accelerator, *, binary: bool) -> dict[str, list[float]]:
    known: dict[str, list[float]] = {}
    calibration = folder.read_json("calibration.json")
    if binary and calibration is not None and calibration["capability"]["samples"] == samples:
        measured = calibration["capability"]
        for name, rate in zip(measured["ids"], measured["pass_rates"], strict=True):
            right = round(rate * samples)
            known[name] = [1.0] * right + [0.0] * (samples - right)
    records = folder.read_jsonl(_name(accelerator))
    return known | {record["id"]: record["rewards"] for record in records if len(record["rewards"]) == samples}


def _draw(run: Run, problems: Sequence[Problem], samples: int) -> list[list[float]]:
    policy = run.policy if run.reference is None else run.reference
    policy.train(False)
    # Numbers of the prompts themselves, so that the same prompt draws the same wherever it stands.
    index_P = torch.tensor([int(unit_hash(problem.id, "reference") * 2**53) for problem in problems])
    with policy.no_adapter() if run.reference is None else nullcontext():
        trajectory = collect(
            policy, run.sampler, problems,
            group_size=samples, seed=run.settings.seed, purpose="reference", update=0, prompt_index_P=index_P,
            max_prompt_tokens=run.settings.max_prompt_tokens, max_rows=run.settings.max_rows,
        )  # fmt: skip
    texts = decode_completions(policy, trajectory)
    rewards = score_rollouts(run.task, problems, texts, samples, bad_rewards=run.settings.bad_rewards)
    counts_P1 = rewards.valid_PG.sum(1, keepdim=True)
    if not bool((counts_P1 > 0).all()):
        nobody = problems[int((counts_P1 == 0).flatten().nonzero()[0])]
        raise RewardError(
            f"none of {samples} rollouts of the base policy on problem {nobody.id!r} could be scored, so it has no "
            "reference reward; mend the verifier, or use an estimator without one"
        )
    # A sample without a reward takes the mean of the others: what counts is the mean over the prompt.
    mean_P1 = (rewards.rewards_PG * rewards.valid_PG).sum(1, keepdim=True) / counts_P1
    found: list[list[float]] = torch.where(rewards.valid_PG, rewards.rewards_PG, mean_P1).tolist()
    return found
