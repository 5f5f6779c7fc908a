"""`calibrate`: how often the policy solves training prompts, and the risk scale that a rule makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..calibration import calibrate_risk
from ..config import RunConfig
from ..evaluation.capability import measure_capability
from ..policies.base import Policy
from ..rollout.collect import Sampler
from ..tasks.base import AbstractTask
from ..types import Problem
from .objects import build_policy, build_sampler, build_task, resolve


def calibrate(config: RunConfig) -> dict[str, Any]:
    """What a run writes into its `calibration.json`: rule, scale, and the capability it was measured from.

    Args:
        config: its policy is measured with its training sampler on its first training prompts.

    Raises:
        CalibrationError: the rule has no solution at the measured pass rate.

    Example: `calibrate(load_config(None, model=RunConfig))["scale"]`.
    """
    policy, task = build_policy(config.policy), build_task(config.task)
    config = resolve(config, policy, task)
    problems = task.problems("train", config.risk.calibration.prompts)
    return measured_scale(config, policy, task, build_sampler(config.sampler, policy), problems)


def measured_scale(
    config: RunConfig, policy: Policy, task: AbstractTask, sampler: Sampler, problems: Sequence[Problem]
) -> dict[str, Any]:
    """`calibrate` with objects that were already built; `problems` beyond the configured number are left alone."""
    settings = config.risk.calibration
    capability = measure_capability(
        policy, task, sampler, problems[: settings.prompts],
        samples=settings.samples, seed=config.seed, max_rows=config.sampler.max_rows,
        max_prompt_tokens=config.task.max_prompt_tokens, overlong=config.task.overlong_prompts,
    )  # fmt: skip
    measured: Any = torch.tensor(capability.pass_rates) if settings.rule == "mass-neutral" else capability.pass_rate
    clip: Any = {} if settings.clip == "rule" else {"clip": settings.clip}
    scale = calibrate_risk(measured, settings.rule, target=settings.target, weight=settings.weight, **clip)
    return {"rule": settings.rule, "scale": scale, "capability": capability.to_json()}
