"""`calibrate`: how often the policy solves training prompts, and the risk scale that a rule makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..calibration import calibrate_risk
from ..config import RunConfig
from ..errors import CalibrationError, ConfigError
from ..evaluation.capability import Capability, measure_capability
from ..evaluation.statistics import Estimate
from ..policies.base import Policy
from ..progress import track
from ..rollout.collect import Sampler
from ..tasks.base import AbstractTask
from ..training.folder import RunFolder
from ..types import Problem
from .objects import build_policy, build_sampler, build_task, resolve

CALIBRATION = "calibration.json"
CAPS = (2.0, 4.0, 8.0)
RESAMPLES = 200


def calibrate(config: RunConfig, *, output: str | Path | None = None) -> dict[str, Any]:
    """Measure capability and freeze the risk scale, as a run with `risk.scale: calibrated` would.

    Args:
        config: its policy is measured with its training sampler on its first training prompts.
        output: a run folder; `calibration.json` is written there and a run in that folder uses it.

    Returns:
        `rule`, `scale`, `capability` (pass rates of prompts), and `measured_with`, the settings it holds for.

    Raises:
        CalibrationError: the rule has no solution at the measured pass rate.
        ConfigError: the folder holds a run that has begun with another calibration.

    Example: `calibrate(load_config(None, model=RunConfig))["scale"]`.
    """
    folder = None if output is None else RunFolder(output)
    if folder is not None and folder.read_config() is not None:
        raise ConfigError(f"{folder.path} holds a run that has begun; its calibration is frozen. Give another folder")
    policy, task = build_policy(config.policy), build_task(config.task)
    config = resolve(config, policy, task)
    problems = task.problems("train", config.risk.calibration.prompts)
    with track("calibrating", len(problems)) as bar:
        frozen = measured_scale(
            config, policy, task, build_sampler(config.sampler, policy), problems, progress=bar.advance
        )
    if folder is not None:
        folder.write_json(CALIBRATION, frozen)
    return frozen


def measured_scale(
    config: RunConfig,
    policy: Policy,
    task: AbstractTask,
    sampler: Sampler,
    problems: Sequence[Problem],
    *,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """`calibrate` with objects that were already built; `problems` beyond the configured number are left alone."""
    settings = config.risk.calibration
    capability = measure_capability(
        policy, task, sampler, problems[: settings.prompts],
        samples=settings.samples, seed=config.seed, max_rows=config.sampler.max_rows,
        max_prompt_tokens=config.task.max_prompt_tokens, overlong=config.task.overlong_prompts, progress=progress,
    )  # fmt: skip
    return {
        "rule": settings.rule,
        "scale": scale_of(capability, config),
        "capability": capability.to_json(),
        "measured_with": measured_with(config),
    }


def scale_of(capability: Capability, config: RunConfig) -> float:
    """The scale that the configured rule makes of a measured capability.

    Raises:
        CalibrationError: the rule has no solution at the measured pass rate.
    """
    return _coefficient(capability.pass_rates, config.risk.calibration.rule, **_inputs(config))


def measured_with(config: RunConfig) -> dict[str, Any]:
    """The settings that a calibration depends on. The seed is not one of them: studies share a calibration."""
    return {
        "policy": config.policy.path,
        "task": {"name": config.task.name, "options": dict(config.task.options)},
        "sampler": config.sampler.model_dump(mode="json", exclude={"max_rows"}),
        "calibration": config.risk.calibration.model_dump(mode="json"),
    }


def check_frozen(frozen: dict[str, Any], config: RunConfig, folder: Path) -> None:
    """Refuse a calibration that was measured with other settings than the run's.

    Raises:
        ConfigError: names the settings that differ.
    """
    asked, kept = measured_with(config), frozen.get("measured_with", {})
    differ = [name for name, value in asked.items() if kept.get(name, value) != value]
    if differ:
        raise ConfigError(
            f"{folder / CALIBRATION} was measured with another {' and '.join(differ)}; calibrate again with "
            "`steprs calibrate`, or delete the file and let the run measure"
        )


def rule_estimates(capability: Capability, config: RunConfig) -> dict[str, Estimate | str]:
    """What every rule makes of a measured capability, with a 95 % bootstrap interval over prompts.

    Rules that need an input show the configured one, else `weight-cap` some usual weights and `target` 1/2. A rule
    without a solution holds the reason.
    """
    settings = config.risk.calibration
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        rule: (rule, {}) for rule in ("halve-failure", "odds", "log-inverse", "max-scale", "crossover", "mass-neutral")
    }
    asked |= {f"weight-cap({cap:g})": ("weight-cap", {"weight": cap}) for cap in CAPS}
    asked |= {"target(0.5)": ("target", {"target": 0.5})}
    chosen = _label(settings.rule, settings.weight, settings.target)
    asked[chosen] = (settings.rule, _inputs(config))
    return {label: _estimate(capability, rule, inputs) for label, (rule, inputs) in asked.items()}


def chosen_rule(config: RunConfig) -> str:
    """The label in `rule_estimates` of the rule that the run uses."""
    settings = config.risk.calibration
    return _label(settings.rule, settings.weight, settings.target)


def _label(rule: str, weight: float | None, target: float | None) -> str:
    given = weight if weight is not None else target
    return rule if given is None else f"{rule}({given:g})"


def _inputs(config: RunConfig) -> dict[str, Any]:
    settings = config.risk.calibration
    clip: dict[str, Any] = {} if settings.clip == "rule" else {"clip": settings.clip}
    return {"target": settings.target, "weight": settings.weight, **clip}


def _coefficient(pass_rates: Sequence[float], rule: str, **inputs: Any) -> float:
    rates: Any = torch.tensor(pass_rates, dtype=torch.float64)
    return calibrate_risk(rates, rule, **inputs)  # type: ignore[arg-type]


def _estimate(capability: Capability, rule: str, inputs: dict[str, Any]) -> Estimate | str:
    try:
        value = _coefficient(capability.pass_rates, rule, **inputs)
    except CalibrationError as error:
        return str(error)
    if rule == "mass-neutral":  # a root for each draw of prompts
        rates = np.array(capability.pass_rates)
        drawn = np.random.default_rng(0).integers(len(rates), size=(RESAMPLES, len(rates)))
        found = [_solved(rates[row].tolist(), rule, inputs) for row in drawn]
        # A draw without a solution leaves the ends open; without those draws they would be too close.
        ends = np.quantile(found, [0.025, 0.975])
    else:  # every rule falls with the mean, so the ends of its interval are enough
        ends = np.array([_solved([rate], rule, inputs) for rate in (capability.high, capability.low)])
    count = len(capability.pass_rates)
    return Estimate(value=value, low=float(ends[0]), high=float(ends[1]), level=0.95, problems=count, seeds=1)


def _solved(rates: Sequence[float], rule: str, inputs: dict[str, Any]) -> float:
    """The coefficient, or NaN where the rule has none."""
    try:
        return _coefficient(rates, rule, **inputs)
    except CalibrationError:
        return math.nan
