"""`rescore`: a run's stored rollouts weighed again under other risk settings. Nothing is trained or decoded."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator
from safetensors.torch import save
from torch import Tensor

from ..config import RunConfig, load_config
from ..controls import matched_constant
from ..errors import ConfigError, RunFolderError
from ..estimators.base import EMPTY, Estimator, Memory
from ..estimators.baselines import Centred
from ..estimators.stepwise import StepRSGRPO
from ..evaluation.capability import Capability
from ..schedules import AbstractSchedule, ConstantSchedule
from ..state_keys import state_keys
from ..training.batch import Collected, Weighting, token_weights, weigh, weighting_metrics
from ..training.distributed import make_accelerator
from ..training.folder import RunFolder
from ..training.records import GRID_EDGES
from ..training.settings import LoopSettings
from ..training.stored import StoredRollouts, read_rollouts
from .calibrating import CALIBRATION, scale_of
from .checks import check
from .control import measured_pass_rate
from .objects import build_estimator, described, loop_settings

ALLOWED = (
    "risk", "advantage.estimator", "advantage.options", "advantage.normalise", "loss.aggregation",
    "loss.count_dead_groups",
)  # fmt: skip
# What can be had from stored rollouts beside rewards.
KEPT = {"state_keys_PGS"}
GRIDS = ("mass_grid", "scale_grid", "risk_coef_grid")
# A cell without tokens has no mass, but no mean either.
_EMPTY = {"mass_grid": 0.0, "scale_grid": None, "risk_coef_grid": None}


@dataclass(frozen=True, kw_only=True, slots=True)
class RescoredUpdate:
    """One update's advantages under the new settings, and how they compare.

    Attributes:
        update: the optimiser's update the rollouts were made for.
        metrics: the keys that the run logs of its advantages (`advantage/abs_mean`, `mass_grid`, ...), and
            `rms_ratio`, RMS of the advantages over that of centred ones; `correlation` with the run's own advantages
            over all tokens that count; `relative_change`, the norm of the difference over the norm of the run's own.
            Norms and RMS take tokens with the loss's weights. None where there is nothing to divide by.
        tensors: `advantages_BL`, `own_advantages_BL` (the run's), `risk_coef_BL`, `progress_BL`, `weights_BL` and
            `rewards_B`, row by row as stored.
    """

    update: int
    metrics: dict[str, Any]
    tensors: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescored:
    """Stored rollouts of a run under other risk settings.

    Attributes:
        run: the run folder.
        schedule, control: what was applied, described; another estimator stands where its schedule would.
        own_schedule, own_control: what the run trained with.
        settings: the risk settings applied.
        updates: one an update whose rollouts were kept.
    """

    run: str
    schedule: str
    control: str
    own_schedule: str
    own_control: str
    settings: dict[str, Any]
    updates: tuple[RescoredUpdate, ...]

    def mean(self) -> dict[str, Any]:
        """Means over the updates that have a value; a cell without tokens counts as no mass."""
        every = [update.metrics for update in self.updates]
        return {
            name: _mean_grid([metrics[name] for metrics in every], _EMPTY[name])
            if name in GRIDS
            else _mean([metrics[name] for metrics in every])
            for name in every[0]
        }

    def to_json(self) -> dict[str, Any]:
        """Everything but the tensors."""
        plain = {field: getattr(self, field) for field in self.__slots__ if field != "updates"}
        updates = [{"update": update.update, **update.metrics} for update in self.updates]
        return {**plain, "grid_edges": list(GRID_EDGES), "mean": self.mean(), "updates": updates}

    def save(self, folder: str | Path) -> None:
        """Write `rescore.json` and `advantages.safetensors`, tensors named `update-000020.advantages_BL`, ..."""
        place = RunFolder(folder)
        named = {
            f"update-{update.update:06d}.{name}": tensor.contiguous()
            for update in self.updates
            for name, tensor in update.tensors.items()
        }
        place.write_bytes("advantages.safetensors", save(named, metadata={"steprs": json.dumps(self.settings)}))
        place.write_json("rescore.json", self.to_json())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Weigher:
    """An estimator and the settings it is applied with."""

    estimator: Estimator
    settings: LoopSettings
    accelerator: Accelerator

    def weigh(self, stored: StoredRollouts, memory: Memory) -> Weighting:
        collected = {}
        if "state_keys_PGS" in self.estimator.requires():
            shape = stored.rewards.rewards_PG.shape
            collected["state_keys_PGS"] = state_keys(stored.trajectory).view(*shape, -1)
        return weigh(
            stored.trajectory, stored.rewards, self.estimator, memory, self.settings, self.accelerator,
            row_keys_B=stored.row_keys_B, update=stored.update, collected=Collected(fields=collected),
        )  # fmt: skip

    def centred(self) -> _Weigher:
        """Centred GRPO on the same tokens, without matching."""
        advantage = dataclasses.replace(self.settings.advantage, rms_match=None, normalise="none")
        return dataclasses.replace(
            self, estimator=Centred(), settings=dataclasses.replace(self.settings, advantage=advantage)
        )


def rescore(run: str | Path, overrides: Sequence[str] = (), *, schedule: AbstractSchedule | None = None) -> Rescored:
    """Weigh a run's stored rollouts with any schedule, control or other estimator.

    With the run's own settings the result is what the run logged, to the last bit on the same kind of machine.

    Args:
        run: a run folder trained with `train.store_rollouts`.
        overrides: settings of `risk` and `advantage` laid over the run's own, e.g. `risk.schedule.end=1`,
            `risk.control=flat` or `advantage.estimator=maxrl` (estimators that need more than rollouts and rewards
            are refused: it was not kept; one with a history begins at the first stored update); also
            `loss.aggregation` and `loss.count_dead_groups`, which weigh tokens. A calibrated scale follows the stored
            measurement, also under another `risk.calibration.rule`. The control `constant` is matched on the first
            stored update.
        schedule: takes the place of `risk.schedule`, with absolute coefficients.

    Raises:
        RunFolderError: no run, or one that kept no rollouts.
        ConfigError: an override of something else, or settings that contradict each other.

    Example: `rescore("runs/x", ["risk.control=flat"]).mean()["rms_ratio"]`.
    """
    folder = RunFolder(run)
    content = folder.read_config()
    if content is None:
        raise RunFolderError(f"{run} holds no config.json, so it is no run; give a folder that `steprs train` wrote")
    _refuse_foreign(overrides)
    if schedule is not None and (
        twice := [word for word in overrides if word.startswith(("risk.schedule", "risk.scale"))]
    ):
        raise ConfigError(f"a schedule and {twice[0]} were both given; one of them decides, leave the other out")
    own_config, config = load_config(content, model=RunConfig), load_config(content, overrides, model=RunConfig)
    check(config)
    idle = [word for word in overrides if word.startswith("risk.") and not word.startswith("risk.rms_match")]
    if idle and config.advantage.estimator != StepRSGRPO.spec.name:
        raise ConfigError(
            f"{idle[0]} changes nothing: estimator {config.advantage.estimator!r} takes its settings from "
            "advantage.options. Add advantage.estimator=steprs-grpo advantage.options=null, or leave it out"
        )
    accelerator = make_accelerator()
    first = next(read_rollouts(run), None)
    if first is None:
        raise RunFolderError(f"{run}/rollouts holds no whole update: a process's share is missing everywhere")
    own = _weigher(own_config, own_config, folder, accelerator, first, None)
    new = own if config == own_config and schedule is None else (
        _weigher(config, own_config, folder, accelerator, first, schedule)
    )  # fmt: skip
    if lacking := _lacking(new.estimator, first):
        raise ConfigError(
            f"estimator {new.estimator.spec.name!r} needs {lacking[0]}, which is not kept with stored rollouts; "
            "rescore with an estimator that looks at rewards alone, e.g. advantage.estimator=centred"
        )
    own_name = described(own.estimator)
    if _lacking(own.estimator, first):
        own, own_name = own.centred(), f"centred GRPO in place of {own_name}, which needs what was not kept"
    memory, own_memory, updates = new.estimator.initial_memory(), own.estimator.initial_memory(), []
    for stored in read_rollouts(run):
        made, before = new.weigh(stored, memory), own.weigh(stored, own_memory)
        memory, own_memory = made.memory, before.memory
        updates.append(_rescored(new, made, before, stored))
    return Rescored(
        run=str(run),
        schedule=described(new.estimator),
        control=config.risk.control,
        own_schedule=own_name,
        own_control=own_config.risk.control,
        settings={
            **config.risk.model_dump(mode="json"),
            **({} if schedule is None else {"schedule": schedule.describe(), "scale": None}),
            "advantage": config.advantage.model_dump(mode="json"),
        },
        updates=tuple(updates),
    )


def _lacking(estimator: Estimator, stored: StoredRollouts) -> list[str]:
    """What the estimator needs and stored rollouts cannot give; those that revise tokens are kept without states."""
    kept = KEPT if stored.trajectory.decoding.kind != "revise" else set()
    return sorted(set(estimator.requires()) - kept)


def _refuse_foreign(overrides: Sequence[str]) -> None:
    for override in overrides:
        key = override.partition("=")[0].strip()
        if not any(key == allowed or key.startswith(f"{allowed}.") for allowed in ALLOWED):
            raise ConfigError(
                f"{key} belongs to how the rollouts were made; rescore changes {', '.join(ALLOWED)} alone"
            )
        if key in ("risk.calibration.prompts", "risk.calibration.samples"):
            raise ConfigError(f"{key} would ask for another measurement; rescore uses the one that the run made")


def _weigher(
    config: RunConfig,
    own: RunConfig,
    folder: RunFolder,
    accelerator: Accelerator,
    first: StoredRollouts,
    schedule: AbstractSchedule | None,
) -> _Weigher:
    """What `build.train` would train with under these settings, the control `constant` already solved."""
    estimator = build_estimator(config, _scale(config, own, folder) if schedule is None else 0.0)
    settings = loop_settings(config)
    if not isinstance(estimator, StepRSGRPO):
        if schedule is not None:
            raise ConfigError(f"a schedule was given, but estimator {estimator.spec.name!r} has none; leave it out")
        return _Weigher(estimator=estimator, settings=settings, accelerator=accelerator)
    if schedule is not None:
        estimator = dataclasses.replace(estimator, schedule=schedule)
    if config.risk.control == "constant":
        estimator = dataclasses.replace(
            estimator, schedule=_matched(estimator, settings, config, own, folder, first, schedule), control="full"
        )
    return _Weigher(estimator=estimator, settings=settings, accelerator=accelerator)


def _matched(
    estimator: StepRSGRPO,
    settings: LoopSettings,
    config: RunConfig,
    own: RunConfig,
    folder: RunFolder,
    first: StoredRollouts,
    schedule: AbstractSchedule | None,
) -> ConstantSchedule:
    """The constant that the control `constant` trains with: frozen by the run, or matched on its first rollouts."""
    frozen = folder.read_json("control.json")
    if frozen is not None and config == own and schedule is None:
        return ConstantSchedule(float(frozen["constant"]))
    tokens = token_weights(first.trajectory, first.rewards, settings)
    rate = config.risk.reference_pass_rate or measured_pass_rate(folder)
    return ConstantSchedule(matched_constant(estimator.schedule, tokens.progress_BL, tokens.weights_BL, rate))


def _scale(config: RunConfig, own: RunConfig, folder: RunFolder) -> float:
    """The number that endpoints are multiples of: given, frozen by the run, or by another rule of its measurement."""
    if config.advantage.estimator != StepRSGRPO.spec.name:
        return 0.0
    if config.risk.scale != "calibrated":
        return float(config.risk.scale)
    frozen = folder.read_json(CALIBRATION)
    if frozen is None:
        raise ConfigError(f"risk.scale is 'calibrated', but {folder.path} measured nothing; give risk.scale=NUMBER")
    if config.risk.calibration == own.risk.calibration:
        return float(frozen["scale"])
    return scale_of(Capability.from_json(frozen["capability"]), config)


def _rescored(new: _Weigher, made: Weighting, before: Weighting, stored: StoredRollouts) -> RescoredUpdate:
    centred = new.centred()
    metrics = weighting_metrics(
        stored.trajectory, stored.rewards, made, new.settings.advantage, new.accelerator
    )  # fmt: skip
    shape, weights_BL = made.tokens.weights_BL.shape, made.tokens.weights_BL.double()
    values_BL, own_BL, centred_BL = (
        found.advantages.values_PGL.reshape(shape).double() for found in (made, before, centred.weigh(stored, EMPTY))
    )
    metrics["rms_ratio"] = _ratio(_norm(values_BL, weights_BL), _norm(centred_BL, weights_BL))
    metrics["relative_change"] = _ratio(_norm(values_BL - own_BL, weights_BL), _norm(own_BL, weights_BL))
    metrics["correlation"] = _correlation(values_BL[weights_BL > 0], own_BL[weights_BL > 0])
    tensors = {
        "advantages_BL": made.advantages.values_PGL.reshape(shape),
        "own_advantages_BL": before.advantages.values_PGL.reshape(shape),
        "risk_coef_BL": made.advantages.risk_coef_PGL.reshape(shape),
        "progress_BL": made.tokens.progress_BL,
        "weights_BL": made.tokens.weights_BL,
        "rewards_B": stored.rewards.rewards_PG.flatten(),
    }
    return RescoredUpdate(update=stored.update, metrics=metrics, tensors=tensors)


def _norm(values_BL: Tensor, weights_BL: Tensor) -> float:
    return float((weights_BL * values_BL.square()).sum().sqrt())


def _ratio(over: float, under: float) -> float | None:
    return over / under if under else None


def _correlation(values_N: Tensor, others_N: Tensor) -> float | None:
    """Pearson's correlation over tokens; None where one side does not vary."""
    a_N, b_N = values_N - values_N.mean(), others_N - others_N.mean()
    return _ratio(float((a_N * b_N).sum()), float(a_N.norm() * b_N.norm())) if len(values_N) else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _mean_grid(grids: Sequence[list[list[float | None]]], empty: float | None) -> list[list[float | None]]:
    """Cell by cell; `empty` stands for a cell without tokens."""
    return [
        [_mean([empty if value is None else value for value in cells]) for cells in zip(*rows, strict=True)]
        for rows in zip(*grids, strict=True)
    ]
