"""Whole runs on small checkpoints in the published layouts: train, stop, go on, evaluate, export."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from published import ALL_NAMES, LAYOUTS, random_tensors, write_checkpoint
from published_gemma import is_frozen
from safetensors.torch import load_file
from support import records, same_weights, small_config, weights, without_seconds

from steprs import build
from steprs.cli.app import main
from steprs.config import PretrainConfig, load_config
from steprs.errors import ConfigError, PolicyError, TaskError
from steprs.logprobs import trajectory_logprobs
from steprs.policies.converting import convert
from steprs.policies.loading import load_policy
from steprs.rollout.collect import collect
from steprs.tasks.countdown import CountdownTask
from steprs.training.interrupt import RunInterrupted
from steprs.types import Verdict

SMALL = (
    "train.updates=2", "train.prompts_per_update=2", "train.group_size=4",
    "sampler.length=8", "sampler.steps=8", "sampler.block_size=4",
)  # fmt: skip


class Parity(CountdownTask):
    """Random text is right half of the time, so that random weights have something to learn from."""

    def score(self, problem, completion):
        right = sum(map(ord, completion)) % 2 == 0
        return Verdict(reward=float(right), status="right" if right else "wrong", answer_key=completion)


@pytest.fixture(autouse=True)
def parity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steprs.build.runs.build_task", lambda config: Parity())


def config_for(folder: Path, *overrides: str):
    return small_config(f"policy.path={folder}", *SMALL, "train.learning_rate=0.01", *overrides)


@pytest.mark.parametrize("family", ALL_NAMES)
def test_two_updates_then_saved_and_loaded_in_the_published_layout(family: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "published", family)
    run = build.train(config_for(folder), output=tmp_path / "run")
    assert [record["skipped"] for record in records(run)] == [0.0, 0.0]
    checkpoint = run / "checkpoints" / "update-000002"
    trained, start = load_file(checkpoint / "model.safetensors"), random_tensors(LAYOUTS[family])
    assert trained.keys() == start.keys()
    frozen = {name for name in start if is_frozen(name) or name.endswith("expert_bias")}
    moved = {name for name in start if not torch.equal(trained[name], start[name])}
    assert moved == start.keys() - frozen, "two updates move every tensor that is trained"
    for name in ("config.json", "tokenizer.json", "generation_config.json", *LAYOUTS[family].extra):
        assert (checkpoint / name).read_bytes() == (folder / name).read_bytes()
    policy = load_policy(checkpoint)
    again = load_policy(policy.save(tmp_path / "again"))
    assert same_weights(load_file(tmp_path / "again" / "model.safetensors"), trained)
    ids = torch.tensor([[5, 9, 7, 2, 2, 11, 2, 2]])
    block = policy.block_layout(torch.ones(1, 4, dtype=torch.bool), 4)
    assert torch.equal(policy.logits(ids, block_BT=block), again.logits(ids, block_BT=block))
    result = build.evaluate(run, overrides=["eval.problems=2", "eval.samples=2", "eval.k=[1]"], checkpoint="last")
    assert result.policy.endswith("update-000002")


@pytest.mark.parametrize("family", ALL_NAMES)
def test_scoring_forwards_say_what_the_sampler_drew_from(family: str, tmp_path: Path) -> None:
    """Temperature and left padding included; the packed rows of shifted heads look up the row before."""
    policy = load_policy(write_checkpoint(tmp_path / "published", family))
    config = config_for(tmp_path / "published", "sampler.temperature=0.7")
    sampler = build.build_sampler(build.resolve(config, policy, Parity()).sampler, policy)
    problems = [dataclasses.replace(p, prompt=p.prompt + " 1" * i) for i, p in enumerate(Parity().problems("train", 3))]
    trajectory = collect(
        policy, sampler, problems, group_size=3, seed=0, purpose="train", update=1,
        prompt_index_P=torch.arange(3), max_prompt_tokens=64, max_rows=1024,
    )  # fmt: skip
    mask_BL = trajectory.completion_mask_BL
    assert not (trajectory.completion_ids_BL == policy.mask_token_id).any()
    for budget in (24, 4096):
        scored_BL = trajectory_logprobs(policy, trajectory, token_budget=budget).detach()
        gap_BL = (scored_BL - trajectory.sampling_logprobs_BL).abs() * mask_BL
        assert float(gap_BL.max()) < 1e-4
    assert float(trajectory.sampling_logprobs_BL[mask_BL].std()) > 0.5, "the weights must say something"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("loss.logprobs=one-step", r"set loss\.logprobs=trace and loss\.shrinkage=1"),
        ("loss.shrinkage=2", r"set loss\.logprobs=trace and loss\.shrinkage=1"),
        ("policy.dtype=bfloat16", r"policy\.dtype is bfloat16.*the ratio would not be 1"),
        ("sampler.kind=block", "attention is canvas; use 'revise'"),
    ],
)
def test_revised_rollouts_are_not_trained_on_where_the_ratio_is_not_one(
    override: str, message: str, tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path / "published", "diffusion-gemma")
    with pytest.raises(ConfigError, match=message):
        build.train(config_for(folder, override), output=tmp_path / "run")


@pytest.mark.parametrize("name", ["egspo-sa", "state-anchor"])
def test_estimators_over_masked_states_are_refused_for_revised_rollouts(name: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "published", "diffusion-gemma")
    with pytest.raises(ConfigError, match=f"'{name}' needs .* revises whole canvases"):
        build.train(config_for(folder, f"advantage.estimator={name}"), output=tmp_path / "run")


def test_the_number_format_is_chosen_for_revised_rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steprs.build.plan.build_task", lambda config: Parity())
    folder = write_checkpoint(tmp_path / "published", "diffusion-gemma")
    assert "computes in float32" in build.plan_text(config_for(folder, "policy.dtype=auto"))


def test_several_inner_updates_on_revised_rollouts_go_on_bitwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of the revisions is part of a checkpoint between two inner updates."""
    from test_resume import stop_after

    folder = write_checkpoint(tmp_path / "published", "diffusion-gemma")
    decoding = ("sampler.unmasking=entropy_bound", "sampler.threshold=0.5", "sampler.temperature=0.8")
    config = config_for(folder, "loss.inner_updates=2", "sampler.final_temperature=0.4", *decoding)
    straight = build.train(config, output=tmp_path / "straight")
    stop_after(monkeypatch, 1)
    with pytest.raises(RunInterrupted):
        build.train(config, output=tmp_path / "stopped")
    monkeypatch.undo()
    monkeypatch.setattr("steprs.build.runs.build_task", lambda config: Parity())
    resumed = build.train(None, resume=True, output=tmp_path / "stopped")
    assert same_weights(weights(straight, 2), weights(resumed, 2))
    assert without_seconds(records(straight)) == without_seconds(records(resumed))
    for record in records(straight):
        assert record["logprob_gap/max"] < 1e-3 and record["rollout/selection_exact"] == 0.0


def test_a_stopped_run_of_a_published_policy_goes_on_bitwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from test_resume import stop_after

    folder = write_checkpoint(tmp_path / "published", "sdar")
    straight = build.train(config_for(folder), output=tmp_path / "straight")
    stop_after(monkeypatch, 1)
    with pytest.raises(RunInterrupted):
        build.train(config_for(folder), output=tmp_path / "stopped")
    monkeypatch.undo()
    monkeypatch.setattr("steprs.build.runs.build_task", lambda config: Parity())
    resumed = build.train(None, resume=True, output=tmp_path / "stopped")
    assert same_weights(weights(straight, 2), weights(resumed, 2))
    assert without_seconds(records(straight)) == without_seconds(records(resumed))


def test_export_writes_weights_adapters_or_their_sum(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    folder = write_checkpoint(tmp_path / "published", "llada")
    run = build.train(config_for(folder, "policy.lora={rank: 2}", "policy.weights=bfloat16"), output=tmp_path / "run")
    checkpoint = run / "checkpoints" / "update-000002"
    assert not list(checkpoint.glob("model*.safetensors")), "a checkpoint of adapters holds no copy of the model"
    alone = build.export(run, tmp_path / "alone", checkpoint="last")
    merged = build.export(checkpoint, tmp_path / "merged", merge=True)
    assert {path.name for path in alone.glob("*.safetensors")} == {"adapter_model.safetensors"}
    assert not (alone / "trainer").exists() and not (merged / "manifest.json").exists()
    assert load_file(merged / "model.safetensors").keys() == random_tensors(LAYOUTS["llada"]).keys()
    ids = torch.tensor([[5, 9, 7, 2, 2, 11, 2, 2]])
    torch.testing.assert_close(load_policy(alone).logits(ids), load_policy(merged).logits(ids), atol=1e-4, rtol=0)
    half = build.export(merged, tmp_path / "half", dtype="bfloat16")
    assert {tensor.dtype for tensor in load_file(half / "model.safetensors").values()} == {torch.bfloat16}
    with pytest.raises(PolicyError, match="is not empty"):
        build.export(merged, half)


def test_convert_and_export_as_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_checkpoint(tmp_path / "causal", "a2d", edit=make_causal)
    converted, written = tmp_path / "converted", tmp_path / "written"
    for line in (
        ["convert", str(tmp_path / "causal"), "-o", str(converted), "--no-shift", "--block-size", "4"],
        ["export", str(converted), "-o", str(written), "--dtype", "bfloat16"],
    ):
        with pytest.raises(SystemExit) as done:
            main(line)
        assert done.value.code == 0
    said = capsys.readouterr().out
    assert "mask token: <|mask|> (id 2, spare)" in said and "blocks of 4, head: own token" in said
    assert f"steprs pretrain pretrain/adapt policy.path={converted}" in said and f"weights: {written}" in said
    policy = load_policy(written)
    assert (policy.family, policy.block_size, policy.shifted, policy.mask_token_id) == ("a2d", 4, False, 2)


def test_half_precision_masters_are_refused_for_training(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy\.weights is 'bfloat16'.*policy\.lora"):
        build.train(small_config("policy.weights=bfloat16"), output=tmp_path / "run")


def test_a_converted_model_is_adapted_and_trained(tmp_path: Path) -> None:
    """Causal checkpoint -> convert -> pretrain -> train, with the shift."""
    causal = write_checkpoint(tmp_path / "causal", "a2d", edit=make_causal)
    converted = convert(causal, tmp_path / "converted").folder
    adapt = ("updates=40", "batch_size=16", "learning_rate=0.01", "length=16", f"policy.path={converted}")
    recipe = load_config({"policy": {}, "muon_learning_rate": None, "warmup_updates": 5}, adapt, model=PretrainConfig)
    folder = build.pretrain(recipe, output=tmp_path / "adapted")
    losses = [json.loads(line)["loss"] for line in (folder / "pretrain_log.jsonl").read_text().splitlines()]
    assert losses[-1] < 3.4, "a uniform guess over 64 rows costs log 64 = 4.2 nats"
    policy = load_policy(folder)
    assert (policy.family, policy.shifted) == ("a2d", True)
    assert dict(policy.decoding_defaults) == {"length": 16, "steps": 16, "block_size": 16, "task": "countdown"}
    again = load_config(folder / "pretrain.yaml", model=PretrainConfig)
    assert again.policy is not None and again.policy.path == str(converted)
    run = build.train(small_config(f"policy.path={folder}", *SMALL[:3]), output=tmp_path / "run")
    assert records(run)[-1]["update"] == 2


def make_causal(config: dict) -> None:  # type: ignore[type-arg]
    del config["mask_token_id"]
    config.update(architectures=["Qwen3ForCausalLM"], model_type="qwen3")


def test_adapting_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hidden_size, layers: the policy that is adapted has its own"):
        load_config({"policy": {}, "layers": 2, "hidden_size": 64}, model=PretrainConfig)
    sdar = write_checkpoint(tmp_path / "sdar", "sdar")
    recipe = {"policy": {"path": str(sdar)}, "muon_learning_rate": None, "updates": 1}
    with pytest.raises(ConfigError, match="'sdar' counts blocks from the first token"):
        build.pretrain(load_config(recipe, model=PretrainConfig), output=tmp_path / "out")
    tiny = {"policy": {"path": "tiny"}, "length": 8, "updates": 1}
    with pytest.raises(TaskError, match="tokens, completions have 8; set `length`"):
        build.pretrain(load_config(tiny, model=PretrainConfig), output=tmp_path / "out")
