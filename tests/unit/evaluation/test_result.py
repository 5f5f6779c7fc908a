"""Evaluation records: statistics by hand, the round trip, pairing, and what decoding differs in."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys

import pytest

from steprs.errors import ArgumentError, RunFolderError
from steprs.evaluation.compare import compare, summarise
from steprs.evaluation.records import Example, ProblemSamples, WrittenTrace
from steprs.evaluation.result import EvalResult, decode_differences

LETTERS = {"R": "right", "W": "wrong", "U": "unparsed"}


def problem(id, letters, answers, solutions=None, ended=None):
    """A problem from "RWU" letters and one answer a letter ("-" = none)."""
    return ProblemSamples(
        id=id,
        statuses=tuple(LETTERS[letter] for letter in letters),
        answer_keys=tuple(None if key == "-" else key for key in answers),
        solution_keys=tuple(None if key == "-" else key for key in (solutions or "-" * len(letters))),
        texts=tuple(range(len(letters))),
        tokens=tuple(range(1, len(letters) + 1)),
        ended=ended,
    )


def result(*problems, k=(1, 2), **changed):
    settings = {"policy": "p", "task": "t", "split": "test", "seed": 0, "decoding": {"steps": 12}, "k": k}
    return EvalResult(problems=problems, samples=problems[0].n, **{**settings, **changed})


FIRST = problem("one", "RRWU", "55x-", "pq--", ended=(True, True, False, False))
SECOND = problem("two", "WWWU", "xxy-", ended=(True, True, True, True))


def test_statistics_by_hand():
    values = result(FIRST, SECOND).metrics()
    expected = {
        "pass@1": [0.5, 0.0],
        "pass@2": [1 - 1 / 6, 0.0],
        "avg@4": [0.5, 0.0],
        # one: pairs 55 (right), 5x twice (tie), 5- twice (right), x- (wrong): (1 + 2/2 + 2) / 6
        "maj@2": [4 / 6, 0.0],
        # one: 1 - C(2,2)/C(4,2) + 1 - C(3,2)/C(4,2) = 5/6 + 1/2
        "distinct@2": [5 / 6 + 1 / 2, 5 / 6 + 1 / 2],
        "distinct_wrong@2": [1 / 2, 5 / 6 + 1 / 2],
        # two right derivations, one sample each
        "distinct_right@2": [1.0, 0.0],
        "answer_entropy": [-(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3) + 1 / 6] * 2,
        "collision": [2 / 3, 2 / 3],
        "unparsed_rate": [0.25, 0.25],
        "truncated_rate": [0.5, 0.0],
        "unique_completions": [1.0, 1.0],
        "tokens": [2.5, 2.5],
    }
    for name, numbers in expected.items():
        assert values[name].tolist() == pytest.approx(numbers), name
    assert math.isnan(values["collision_wrong"][0]), "one wrong answer has no pair"
    assert values["collision_wrong"][1] == pytest.approx(2 / 3)


def test_right_answers_stand_for_solutions_where_a_task_names_none():
    assert problem("one", "RRW", "aab").solution_counts() == {"a": 2}


def test_an_unparsed_sample_is_never_an_answer_even_if_it_has_a_key():
    assert problem("one", "RU", "ab").answer_counts() == {"a": 1}


def test_summary_means_and_what_no_problem_has():
    summary = result(FIRST, SECOND).summary()
    assert summary["pass@1"].value == pytest.approx(0.25)
    assert summary["collision_wrong"].problems == 1
    no_end = result(problem("one", "RW", "ab"))
    assert "truncated_rate" not in no_end.summary(), "the task does not end with an end token"


def test_round_trip(tmp_path):
    before = result(
        FIRST,
        SECOND,
        dropped=("three",),
        decode_differences=("steps: 6 in the evaluation, 12 in training",),
        examples=(Example(problem="one", prompt="1 2", completion="<script>|\x1b[31m", status="wrong"),),
    )
    file = before.save(tmp_path / "deep" / "eval.json")
    assert EvalResult.load(file) == before
    assert json.loads(file.read_text())["summary"]["pass@1"]["value"] == pytest.approx(0.25)
    assert [path.name for path in file.parent.iterdir()] == ["eval.json"]


def test_texts_and_traces_survive_a_file_and_old_files_have_none(tmp_path):
    traces = (
        WrittenTrace(text="3 + 5 8\ud800", signature="+", equations=("3+5=8",)),
        WrittenTrace(text="<b>"),
    )
    before = result(dataclasses.replace(FIRST, texts=(0, 1, 1, 0), traces=traces))
    file = before.save(tmp_path / "eval.json")
    assert EvalResult.load(file) == before
    stored = json.loads(file.read_text())
    assert stored["problems"][0]["traces"][1] == {"text": "<b>", "signature": None, "equations": None}
    del stored["problems"][0]["traces"]
    file.write_text(json.dumps(stored))
    old = EvalResult.load(file)
    assert old.problems[0].traces is None and old.summary()["pass@1"] == before.summary()["pass@1"]
    assert "edit_distance" in before.summary() and "edit_distance" not in old.summary()


@pytest.mark.parametrize("content", ["", "[]", '{"task": 1}', '{"problems": [{"id": "x"}]}'])
def test_a_torn_file_is_named(tmp_path, content):
    (tmp_path / "eval.json").write_text(content)
    with pytest.raises(RunFolderError, match=r"eval\.json is not an evaluation"):
        EvalResult.load(tmp_path / "eval.json")
    with pytest.raises(RunFolderError, match="no evaluation at"):
        EvalResult.load(tmp_path / "none.json")


def test_k_above_the_samples_and_uneven_lists_are_refused():
    with pytest.raises(ArgumentError, match=r"k must lie in 1\.\.4"):
        result(FIRST, k=(1, 8))
    with pytest.raises(ArgumentError, match="another number"):
        result(FIRST, problem("two", "RW", "ab"))
    with pytest.raises(ArgumentError, match="one value a sample"):
        problem("one", "RW", "a")
    with pytest.raises(ArgumentError, match="without problems"):
        EvalResult(policy="p", task="t", split="test", seed=0, samples=1, k=(1,), decoding={}, problems=())


def test_comparison_is_paired_by_problem():
    better = result(problem("one", "RRRW", "555x"), problem("two", "RWWW", "5xxy"))
    difference = compare(better, result(FIRST, SECOND))
    assert difference["pass@1"].value == pytest.approx(0.25)
    # Both problems differ by exactly 1/4: unpaired intervals would be wide, this one is a point.
    assert difference["pass@1"].low == pytest.approx(0.25) and difference["pass@1"].high == pytest.approx(0.25)
    assert "truncated_rate" not in difference


def test_other_problems_cannot_be_paired():
    with pytest.raises(ArgumentError, match="'three'"):
        compare(result(FIRST, SECOND), result(FIRST, problem("three", "RRRR", "5555")))
    with pytest.raises(ArgumentError, match="order or split"):
        compare(result(FIRST, SECOND), result(SECOND, FIRST))


def test_seeds_are_counted():
    summary = summarise([result(FIRST, SECOND)] * 3)
    assert summary["pass@1"].seeds == 3 and summary["pass@1"].value == pytest.approx(0.25)


def test_decode_differences_are_said():
    run = {"steps": 12, "temperature": 1.0, "length": 12}
    assert decode_differences(run, dict(run)) == ()
    assert decode_differences(run, {**run, "temperature": 0.7, "top_k": 5}) == (
        "temperature: 0.7 in the evaluation, 1.0 in training",
        "top_k: 5 in the evaluation, not set in training",
    )


def test_statistics_do_not_need_torch():
    code = (
        "import sys; import steprs.evaluation.compare, steprs.evaluation.result; "
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
