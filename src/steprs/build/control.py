"""The `constant` control: one coefficient with the schedule's mass, solved on the first rollouts and then frozen."""

from __future__ import annotations

import dataclasses
from functools import partial

from accelerate import Accelerator

from ..controls import matched_constant
from ..errors import ConfigError
from ..estimators.stepwise import StepRSGRPO
from ..schedules import ConstantSchedule
from ..training import loop
from ..training.batch import token_weights
from ..training.distributed import sum_over_processes
from ..training.folder import RunFolder


def with_matched_constant(
    run: loop.Run, reference_pass_rate: float | None, folder: RunFolder, accelerator: Accelerator
) -> loop.Run:
    """The run with its schedule replaced by the matched constant, which is kept in `control.json`.

    Args:
        run: whose schedule is matched, under the tokens and loss weights of its first update.
        reference_pass_rate: p0; None takes the one measured for calibration.
        folder: keeps the number, so that a resumed run uses the same.
        accelerator: sums over its processes.

    Raises:
        ConfigError: no pass rate was given or measured.
        CalibrationError: no constant reaches the schedule's mass.
    """
    estimator = run.estimator
    assert isinstance(estimator, StepRSGRPO)
    frozen = folder.read_json("control.json")
    if frozen is None:
        rate = reference_pass_rate or measured_pass_rate(folder)
        trajectory, rewards, _, _ = loop.rollouts(run, accelerator, 1)
        tokens = token_weights(trajectory, rewards, run.settings)
        coefficient = matched_constant(
            estimator.schedule, tokens.progress_BL, tokens.weights_BL, rate,
            all_reduce=partial(sum_over_processes, accelerator=accelerator),
        )  # fmt: skip
        frozen = {"constant": coefficient, "reference_pass_rate": rate, "schedule": estimator.schedule.describe()}
        if accelerator.is_main_process:
            folder.write_json("control.json", frozen)
    matched = dataclasses.replace(estimator, schedule=ConstantSchedule(frozen["constant"]), control="full")
    return dataclasses.replace(run, estimator=matched)


def measured_pass_rate(folder: RunFolder) -> float:
    """p0 as the run measured it for calibration.

    Raises:
        ConfigError: it measured nothing.
    """
    calibration = folder.read_json("calibration.json")
    if calibration is None:
        raise ConfigError(
            "risk.control is 'constant'; give risk.reference_pass_rate, or measure it with risk.scale=calibrated"
        )
    return float(calibration["capability"]["pass_rate"])
