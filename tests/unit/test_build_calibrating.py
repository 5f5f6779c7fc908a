"""`steprs calibrate`: every rule beside the one that is used, and a frozen scale that only its own settings may use."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from steprs import build
from steprs.build.calibrating import check_frozen, measured_with, rule_estimates
from steprs.calibration import calibrate_risk
from steprs.cli.app import app
from steprs.config import RunConfig, load_config
from steprs.errors import ConfigError
from steprs.evaluation.capability import Capability

RATES = (0.0, 0.25, 0.25, 0.5, 0.75, 0.0, 0.125, 1.0)


def capability(rates=RATES, low=0.2, high=0.5):
    ids = tuple(map(str, range(len(rates))))
    pooled = float(np.mean(rates))
    return Capability(
        pass_rate=pooled, low=low, high=high, pass_rates=tuple(rates), ids=ids, samples=8, decoding={}, seed=0
    )


def config(*overrides):
    return load_config(None, list(overrides), model=RunConfig)


def test_each_rule_is_the_rule_at_the_pooled_rate_and_at_the_ends_of_its_interval():
    found = rule_estimates(capability(), config())
    for rule in ("halve-failure", "odds", "log-inverse", "max-scale", "crossover"):
        estimate = found[rule]
        assert estimate.value == calibrate_risk(float(np.mean(RATES)), rule)
        assert (estimate.low, estimate.high) == (calibrate_risk(0.5, rule), calibrate_risk(0.2, rule))
    neutral = found["mass-neutral"]
    assert neutral.low <= neutral.value <= neutral.high and neutral.high > neutral.low


def test_inputs_and_clip_are_the_run_s():
    chosen = config("risk.calibration.rule=weight-cap", "risk.calibration.weight=3")
    assert build.chosen_rule(chosen) == "weight-cap(3)"
    assert rule_estimates(capability(), chosen)["weight-cap(3)"].value == calibrate_risk(0.1, "weight-cap", weight=3.0)
    clipped = rule_estimates(capability(), config("risk.calibration.clip=[1,1.05]"))["halve-failure"]
    assert (clipped.value, clipped.low, clipped.high) == (1.05, 1.05, 1.05)


def test_a_rule_without_a_solution_says_why_and_an_end_without_one_is_open():
    nothing = rule_estimates(capability((0.0, 0.0), 0.0, 0.0), config())
    assert "nothing was solved" in nothing["odds"] and "nothing to weigh" in nothing["mass-neutral"]
    easy = rule_estimates(capability((0.75, 1.0), 0.75, 1.0), config())["odds"]
    assert math.isnan(easy.low) and easy.value < easy.high == calibrate_risk(0.75, "odds")
    rare = rule_estimates(capability((0.0, 0.0, 0.25, 0.0), 0.0, 0.2), config())["mass-neutral"]
    assert math.isnan(rare.low) and math.isnan(rare.high), "some draws of prompts have no solution"
    few = rule_estimates(capability((0.0, 0.5), 0.0, 0.5), config())
    assert few["log-inverse"].value == math.log(4) and math.isnan(few["log-inverse"].high)


def test_share_of_groups_with_a_signal_by_counting_subsets():
    from itertools import combinations

    rights = [round(rate * 8) for rate in RATES]
    mixed = [
        np.mean([0 < sum(subset) < 3 for subset in combinations([1] * right + [0] * (8 - right), 3)])
        for right in rights
    ]
    assert capability().expected_signal(3) == pytest.approx(np.mean(mixed), abs=1e-12)
    larger = [1 - rate**16 - (1 - rate) ** 16 for rate in RATES]
    assert capability().expected_signal(16) == pytest.approx(np.mean(larger), abs=1e-12)
    assert capability().by_right_samples() == (2, 1, 2, 0, 1, 0, 1, 0, 1)


def test_a_calibration_serves_the_settings_it_was_measured_with(tmp_path):
    settings = config()
    frozen = {"measured_with": json.loads(json.dumps(measured_with(settings)))}
    check_frozen(frozen, settings, tmp_path)
    check_frozen(frozen, config("seed=5", "train.updates=3"), tmp_path)
    check_frozen({}, config("sampler.temperature=.5"), tmp_path)  # files of an earlier version say nothing
    with pytest.raises(ConfigError, match="measured with another sampler and calibration; calibrate again"):
        check_frozen(frozen, config("sampler.temperature=.5", "risk.calibration.samples=4"), tmp_path)


SMALL = ("risk.calibration.prompts=6", "risk.calibration.samples=4", "train.prompts_per_update=2")
SHORT = ("train.group_size=4", "train.updates=1", "train.eval_every=0")


def test_a_run_starts_from_what_the_command_froze(tmp_path):
    folder = tmp_path / "run"
    said = CliRunner().invoke(app, ["calibrate", "train/countdown", *SMALL, *SHORT, "-o", str(folder)])
    assert said.exit_code == 0, said.output
    frozen = json.loads((folder / "calibration.json").read_text())
    assert f"scale {frozen['scale']:.4g} by halve-failure" in said.output and "<- used" in said.output
    # Another number shows that the run reads the file and does not measure again.
    (folder / "calibration.json").write_text(json.dumps({**frozen, "scale": 2.5}))
    settings = load_config(None, [*SMALL, *SHORT], model=RunConfig)
    other = settings.model_copy(update={"sampler": settings.sampler.model_copy(update={"temperature": 0.5})})
    with pytest.raises(ConfigError, match="measured with another sampler"):
        build.train(other, output=folder)
    build.train(settings, output=folder)
    grid = json.loads((folder / "metrics.jsonl").read_text())["scale_grid"]
    assert json.loads((folder / "calibration.json").read_text())["scale"] == 2.5
    shown = [cell for row in grid for cell in row if cell is not None]
    assert not shown or max(shown) <= math.expm1(2.5) / 2.5 + 1e-6
    with pytest.raises(ConfigError, match="holds a run that has begun"):
        build.calibrate(settings, output=folder)
