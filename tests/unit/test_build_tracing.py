"""What the viewer gets: rollouts as they were decoded, with the advantages that the run's schedule gives them."""

from __future__ import annotations

import json
import math

import pytest

from steprs import build
from steprs.build.objects import build_policy, build_sampler, build_task, resolve
from steprs.config import RunConfig, load_config
from steprs.errors import ConfigError
from steprs.evaluation.evaluate import evaluate
from steprs.states import denoising_progress

SETTINGS = ("risk.schedule={kind: linear, start: 1, end: 0}", "seed=4")


def recorded(tmp_path, *overrides, folder=None, problems=3, samples=8, keep=2, **options):
    """A recorder after an evaluation, and everything that the evaluation showed it."""
    config = load_config(None, [*SETTINGS, *overrides], model=RunConfig)
    policy, task = build_policy(config.policy), build_task(config.task)
    config = resolve(config, policy, task)
    recorder = build.trace_recorder(config, policy, task, label="arm", folder=folder, problems=keep, **options)
    seen = []

    def observe(*batch):
        seen.append(batch)
        recorder(*batch)

    evaluate(
        policy, task, build_sampler(config.sampler, policy), task.problems("test", problems),
        samples=samples, k=(1,), seed=config.seed, max_rows=2 * samples, observe=observe,
    )  # fmt: skip
    return policy, recorder, seen


def test_rollouts_are_those_of_the_evaluation(tmp_path):
    policy, recorder, seen = recorded(tmp_path, "risk.scale=1.5", folder=tmp_path, samples=8)
    content = recorder.to_json()
    problems, trajectory, rewards = seen[0]
    assert {key: content[key] for key in ("task", "policy", "label", "schedule", "coordinate")} == {
        "task": "countdown", "policy": "tiny", "label": "arm", "schedule": "linear(start=1.5, end=0)",
        "coordinate": "step",
    }  # fmt: skip
    assert [p["id"] for p in content["problems"]] == [p.id for p in problems], "two of three problems are kept"
    first, rollout = content["problems"][0], content["problems"][1]["rollouts"][3]
    assert (first["prompt"], first["answer"]) == (problems[0].prompt, problems[0].answer)
    row, verdict = 8 + 3, rewards.verdicts[8 + 3]
    assert rollout["tokens"] == policy.tokenizer.decode(trajectory.completion_ids_BL[row]).split()
    assert rollout["unmask_step"] == trajectory.unmask_step_BL[row].tolist()
    assert rollout["progress"] == [round(step / 11, 4) for step in rollout["unmask_step"]]
    assert rollout["entropy"] == pytest.approx(trajectory.entropies_BL[row].tolist(), abs=5e-5)
    assert (rollout["status"], rollout["answer_key"]) == (verdict.status, verdict.answer_key)
    assert rollout["solution_key"] == verdict.solution_key


def test_advantages_are_the_schedule_s(tmp_path):
    _, recorder, seen = recorded(tmp_path, "risk.scale=2", folder=tmp_path, keep=3)
    rates = []
    for entry in recorder.to_json()["problems"]:
        p = entry["pass_rate"]
        rates.append(p)
        for rollout in entry["rollouts"]:
            centred = float(rollout["status"] == "right") - p
            for tau, advantage in zip(rollout["progress"], rollout["advantage"], strict=True):
                b = 2 * (1 - tau)
                scale = math.expm1(b) / (b * (1 + math.expm1(b) * p)) if b > 1e-3 else 1.0
                # Two numbers rounded to four decimals go in.
                assert advantage == pytest.approx(scale * centred, abs=2e-3)
    assert any(0 < rate < 1 for rate in rates), "the seed must give a group with both kinds of answers"
    assert len(seen) == 2, "and groups of two batches"


def test_a_base_policy_has_centred_advantages(tmp_path):
    _, recorder, _ = recorded(tmp_path)
    content = recorder.to_json()
    assert content["schedule"] == "constant(risk_coef=0)"
    for entry in content["problems"]:
        for rollout in entry["rollouts"]:
            centred = float(rollout["status"] == "right") - entry["pass_rate"]
            assert rollout["advantage"] == pytest.approx([centred] * 12, abs=1e-4)


def test_the_frozen_scale_and_the_matched_constant_are_read(tmp_path):
    (tmp_path / "calibration.json").write_text(json.dumps({"scale": 0.75}))
    _, recorder, _ = recorded(tmp_path, folder=tmp_path)
    assert recorder.to_json()["schedule"] == "linear(start=0.75, end=0)"
    (tmp_path / "control.json").write_text(json.dumps({"constant": 0.4}))
    _, recorder, _ = recorded(tmp_path, "risk.control=constant", folder=tmp_path)
    assert recorder.to_json()["schedule"] == "constant(risk_coef=0.4)"


def test_a_scale_that_is_not_known_is_said(tmp_path):
    with pytest.raises(ConfigError, match=r"no calibration\.json"):
        recorded(tmp_path, folder=tmp_path)


def test_one_completion_has_no_advantage(tmp_path):
    _, recorder, _ = recorded(tmp_path, samples=1)
    assert recorder.to_json()["problems"][0]["rollouts"][0]["advantage"] is None


def test_merged_states_move_progress_and_not_what_is_shown(tmp_path):
    _, recorder, seen = recorded(tmp_path, "risk.scale=1", "loss.shrinkage=2", folder=tmp_path)
    rollout = recorder.to_json()["problems"][0]["rollouts"][0]
    assert max(rollout["unmask_step"]) == 11
    # Twelve steps in three blocks of four are six merged states.
    assert sorted(set(rollout["progress"])) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert denoising_progress(seen[0][1])[0].unique().numel() == 12


def test_the_command_writes_them_beside_the_evaluation(tmp_path):
    words = ["eval.problems=3", "eval.samples=4", "eval.k=[1, 4]", "eval.denoising=true", "eval.backslide_problems=2"]
    result = build.evaluate("tiny", overrides=words, output=tmp_path / "eval.json", traces=2)
    content = json.loads((tmp_path / "traces.json").read_text())
    assert [problem["id"] for problem in content["problems"]] == list(result.ids[:2])
    assert content["label"] == "tiny"
    assert [problem.denoising.ever_right is None for problem in result.problems] == [False, False, True]
    assert {"commit_progress", "reveal_order", "backslide_rate"} <= set(result.summary())
    build.evaluate("tiny", overrides=words[:3], output=tmp_path / "other.json", traces=1)
    assert len(json.loads((tmp_path / "other-traces.json").read_text())["problems"]) == 1
    with pytest.raises(ConfigError, match="give a file for the evaluation"):
        build.evaluate("tiny", overrides=words, traces=2)
