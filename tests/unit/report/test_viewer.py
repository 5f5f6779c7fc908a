"""Rollouts in the page: safe to show, capped, and the same numbers."""

from __future__ import annotations

import json
import shutil

import pytest

from steprs.errors import RunFolderError
from steprs.report import viewer as module
from steprs.report.study import read_source
from steprs.report.viewer import embedded, viewer


@pytest.fixture
def copy(folder, tmp_path):
    shutil.copytree(folder / "store/flat-1", tmp_path / "flat-1")
    return tmp_path / "flat-1"


def rewrite(run, edit):
    content = json.loads((run / "traces.json").read_text())
    edit(content)
    (run / "traces.json").write_text(json.dumps(content))


def test_holds_the_first_seed_of_each_arm(study):
    (context,) = viewer(study.contexts).data["contexts"]
    labels = [arm["label"] for arm in context["arms"]]
    assert labels == ["centred GRPO", "StepRS decreasing", "StepRS increasing", "constant", "full", "flat"]
    first = {label: arm["rollouts"][0] for label, arm in zip(labels, context["problems"][0]["arms"], strict=True)}
    assert first["centred GRPO"]["advantage"] == [0.25, 1.5, 0.0]
    assert first["StepRS increasing"]["advantage"][1] == 2.5 and first["constant"]["advantage"][1] == 3.5
    assert first["flat"]["unmask_step"] == [2, 0, -1] and first["flat"]["progress"] == [1.0, 0.0, None]
    assert first["flat"]["entropy"][2] is None, "NaN is no JSON"


def test_text_is_printable_and_no_element(study, made):
    data = viewer(study.contexts).data
    text = embedded(data)
    assert text.isascii() and not set(text) & set("<>&\x1b")
    back = json.loads(text)["contexts"][0]["problems"][0]
    token = back["arms"][0]["rollouts"][0]["tokens"][1]
    assert token.startswith("<script>alert(1)</script>") and r"\x1b[31m" in token and r"\u202e" in token
    assert back["arms"][0]["rollouts"][0]["tokens"][2] == "⏎"
    assert made.NASTY not in json.dumps(back, ensure_ascii=False)


def test_long_text_and_long_completions_are_cut_and_said(copy):
    def edit(content):
        rollout = content["problems"][0]["rollouts"][0]
        rollout["tokens"] = ["x" * 100_000] + ["a"] * 1999
        for name in ("unmask_step", "progress", "advantage", "entropy"):
            rollout[name] = [0] * 2000

    rewrite(copy, edit)
    rollout = viewer(read_source([copy]).contexts).data["contexts"][0]["problems"][0]["arms"][0]["rollouts"][0]
    assert rollout["tokens"][0] == "x" * 120 + " … (99880 more)"
    assert len(rollout["tokens"]) == len(rollout["advantage"]) == 1024 and rollout["left_out"] == 976


def test_problems_beyond_the_size_are_left_out_and_said(study, monkeypatch):
    whole = viewer(study.contexts)
    one = len(embedded(whole.data["contexts"][0]["problems"][0]))
    monkeypatch.setattr(module, "LARGEST_BYTES", one + 10)
    cut = viewer(study.contexts)
    assert len(cut.data["contexts"][0]["problems"]) == 1
    assert "1 of 2 problems are kept" in cut.notes[0] and "kept" not in whole.notes[0]


def test_a_problem_that_an_arm_lacks_is_empty_for_it(folder, copy):
    rewrite(copy, lambda content: content["problems"].pop(0))
    study = read_source([folder / "store/full-1", copy])
    problems = viewer(study.contexts).data["contexts"][0]["problems"]
    assert [arm is None for arm in problems[0]["arms"]] == [False, True]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c.pop("problems"), "traces.json of flat-1 lacks 'problems'"),
        (lambda c: c["problems"][1]["rollouts"][0]["advantage"].pop(), "3 tokens and 2 values of advantage"),
        (lambda c: c["problems"][1]["rollouts"][0].pop("tokens"), "problem 'toy/1': a rollout is not as it should be"),
    ],
)
def test_a_broken_file_is_named(copy, edit, message):
    rewrite(copy, edit)
    with pytest.raises(RunFolderError, match=message):
        viewer(read_source([copy]).contexts)


def test_without_traces_there_is_no_viewer(copy):
    (copy / "traces.json").unlink()
    assert viewer(read_source([copy]).contexts) is None
