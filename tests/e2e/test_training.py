"""The loop on the shipped policy: what other trainers got wrong, each as a run."""

import dataclasses
import itertools
import json
import math
import re

import pytest
import torch
from safetensors.torch import load_file
from support import records, same_weights, small_config, weights, without_seconds

from steprs import build
from steprs.errors import ConfigError, DependencyError, NonFiniteError, RewardError, RunFolderError, TaskError
from steprs.policies.loading import load_policy
from steprs.tasks.countdown import CountdownTask
from steprs.training import objective
from steprs.types import Verdict


def trained(folder):
    """Records of the updates that had a group with both kinds of answers."""
    return [record for record in records(folder) if not record["skipped"]]


def run(tmp_path, *overrides, name="run"):
    return build.train(small_config(*overrides), output=tmp_path / name)


def test_two_runs_with_one_seed_are_bitwise_equal(tmp_path):
    one, two = run(tmp_path, name="one"), run(tmp_path, name="two")
    assert without_seconds(records(one)) == without_seconds(records(two))
    assert same_weights(weights(one, 3), weights(two, 3))
    other = run(tmp_path, "seed=12", name="other")
    assert not same_weights(weights(one, 3), weights(other, 3))


def test_kl_with_one_inner_update_trains_and_starts_at_zero(tmp_path):
    folder = run(tmp_path, "loss.kl_coef=0.04", "train.learning_rate=0.001")
    kl = [record["kl/mean"] for record in records(folder)]
    assert kl[0] == pytest.approx(0.0, abs=1e-9)
    assert all(value >= 0 for value in kl)
    assert kl[2] > 1e-6


def test_the_ratio_is_between_two_scoring_forwards(tmp_path):
    """The second scoring of unmoved weights: 1 for every token, whatever the rollout's temperature and truncation."""
    decoding = ("sampler.temperature=0.7", "sampler.top_p=0.9", "loss.inner_updates=2")
    still = run(tmp_path, *decoding, "train.learning_rate=0", "train.token_budget=130", name="still")
    assert trained(still)
    for record in trained(still):
        assert record["ratio/max"] == pytest.approx(1.0, abs=1e-6)
        assert record["ratio/mean"] == pytest.approx(1.0, abs=1e-6)
        assert record["logprob_gap/max"] < 1e-3
    moved = run(tmp_path, *decoding, "train.learning_rate=0.001", name="moved")
    assert all(record["ratio/max"] > 1.0 for record in trained(moved))


def test_rows_by_progress_are_the_means_apart(tmp_path):
    for record in trained(run(tmp_path, "loss.inner_updates=2", "train.learning_rate=0.001")):
        tokens = record["tokens_by_progress"]
        assert sum(tokens) == record["tokens/scored"]
        for row, mean in (("entropy", "entropy"), ("ratio", "ratio/mean"), ("clip_frac", "ratio/clip_frac")):
            parts = zip(record[f"{row}_by_progress"], tokens, strict=True)
            assert sum(v * n for v, n in parts if n) / sum(tokens) == pytest.approx(record[mean], abs=1e-9), row
        # The schedule is linear from 1.5 to 0, so a bin's mean coefficient lies between those of its edges.
        for row in record["risk_coef_grid"]:
            assert all(1.5 * (0.8 - i / 5) <= v <= 1.5 * (1 - i / 5) for i, v in enumerate(row) if v is not None)


class AllWrong(CountdownTask):
    def score(self, problem, completion):
        return Verdict(reward=0.0, status="unparsed")


CALLS = itertools.count()


class OneNaN(CountdownTask):
    """The very first rollout has a reward that is not a number."""

    def score(self, problem, completion):
        verdict = super().score(problem, completion)
        return Verdict(reward=math.nan, status="unparsed") if next(CALLS) == 0 else verdict


@pytest.fixture
def one_nan(monkeypatch):
    monkeypatch.setitem(globals(), "CALLS", itertools.count())
    monkeypatch.setattr("steprs.build.runs.build_task", lambda config: OneNaN())


def test_updates_without_signal_are_skipped_counted_and_said_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("steprs.build.runs.build_task", lambda config: AllWrong())
    folder = run(tmp_path, "train.weight_decay=0.5")
    assert [record["skipped"] for record in records(folder)] == [1.0, 1.0, 1.0]
    assert capsys.readouterr().out.count("was skipped") == 1
    assert same_weights(weights(folder, 1), weights(folder, 3))


def test_a_reward_that_is_no_number_names_the_problem(tmp_path, one_nan):
    first = CountdownTask().problems("train")
    with pytest.raises(RewardError) as caught:
        run(tmp_path)
    assert any(problem.id in str(caught.value) for problem in first)


def test_a_reward_that_is_no_number_is_masked_when_configured(tmp_path, one_nan):
    folder = run(tmp_path, "task.bad_rewards=mask")
    assert [record["rewards/masked"] for record in records(folder)] == [1.0, 0.0, 0.0]
    assert all(math.isfinite(record["loss/policy"]) for record in records(folder) if not record["skipped"])


def test_group_of_one_is_refused_by_its_setting(tmp_path):
    with pytest.raises(ConfigError, match=r"train\.group_size is 1"):
        run(tmp_path, "train.group_size=1")


def test_the_split_into_micro_batches_does_not_change_the_run(tmp_path):
    big = run(tmp_path, "train.token_budget=100000", name="big")
    small = run(tmp_path, "train.token_budget=130", name="small")
    assert [r["forwards"] for r in records(big)] != [r["forwards"] for r in records(small)]
    for one, other in zip(records(big), records(small), strict=True):
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4)
        assert one["loss/policy"] == pytest.approx(other["loss/policy"], abs=1e-6)


def test_dead_groups_stay_in_the_mean_only_when_counted(tmp_path):
    counted = records(run(tmp_path, "train.updates=1", name="counted"))[0]
    apart = records(run(tmp_path, "train.updates=1", "loss.count_dead_groups=false", name="apart"))[0]
    share_alive = 1 - counted["groups/dead"]
    assert 0 < share_alive < 1, "the seed must give both kinds of groups"
    # Fixed-length completions: each group holds the same number of tokens, so the means differ by the live share.
    assert counted["grad_norm"] == pytest.approx(apart["grad_norm"] * share_alive, rel=1e-5)


def test_argmax_groups_are_said_once(tmp_path):
    with pytest.warns(UserWarning, match="distinct") as caught:
        run(tmp_path, "sampler.temperature=0.0", "train.updates=2")
    assert sum("distinct" in str(warning.message) for warning in caught) == 1


class LongPrompt(CountdownTask):
    """The second training problem has one word more than the others."""

    def problems(self, split, limit=None):
        found = list(super().problems(split, limit))
        if split == "train":
            found[1] = dataclasses.replace(found[1], prompt=found[1].prompt + " 1")
        return found


def test_overlong_prompts_are_named_or_dropped_everywhere_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("steprs.build.runs.build_task", lambda config: LongPrompt())
    long = LongPrompt().problems("train")[1].id
    with pytest.raises(TaskError, match=re.escape(long)):
        run(tmp_path, "task.max_prompt_tokens=5", name="named")
    folder = run(tmp_path, "task.max_prompt_tokens=5", "task.overlong_prompts=drop", "train.updates=1", name="dropped")
    assert json.loads((folder / "dropped.json").read_text()) == {"train": [long], "dev": []}
    assert records(folder)[0]["reward/mean"] >= 0


def test_dead_groups_get_exactly_no_policy_gradient_even_where_kl_scores_them(tmp_path, monkeypatch):
    class AlmostEqual(CountdownTask):
        def score(self, problem, completion):
            return Verdict(reward=next(rewards), status="wrong", answer_key="0")

        @property
        def binary(self):
            return False

    rewards = itertools.cycle([0.1 + 0.2, 0.3])
    monkeypatch.setattr("steprs.build.runs.build_task", lambda config: AlmostEqual())
    folder = run(tmp_path, "loss.kl_coef=0.04", "train.updates=1", "risk.base=standardised")
    (record,) = records(folder)
    assert record["groups/dead"] == 1.0
    assert record["loss/policy"] == 0.0
    assert record["grad_norm"] == pytest.approx(0.0, abs=1e-9)  # KL to itself has its minimum here


def test_best_checkpoint_is_kept_and_a_run_without_progress_stops_early(tmp_path, monkeypatch):
    # A rate of 0 never improves, so the evaluation before the first update stays the best.
    settings = (
        "train.learning_rate=0",
        "train.eval_every=1",
        "train.patience=2",
        "train.updates=6",
        "train.keep_last=1",
    )
    folder = run(tmp_path, *settings)
    result = json.loads((folder / "result.json").read_text())
    assert (result["status"], result["stopped_early"], result["updates"], result["best_update"]) == (
        "finished",
        True,
        2,
        0,
    )
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["update-000000", "update-000002"]
    assert build.evaluate(folder, overrides=["eval.problems=2"]).policy.endswith("update-000000")


def test_trackers_go_on_after_a_resume(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from test_resume import stop_after

    stop_after(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "train.trackers=[tensorboard]")
    monkeypatch.undo()
    build.train(None, resume=True, output=tmp_path / "run")
    files = [EventAccumulator(str(file)).Reload() for file in (tmp_path / "run").rglob("events.out.tfevents*")]
    steps = [e.step for file in files if "reward/mean" in file.Tags()["scalars"] for e in file.Scalars("reward/mean")]
    assert sorted(steps) == [1, 2, 3]


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path):
    run(tmp_path, "train.updates=1")
    with pytest.raises(RunFolderError, match="--resume"):
        run(tmp_path)


def test_a_tracker_that_is_not_installed_is_an_error_with_the_install_command(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DependencyError, match=r"pip install 'steprs\[wandb\]'"):
        run(tmp_path, "train.trackers=[wandb]")


def test_tensorboard_receives_the_metrics(tmp_path):
    pytest.importorskip("tensorboard")
    folder = run(tmp_path, "train.trackers=[tensorboard]", "train.updates=2")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    files = [EventAccumulator(str(file)).Reload() for file in folder.rglob("events.out.tfevents*")]
    (events,) = [file for file in files if "reward/mean" in file.Tags()["scalars"]]
    logged = [event.value for event in events.Scalars("reward/mean")]
    assert logged == pytest.approx([record["reward/mean"] for record in records(folder)])


def test_a_log_probability_that_is_nan_stops_at_once_and_is_named(tmp_path, monkeypatch):
    honest = objective.score_batch
    calls = itertools.count()

    def one_nan(policy, trajectory, scoring):
        scores = honest(policy, trajectory, scoring)
        if next(calls) == 1:
            logprobs_N = scores.logprobs_N.clone()
            logprobs_N[5] = math.nan
            return dataclasses.replace(scores, logprobs_N=logprobs_N)
        return scores

    monkeypatch.setattr(objective, "score_batch", one_nan)
    with pytest.raises(NonFiniteError) as caught:
        run(tmp_path, "train.token_budget=100000")
    said = str(caught.value)
    assert re.search(r"update 2: logprobs_BL of the scoring forward is nan at rollout \d+, position \d+", said)
    assert "All weights are finite; the last checkpoint is intact" in said
    assert all(weight.isfinite().all() for weight in weights(tmp_path / "run", 1).values())


def test_a_weight_that_is_nan_stops_at_once_and_is_named(tmp_path):
    policy = load_policy("tiny")
    with torch.no_grad():
        policy.backbone.layers[2].mlp.down_proj.weight[3, 5] = math.nan
    policy.save(tmp_path / "broken")
    with pytest.raises(NonFiniteError, match=r"update 1: .*layers\.2\.mlp\.down_proj\.weight"):
        run(tmp_path, f"policy.path={tmp_path / 'broken'}")
    assert not list((tmp_path / "run" / "checkpoints").glob("update-000001*"))


def test_lora_trains_adapters_only_and_uses_the_base_as_reference(tmp_path):
    pytest.importorskip("peft")
    folder = run(tmp_path, "policy.lora={rank: 4}", "loss.kl_coef=0.01", "train.learning_rate=0.01")
    kl = [record["kl/mean"] for record in records(folder)]
    assert kl[0] == pytest.approx(0.0, abs=1e-9)
    assert kl[2] > 1e-6
    base = load_policy("tiny")
    trained = load_policy(folder / "checkpoints" / "update-000003")
    assert torch.equal(base.backbone.embed_tokens.weight, trained.backbone.embed_tokens.weight)
    query = trained.backbone.layers[0].self_attn.q_proj
    assert torch.equal(base.backbone.layers[0].self_attn.q_proj.weight, query.base_layer.weight)
    assert query.get_delta_weight("default").any()


@pytest.mark.parametrize(
    "overrides",
    [
        ("loss.kind=policy-gradient", "loss.aggregation=state-mean"),
        ("loss.logprobs=one-step", "loss.aggregation=sequence-mean"),
        ("loss.logprobs=coupled",),
        ("loss.states_per_rollout=2",),
        ("loss.shrinkage=2",),
        ("risk.control=flat", "risk.rms_match=batch"),
        ("risk.control=shuffle-token",),
        ("risk.base=standardised", "risk.coordinate=mask"),
        ("policy.path=tiny-full", "sampler.unmasking=random"),
        ("policy.path=tiny-full", "loss.states_per_rollout=3"),
        ("policy.gradient_checkpointing=true",),
    ],
)
def test_every_kind_of_run_moves_the_policy_and_stays_finite(tmp_path, overrides):
    # Sixteen rollouts a prompt, so that the weaker full-attention policy has groups with both kinds of answers too.
    folder = run(tmp_path, *overrides, "train.updates=2", "train.group_size=16")
    base = load_policy("tiny-full" if any("tiny-full" in word for word in overrides) else "tiny")
    base.save(tmp_path / "base")
    assert not same_weights(load_file(tmp_path / "base" / "model.safetensors"), weights(folder, 2))
    assert trained(folder), "the seed must give a group with both kinds of answers"
    for record in trained(folder):
        assert all(math.isfinite(value) for value in record.values() if isinstance(value, float))
        assert record["grad_norm"] > 0
