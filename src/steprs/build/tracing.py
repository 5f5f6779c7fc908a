"""Keeps the first rollouts of an evaluation for the viewer, with the advantages that a run's schedule gives them."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..config import RunConfig
from ..errors import ConfigError
from ..estimators.base import EMPTY, Estimator
from ..estimators.stepwise import StepRSGRPO
from ..evaluation.rollout_traces import rollout_traces
from ..policies.base import Policy
from ..randomness import row_keys
from ..schedules import ConstantSchedule
from ..states import denoising_progress
from ..tasks.base import AbstractTask
from ..training.batch import merged, weigh
from ..training.folder import RunFolder
from ..training.settings import LoopSettings
from ..types import Problem, Rewards, Trajectory
from .objects import build_estimator, described, loop_settings

PROBLEMS, SAMPLES = 12, 16


class TraceRecorder:
    """Give it to `evaluate` as `observe`; `save` then writes the rollouts of the first problems.

    Advantages are those of an update made of the evaluation's groups: schedule, control, loss weights and coordinate
    of the run, without RMS matching, whose factor belongs to a whole update. A group of one has none.
    """

    def __init__(
        self,
        policy: Policy,
        estimator: Estimator,
        settings: LoopSettings,
        *,
        head: dict[str, Any],
        problems: int,
        samples: int,
    ) -> None:
        """Nothing recorded yet; `trace_recorder` fills in what a run used."""
        self._policy, self._estimator, self._settings = policy, estimator, settings
        self._problems, self._samples = problems, samples
        self._head = head
        self._entries: list[dict[str, Any]] = []

    def __call__(self, problems: Sequence[Problem], trajectory: Trajectory, rewards: Rewards) -> None:
        """Keep what is still wanted of a batch."""
        wanted = min(len(problems), self._problems - len(self._entries))
        if wanted <= 0:
            return
        options = self._settings.advantage
        rows = torch.arange(wanted * trajectory.group_size, device=trajectory.completion_ids_BL.device)
        # Progress and advantage are defined on the merged order of states; what is shown is the order as decoded.
        decoded, rewards = trajectory.rows(rows), _first(rewards, wanted, len(rows)).to(rows.device)
        states = merged(decoded, self._settings.loss.shrinkage)
        group = trajectory.group_size
        advantages_BL = None
        # An estimator that looks at more than a group, or at what only training collects, has nothing to show here.
        estimator = self._estimator
        alone = not estimator.requires() and estimator.spec.coupling == "group"
        if alone and group >= max(2, estimator.smallest_group()):
            keys_B = row_keys(self._settings.seed, "mask-noise", 0, rows // group, rows % group)
            weighting = weigh(states, rewards, estimator, EMPTY, self._settings, None, row_keys_B=keys_B)
            advantages_BL = weighting.advantages.values_PGL.flatten(0, 1)
        self._head["coordinate"] = options.coordinate
        if options.coordinate == "auto":
            self._head["coordinate"] = "step" if trajectory.steps_fixed else "mask"
        self._entries += rollout_traces(
            self._policy, problems[:wanted], decoded, rewards.verdicts,
            progress_BL=denoising_progress(states, options.coordinate, options.scope),
            advantages_BL=advantages_BL, samples=self._samples,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """The content of `traces.json`."""
        return {**self._head, "problems": self._entries}

    def save(self, path: str | Path) -> Path:
        """Write `traces.json`; the file appears whole or not at all."""
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(file.name + ".part")
        part.write_text(json.dumps(self.to_json(), allow_nan=False), encoding="utf-8")
        os.replace(part, file)
        return file


def trace_recorder(
    config: RunConfig,
    policy: Policy,
    task: AbstractTask,
    *,
    label: str,
    folder: str | Path | None = None,
    problems: int = PROBLEMS,
    samples: int = SAMPLES,
) -> TraceRecorder:
    """A recorder with the schedule of a run, or with plain centred advantages for a policy that no run made.

    Args:
        config: resolved settings of the run (or, for a base policy, of the runs that start from it).
        policy: that is evaluated.
        task: that it is evaluated on.
        label: of the arm, for the viewer.
        folder: the run, whose frozen scale and matched constant are read; None gives every coefficient 0.
        problems: the first so many problems are kept.
        samples: the first so many rollouts of each.

    Raises:
        ConfigError: the run's scale is calibrated and its folder holds no calibration.
    """
    settings = loop_settings(config)
    estimator = _frozen_estimator(config, folder)
    advantage = dataclasses.replace(settings.advantage, rms_match=None)
    head = {
        "task": task.name,
        "policy": config.policy.path,
        "label": label,
        "schedule": described(estimator),
        "coordinate": advantage.coordinate,
    }
    return TraceRecorder(
        policy, estimator, dataclasses.replace(settings, advantage=advantage),
        head=head, problems=problems, samples=samples,
    )  # fmt: skip


def _frozen_estimator(config: RunConfig, folder: str | Path | None) -> Estimator:
    """The estimator that a run trained with."""
    if folder is None:
        return StepRSGRPO()
    run = RunFolder(folder)
    made = build_estimator(config, 0.0)
    if not isinstance(made, StepRSGRPO):
        return made
    if made.control == "constant" and (matched := run.read_json("control.json")):
        return dataclasses.replace(made, schedule=ConstantSchedule(float(matched["constant"])), control="full")
    if config.risk.scale != "calibrated":
        return build_estimator(config, float(config.risk.scale))
    frozen = run.read_json("calibration.json")
    if frozen is None:
        raise ConfigError(
            f"{run.path} has risk.scale=calibrated but no calibration.json, so its schedule is not known; "
            "evaluate without traces, or give the scale: risk.scale=NUMBER"
        )
    return build_estimator(config, float(frozen["scale"]))


def _first(rewards: Rewards, groups: int, rows: int) -> Rewards:
    return dataclasses.replace(
        rewards,
        rewards_PG=rewards.rewards_PG[:groups],
        valid_PG=rewards.valid_PG[:groups],
        verdicts=rewards.verdicts[:rows],
    )
