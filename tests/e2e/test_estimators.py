"""Training with other estimators: what they remember and collect survives a stop, two processes, and a resume."""

import dataclasses
import json
from contextlib import contextmanager

import pytest
import torch
from accelerate import Accelerator
from support import records, same_weights, small_config, weights, without_seconds
from test_two_processes import launch

from steprs import build
from steprs.build.checks import check
from steprs.errors import ConfigError
from steprs.estimators import ESTIMATORS, get_estimator
from steprs.tasks import get_task
from steprs.training import loop
from steprs.training.folder import RunFolder
from steprs.training.interrupt import RunInterrupted
from steprs.training.objective import plan_scoring, without_off_policy_rows

DYNAMIC = ("sampler.unmasking=confidence_threshold", "sampler.threshold=0.5")


def named(name: str) -> str:
    return f"advantage.estimator={name}"


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in ("steprs-grpo", "centred")])
def test_every_estimator_trains(tmp_path, name):
    run = build.train(small_config(named(name), "train.updates=2"), output=tmp_path / "run")
    logged = records(run)
    assert len(logged) == 2
    assert json.loads((run / "config.json").read_text())["advantage"]["estimator"] == name
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("loss.kind=f-tis", "loss.logprobs=one-step"), "f-tis.*use loss.logprobs=trace"),
        (("advantage.steps_used={kind: step-pruner}",), "always takes sampler.steps"),
        ((named("maxrl"), "advantage.normalise=group-std"), "maxrl.*advantage.normalise=none"),
        (("advantage.normalise=group-std",), "steprs-grpo.*advantage.normalise=none"),
        ((named("pvpo"), "advantage.normalise=group-std"), "pvpo.*advantage.normalise=none"),
        ((named("dvao"), "advantage.components={right: 1}"), "two or more"),
        ((named("dvao"), "advantage.components={right: 1, parsed: -1}"), "weights of 0 or more"),
        (
            (named("maxrl"), "advantage.steps_used={kind: step-grpo}", *DYNAMIC),
            "graded rewards, and estimator 'maxrl'",
        ),
        ((named("pvpo"), "advantage.steps_used={kind: step-grpo}", *DYNAMIC), "rewards that are not shaped"),
        (
            (
                named("bae"),
                "advantage.options={form: regions}",
                "policy.path=tiny-full",
                "advantage.components={ended: 1, right: 1}",
            ),
            "a completion has 1",
        ),
    ],
)
def test_what_would_be_fed_wrongly_is_refused_by_the_plan_and_by_the_run(tmp_path, settings, message):
    config = small_config(*settings)
    for refused in (lambda: build.plan_text(config), lambda: build.train(config, output=tmp_path / "run")):
        with pytest.raises(ConfigError, match=message):
            refused()


def test_a_resumed_run_is_not_another_for_what_its_file_leaves_out(tmp_path):
    settings = (named("pkpo"), "advantage.options={k: 3}")
    build.train(small_config(*settings, "train.updates=1"), output=tmp_path / "run")
    with pytest.raises(ConfigError, match="advantage.options.k: 3 in the folder, nothing now"):
        build.train(small_config(named("pkpo"), "train.updates=1"), output=tmp_path / "run", resume=True)


def test_a_reference_sample_without_reward_takes_the_mean_of_the_others(tmp_path, monkeypatch):
    countdown = type(get_task("countdown"))
    true_score = countdown.score

    def sometimes_nan(self, problem, completion):
        verdict = true_score(self, problem, completion)
        return dataclasses.replace(verdict, reward=float("nan")) if len(completion) % 3 == 0 else verdict

    monkeypatch.setattr(countdown, "score", sometimes_nan)
    run = build.train(small_config(named("pvpo"), "train.updates=1", "task.bad_rewards=mask"), output=tmp_path / "run")
    kept = [record["rewards"] for record in records(run, "reference_rewards.jsonl")]
    means = [value for rewards in kept for value in rewards if value not in (0.0, 1.0)]
    assert means, "some sample of the base policy was masked in a prompt with right and wrong ones"
    for rewards in kept:
        others = [value for value in rewards if value in (0.0, 1.0)]
        assert all(value == pytest.approx(sum(others) / len(others)) for value in rewards if value not in (0.0, 1.0))


def test_another_calibration_is_not_taken_for_reference_rewards(tmp_path):
    cold = small_config("sampler.temperature=0.2", "risk.scale=calibrated", "risk.calibration.prompts=8")
    build.calibrate(cold, output=tmp_path / "run")
    with pytest.raises(ConfigError, match="was measured with another"):
        build.train(small_config(named("pvpo"), "train.updates=1"), output=tmp_path / "run")


@pytest.mark.parametrize("states", [None, 1])
def test_the_filter_of_f_tis_looks_at_what_was_scored(tmp_path, states):
    """Rollouts said to be a nat a token likelier than they were are all far, however many states are scored."""
    config = small_config(
        "loss.kind=f-tis", f"loss.states_per_rollout={states or 'null'}", "loss.divergence_limit=0.5", "risk.scale=0"
    )
    run, _ = build.runs._objects(config, RunFolder(tmp_path), Accelerator(), None)
    batch, _ = loop.collect_batch(run, Accelerator(), 1, {})
    far = dataclasses.replace(
        batch.trajectory,
        sampling_logprobs_BL=batch.trajectory.sampling_logprobs_BL + batch.trajectory.completion_mask_BL,
    )
    batch = dataclasses.replace(batch, trajectory=far)
    plan = plan_scoring(batch, run.policy, run.settings.loss, run.settings.token_budget)
    kept_BL, dropped = without_off_policy_rows(run.policy, batch, plan, 0.5)
    losers = batch.active_B & (batch.advantages_BL.sum(1) < 0)
    assert dropped >= int(losers.sum()) > 0
    assert not kept_BL[losers].any() and torch.equal(kept_BL[~losers], batch.advantages_BL[~losers])


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


def test_canvases_reward_few_steps_only_where_they_may_end_early():
    settings = ("sampler.kind=revise", "advantage.steps_used={kind: step-pruner}", *DYNAMIC)
    with pytest.raises(ConfigError, match=r"sampler\.kind='revise'.*sampler\.stop_entropy"):
        check(small_config(*settings))
    check(small_config(*settings, "sampler.stop_entropy=0.1"))
