"""Training with other estimators: what they remember and collect survives a stop, two processes, and a resume."""

import json
from contextlib import contextmanager

import pytest
from support import records, same_weights, small_config, weights, without_seconds
from test_two_processes import launch

from steprs import build
from steprs.errors import ConfigError
from steprs.estimators import ESTIMATORS, get_estimator
from steprs.training import loop
from steprs.training.interrupt import RunInterrupted


def named(name: str) -> str:
    return f"advantage.estimator={name}"


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in ("steprs-grpo", "centred")])
def test_every_estimator_trains(tmp_path, name):
    run = build.train(small_config(named(name), "train.updates=2"), output=tmp_path / "run")
    logged = records(run)
    assert len(logged) == 2
    assert json.loads((run / "config.json").read_text())["risk"]["control"] == "full"
    assert any(record["advantage/nonzero_frac"] > 0 for record in logged)
    estimator = get_estimator(name)
    collected = {key for record in logged for key in record if key.startswith("collect/")}
    if "state_rewards_PGS" in estimator.requires():
        assert {"collect/extra_forwards", "collect/verifier_calls"} <= collected
    if "reference_rewards_PM" in estimator.requires():
        assert "collect/reference_rollouts" in collected
        assert (run / "reference_rewards.jsonl").exists()


@pytest.mark.parametrize("looks", [1, 3, 4])
def test_an_estimators_memory_survives_a_stop(tmp_path, monkeypatch, looks):
    config = small_config(named("ha-dw"), "loss.inner_updates=2", "train.updates=3")
    straight = build.train(config, output=tmp_path / "straight")

    class StopAt:
        left = looks

        @property
        def requested(self):
            StopAt.left -= 1
            return StopAt.left == 0

    @contextmanager
    def pretend():
        yield StopAt()

    monkeypatch.setattr(loop, "stop_request", pretend)
    with pytest.raises(RunInterrupted):
        build.train(config, output=tmp_path / "stopped")
    monkeypatch.undo()
    resumed = build.train(None, resume=True, output=tmp_path / "stopped")
    assert same_weights(weights(straight, 3), weights(resumed, 3))
    assert without_seconds(records(straight)) == without_seconds(records(resumed))
    fresh = build.train(small_config("advantage.estimator=centred", "train.updates=3"), output=tmp_path / "centred")
    assert not same_weights(weights(straight, 3), weights(fresh, 3))


def test_reference_rewards_are_drawn_once_and_do_not_depend_on_when(tmp_path):
    run = build.train(small_config(named("pvpo"), "train.updates=2"), output=tmp_path / "run")
    kept = records(run, "reference_rewards.jsonl")
    assert len({record["id"] for record in kept}) == len(kept) == 8
    # The same prompts in another order of updates: another seed of the order would change them, so only the batch does.
    whole = small_config(named("pvpo"), "train.updates=1", "train.prompts_per_update=8")
    other = build.train(whole, output=tmp_path / "other")
    again = {record["id"]: record["rewards"] for record in records(other, "reference_rewards.jsonl")}
    assert again == {record["id"]: record["rewards"] for record in kept}


@pytest.mark.parametrize("name", ["a-grae", "ha-dw"])
def test_two_processes_give_the_advantages_of_one(tmp_path, name):
    settings = (named(name), "train.updates=3", "train.prompts_per_update=5", "train.token_budget=400")
    one = build.train(small_config(*settings), output=tmp_path / "one")
    done = launch(tmp_path / "two", *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    for alone, shared in zip(records(one), records(tmp_path / "two"), strict=True):
        for key in ("reward/mean", "advantage/abs_mean", "advantage/rms", "advantage/nonzero_frac"):
            assert shared[key] == pytest.approx(alone[key], abs=1e-9), key


def test_settings_of_the_risk_transformation_are_refused_for_others(tmp_path):
    with pytest.raises(ConfigError, match=r"risk\.control.*maxrl"):
        build.train(small_config(named("maxrl"), "risk.control=flat"), output=tmp_path / "run")
    with pytest.raises(ConfigError, match="Did you mean 'maxrl'"):
        build.train(small_config(named("maxlr")), output=tmp_path / "run")
    with pytest.raises(ConfigError, match="section `risk`"):
        build.train(small_config("advantage.options={gamma: 1}"), output=tmp_path / "run")


def test_filtered_importance_sampling_trains_and_says_what_it_left_out(tmp_path):
    settings = ("loss.kind=f-tis", "loss.inner_updates=2", "loss.divergence_limit=1e-6", "train.learning_rate=0.003")
    run = build.train(small_config(*settings), output=tmp_path / "run")
    assert any(record["f_tis/dropped"] > 0 for record in records(run))


def test_few_steps_are_rewarded(tmp_path):
    settings = (
        "advantage.steps_used.kind=step-pruner",
        "sampler.unmasking=confidence_threshold",
        "sampler.threshold=0.5",
    )
    run = build.train(small_config(*settings, "risk.scale=0"), output=tmp_path / "run")
    plain = build.train(small_config(*settings[1:], "risk.scale=0"), output=tmp_path / "plain")
    shaped, given = records(run)[0], records(plain)[0]
    assert shaped["reward/pass_rate"] == given["reward/pass_rate"]
    assert shaped["reward/mean"] < given["reward/mean"]
    assert shaped["risk/binary_exact"] == 0.0


def test_a_group_too_small_for_the_estimator_is_refused_before_the_first_rollout(tmp_path):
    config = small_config(named("pkpo"), "advantage.options={k: 16}")
    for refused in (lambda: build.plan_text(config), lambda: build.train(config, output=tmp_path / "run")):
        with pytest.raises(ConfigError, match=r"pkpo.*groups of 16 or more; train.group_size is 8"):
            refused()


def test_the_plan_names_the_estimator_and_what_it_costs():
    plan = build.plan_text(small_config(named("egspo-sa")))
    assert "egspo-sa(" in plan and "in place of StepRS-GRPO" in plan and "extra forwards:" in plan
