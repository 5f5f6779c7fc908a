"""The demo's arms differ in the risk section alone, and its folder is never overwritten by surprise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from steprs.errors import DependencyError, RunFolderError
from steprs.evaluation.result import EvalResult
from steprs.experiments import demo, worker
from steprs.experiments.pieces import MEASURED, measurement
from steprs.policies.tiny import create_tiny
from steprs.report.study import read_study
from steprs.tasks import get_task


def test_arms_differ_in_risk_alone():
    arms = {label: config.model_dump() for label, config in demo.arm_configs().items()}
    risks = {label: arm.pop("risk") for label, arm in arms.items()}
    names = {label: arm.pop("name") for label, arm in arms.items()}
    first, *others = arms.values()
    assert all(other == first for other in others)
    assert list(names.values()) == ["centred", "decreasing", "increasing"]
    assert risks["centred GRPO"]["scale"] == 0
    ends = {label: (risk["schedule"]["start"], risk["schedule"]["end"]) for label, risk in risks.items()}
    assert ends["StepRS decreasing"] == (1, 0) and ends["StepRS increasing"] == (0, 1)
    assert risks["StepRS decreasing"]["scale"] == risks["StepRS increasing"]["scale"] == "calibrated"
    assert (
        first["train"]["updates"] >= 60 and first["train"]["prompts_per_update"] * first["train"]["group_size"] == 256
    )


def test_overrides_reach_every_arm_but_do_not_undo_it():
    arms = demo.arm_configs(["train.updates=2", "risk.scale=3"])
    assert {config.train.updates for config in arms.values()} == {2}
    assert [config.risk.scale for config in arms.values()] == [0, 3, 3]


@pytest.fixture
def stages(monkeypatch):
    """Pools and reports replaced by notes of what was asked."""
    calls = []
    monkeypatch.setattr(demo, "run_jobs", lambda jobs, folder, **_: calls.append([job.name for job in jobs]))
    monkeypatch.setattr(demo, "scale_sentence", lambda file: "a scale")
    monkeypatch.setattr(demo, "_report", lambda folder: calls.append("report") or folder)
    return calls


def test_calibration_comes_first_and_once(stages, tmp_path):
    demo.run_demo(tmp_path / "demo")
    assert stages == [["calibration"], ["base", "centred", "decreasing", "increasing"], "report"]
    assert json.loads((tmp_path / "demo" / "demo.json").read_text())["finished"] is True
    for folder, _ in [*demo.BASES.values(), *demo.ARMS.values()]:
        (tmp_path / "demo" / folder).mkdir()
    (context,) = read_study(tmp_path / "demo").contexts
    assert [arm.label for arm in context.arms] == [*demo.BASES, *demo.ARMS] and context.baseline == "centred GRPO"
    assert [arm.label for arm in context.trained] == list(demo.ARMS)
    assert context.find("StepRS decreasing").fields == {"risk.schedule.start": 1, "risk.schedule.end": 0}


def test_an_unfinished_demo_goes_on_with_the_same_settings_only(stages, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as broken:
        broken.setattr(demo, "run_jobs", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            demo.run_demo(tmp_path, updates=5)
    with pytest.raises(
        RunFolderError, match=r"other settings \(overrides: \['train.updates=5'\] in the folder, \[\] now"
    ):
        demo.run_demo(tmp_path, resume=True)
    demo.run_demo(tmp_path, updates=5)
    assert "going on with the unfinished demo" in capsys.readouterr().out and stages[-1] == "report"


def test_a_finished_demo_is_shown_again_or_set_aside(stages, tmp_path):
    folder = tmp_path / "demo"
    demo.run_demo(folder)
    (folder / "mark").write_text("first")
    stages.clear()
    demo.run_demo(folder, resume=True)
    assert stages == ["report"]
    demo.run_demo(folder)
    assert (tmp_path / "demo.previous" / "mark").is_file() and not (folder / "mark").exists()
    demo.run_demo(folder)
    assert not (tmp_path / "demo.previous" / "mark").exists(), "one earlier demo is kept, not all of them"


def test_other_peoples_folders_are_left_alone(stages, tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunFolderError, match="holds other files"):
        demo.run_demo(tmp_path)
    with pytest.raises(RunFolderError, match="holds no demo to resume"):
        demo.run_demo(tmp_path / "new", resume=True)
    folder, previous = tmp_path / "demo", tmp_path / "demo.previous"
    demo.run_demo(folder)
    previous.mkdir()
    with pytest.raises(RunFolderError, match="is in the way"):
        demo.run_demo(folder)
    assert (folder / "demo.json").is_file() and stages.count("report") == 1


def test_matplotlib_is_missed_before_minutes_are_spent(stages, tmp_path, monkeypatch):
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DependencyError, match=r"steprs\[plots\]"):
        demo.run_demo(tmp_path)
    assert stages == []


def test_an_arm_counts_updates_and_its_evaluation(tmp_path):
    config = demo.arm_configs(["train.updates=4"])["centred GRPO"]
    job = demo._arm(tmp_path, "centred GRPO", config, problems=256, samples=16)
    assert (job.done(), job.units) == (0, 4 + 4) and job.spec["calibration"] is None
    (tmp_path / "centred").mkdir()
    (tmp_path / "centred" / "metrics.jsonl").write_text("{}\n{}\n{}")
    assert job.done() == 2, "half a line is no update"
    measured = measurement(256, job.spec["ways"][0])
    (tmp_path / "centred" / MEASURED).write_text(json.dumps(measured))
    for name in ("eval.json", "traces.json"):
        (tmp_path / "centred" / name).write_text("{}")
    assert job.done() == job.units
    (tmp_path / "centred" / MEASURED).write_text(json.dumps({**measured, "samples": 8}))
    assert job.done() == 2, "another measurement is not this one"


def test_the_worker_measures_each_way_once(tmp_path):
    task = get_task("countdown")
    create_tiny(
        task.vocabulary(), seed=0, hidden_size=16, intermediate_size=16, layers=1, heads=2,
        decoding_defaults={"length": 12, "steps": 12, "block_size": 4},
    ).save(tmp_path / "policy")  # fmt: skip
    config = demo.arm_configs([f"policy.path={tmp_path / 'policy'}"])["StepRS decreasing"]
    spec = demo._bases(tmp_path, config, problems=2, samples=4).spec
    (tmp_path / "base-cool").mkdir()
    (tmp_path / "base-cool" / "eval.json").write_text("kept")
    (tmp_path / "base-cool" / MEASURED).write_text(json.dumps(measurement(2, spec["ways"][2])))
    worker.measure(json.loads(json.dumps(spec)))
    base, greedy = (EvalResult.load(tmp_path / name / "eval.json") for name in ("base", "base-greedy"))
    assert (base.samples, base.k, base.decode_differences) == (4, (1, 4), ())
    assert (greedy.samples, greedy.k) == (1, (1,))
    assert greedy.decode_differences == ("temperature: 0.0 in the evaluation, 1.0 in training",)
    assert base.ids == greedy.ids == tuple(problem.id for problem in task.problems("test", 2))
    assert (tmp_path / "base-cool" / "eval.json").read_text() == "kept"


def test_a_scale_that_was_given_is_said(tmp_path):
    config = demo.arm_configs(["risk.scale=2"])["StepRS decreasing"]
    assert demo._scale(tmp_path, config) == "risk scale: 2.0, as given"
    measured = {"pass_rate": 0.35, "low": 0.3, "high": 0.4, "ids": ["a", "b"], "samples": 8}
    frozen = {"rule": "halve-failure", "scale": 1.35, "capability": measured}
    Path(tmp_path / "calibration.json").write_text(json.dumps(frozen))
    sentence = demo._scale(tmp_path, demo.arm_configs()["StepRS decreasing"])
    assert "0.350 [0.300, 0.400] of 2 training prompts x 8 samples" in sentence and "scale 1.350" in sentence
