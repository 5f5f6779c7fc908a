"""Reading studies and runs: what is grouped, what is refused."""

from __future__ import annotations

import json
import shutil

import pytest

from steprs.errors import RunFolderError
from steprs.report.study import read_source, read_study


def change(root, **entries):
    manifest = json.loads((root / "manifest.json").read_text())
    (root / "manifest.json").write_text(json.dumps({**manifest, **entries}))


@pytest.fixture
def copy(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "study")
    return tmp_path / "study"


def test_a_study_is_read_as_its_manifest_says(study, folder, made):
    (context,) = study.contexts
    assert (study.title, study.claim, study.planned, study.unfinished) == (
        "A made-up study", "Nothing can be claimed.", 17, False,
    )  # fmt: skip
    assert [arm.label for arm in context.arms] == list(made.ARMS) and context.baseline == "centred GRPO"
    constant = context.find("constant")
    assert constant.trained and constant.seeds == (3, 2, 1) and not context.find("base").trained
    assert [seed for seed, _ in constant.evaluated] == [3, 2, 1]
    assert constant.fields["risk.schedule.kind"] == "constant"


def test_an_unfinished_study_may_lack_its_baseline_and_arms_without_runs(copy):
    contexts = json.loads((copy / "manifest.json").read_text())["contexts"]
    contexts[0]["arms"] = [arm for arm in contexts[0]["arms"] if arm["label"] != "centred GRPO"]
    contexts[0]["arms"][0]["folders"] = contexts[0]["arms"][0]["seeds"] = []
    change(copy, contexts=contexts, coverage={"runs_planned": 20, "runs_finished": 14})
    study = read_study(copy)
    assert study.unfinished and study.contexts[0].find("centred GRPO") is None
    assert study.contexts[0].arms[0].label == "base, greedy"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c[0].update(baseline="centered GRPO"), "Did you mean 'centred GRPO'"),
        (lambda c: c[0]["arms"][0].update(folders=["nowhere"]), "nowhere is not a folder"),
        (lambda c: c[0]["arms"][2].update(seeds=[1]), "3 folders and 1 seeds"),
        (lambda c: c[0]["arms"][0].pop("kind"), r"manifest.json lacks 'kind'"),
        (lambda c: c[0]["arms"][1].update(label="base"), "two arms of one context have the same label"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_named(copy, edit, message):
    contexts = json.loads((copy / "manifest.json").read_text())["contexts"]
    edit(contexts)
    change(copy, contexts=contexts)
    with pytest.raises(RunFolderError, match=message):
        read_study(copy)


def test_runs_that_differ_in_their_seed_only_are_one_arm(folder):
    runs = [folder / "store" / name for name in ("flat-1", "centred-GRPO-2", "flat-3", "centred-GRPO-1")]
    study = read_source(runs)
    (context,) = study.contexts
    assert [arm.label for arm in context.arms] == ["flat", "centred-GRPO"] and context.baseline == "flat"
    assert [arm.seeds for arm in context.arms] == [(1, 3), (2, 1)]
    assert context.find("centred-GRPO").fields == {"risk.scale": 0.45} and context.find("flat").fields == {}
    assert study.planned is None and not study.unfinished


def test_a_baseline_can_be_chosen(folder):
    runs = [folder / "store" / name for name in ("flat-1", "full-1")]
    assert read_source(runs, "full-1").contexts[0].baseline == "full-1"
    assert read_source([folder], "flat").contexts[0].baseline == "flat"
    with pytest.raises(RunFolderError, match="Did you mean 'full-1'"):
        read_source(runs, "full-2")


def test_runs_with_one_name_stay_apart(folder, tmp_path):
    for place, rate in (("a", 1), ("b", 2)):
        shutil.copytree(folder / "store/flat-1", tmp_path / place / "run-1")
        config = json.loads((tmp_path / place / "run-1/config.json").read_text())
        (tmp_path / place / "run-1/config.json").write_text(json.dumps({**config, "risk": {"scale": rate}}))
    labels = [arm.label for arm in read_source([tmp_path / "a/run-1", tmp_path / "b/run-1"]).contexts[0].arms]
    assert labels == ["run-1", "run-1 (2)"]


def test_folders_that_hold_nothing_are_named(folder, tmp_path):
    with pytest.raises(RunFolderError, match="holds neither a run"):
        read_source([tmp_path])
    with pytest.raises(RunFolderError, match="one study alone, or run folders only"):
        read_source([folder, folder / "store/flat-1"])
    with pytest.raises(RunFolderError, match="has no manifest"):
        read_study(tmp_path)


def test_an_evaluated_policy_is_an_arm_that_was_not_trained(folder):
    study = read_source([folder / "store/flat-1", folder / "store/base-0"])
    assert [arm.trained for arm in study.contexts[0].arms] == [True, False]
