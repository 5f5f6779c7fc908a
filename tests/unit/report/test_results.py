"""Every number of the tables against the slow computation; pairing; and what the reading makes of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from steprs.evaluation import result as result_module
from steprs.evaluation.compare import compare, summarise
from steprs.report.diversity import decomposition, denoising_table, diversity_table
from steprs.report.endpoints import endpoints
from steprs.report.reading import coverage, reading
from steprs.report.results import (
    control_table,
    difference,
    difference_table,
    judged_k,
    main_table,
    measure,
    paired_rows,
    primary_of,
    statistics_table,
)
from steprs.report.study import Arm, Context


@pytest.fixture(scope="module")
def context(study):
    return study.contexts[0]


@pytest.fixture(scope="module")
def rows(context):
    return measure(context)


def by_label(table):
    return {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}


def folders_of(context, label):
    arm = context.find(label)
    return dict(zip(arm.seeds, (run.path for run in arm.runs), strict=True))


HEADINGS = ("pass@1", "pass@4", "pass@16", "distinct right@16", "wrong diversity", "answer entropy")


def test_main_table(context, rows, slow):
    table = main_table("t", rows)
    assert table.columns == ("arm", "seeds", *HEADINGS)
    found = by_label(table)
    assert list(found) == [arm.label for arm in context.arms]
    for label in ("base", "centred GRPO", "StepRS increasing"):
        paths = list(folders_of(context, label).values())
        for heading in HEADINGS:
            assert found[label][heading].value == pytest.approx(slow.mean(paths, heading), abs=1e-12), (label, heading)
        assert found[label]["seeds"] == len(paths)
    assert found["base, greedy"]["pass@1"].value == pytest.approx(
        slow.mean([*folders_of(context, "base, greedy").values()], "pass@1")
    )
    assert found["base, greedy"]["pass@16"] is None, "one sample has no pass@16"


def test_intervals_are_those_of_the_evaluation(context, rows):
    found = by_label(main_table("t", rows))
    arm = context.find("StepRS decreasing")
    assert found[arm.label]["pass@4"] == summarise(arm.evaluations)["pass@4"]
    differences = by_label(difference_table(context, rows))
    baseline = context.find(context.baseline).evaluations
    assert differences[arm.label]["distinct right@16"] == compare(arm.evaluations, baseline)["distinct_right@16"]
    assert differences["base"]["pass@1"] == compare(context.find("base").evaluations, baseline)["pass@1"]


def test_differences_are_paired_by_seed(context, rows, slow):
    differences = by_label(difference_table(context, rows))
    base = folders_of(context, "centred GRPO")
    for label, seeds in (("StepRS increasing", (2, 3)), ("constant", (1, 2, 3))):
        own = folders_of(context, label)
        pairs = [(own[seed], base[seed]) for seed in seeds]
        assert differences[label]["pairs"] == len(seeds)
        for heading in HEADINGS:
            assert differences[label][heading].value == pytest.approx(slow.mean_difference(pairs, heading), abs=1e-12)
    alone = folders_of(context, "base")[0]
    expected = slow.mean_difference([(alone, path) for path in base.values()], "pass@1")
    assert differences["base"]["pass@1"].value == pytest.approx(expected), "measured once, it stands against every seed"
    assert "centred GRPO" not in differences


def test_trained_arms_are_paired_by_seed_or_not_at_all(rows):
    by = {row.label: row for row in rows}
    other = replace(by["constant"], seeds=(7, 8, 9))
    assert paired_rows(other, by["centred GRPO"]) == ([], [])
    assert difference(other, by["centred GRPO"]) == ({}, 0)
    alone, lone = replace(by["constant"], seeds=(7,)), replace(by["centred GRPO"], seeds=(8,))
    assert paired_rows(alone, lone) == ([0], [0]), "two single runs are what somebody put side by side"
    assert paired_rows(by["StepRS increasing"], by["centred GRPO"]) == ([0, 1], [1, 2])
    assert paired_rows(by["constant"], by["centred GRPO"]) == ([0, 1, 2], [2, 1, 0])
    assert paired_rows(by["base"], by["centred GRPO"]) == ([0], [0, 1, 2])


def test_statistics_table_has_all_of_them(context, rows):
    table = statistics_table(context, rows)
    one = [dict(zip(table.columns, row, strict=True)) for row in table.rows if row[0] == "flat"]
    names = {row["statistic"] for row in one}
    assert {"maj@4", "unparsed_rate", "unique_completions", "pass@16"} <= names
    value = next(row for row in one if row["statistic"] == "unparsed_rate")
    flat = context.find("flat").evaluations
    assert value["value"] == summarise(flat)["unparsed_rate"]
    expected = compare(flat, context.find("centred GRPO").evaluations)["unparsed_rate"]
    assert value["difference to centred GRPO"] == expected


def test_control_table_subtracts_each_control_from_the_full_method(context, rows, slow):
    table = control_table(context, rows)
    (row,) = table.rows
    named = dict(zip(table.columns, row, strict=True))
    assert (named["control"], named["pairs"]) == ("flat", 3) and "states" in named["isolates"]
    full, flat = folders_of(context, "full"), folders_of(context, "flat")
    expected = slow.mean_difference([(full[s], flat[s]) for s in full], "pass@1")
    assert named["pass@1"].value == pytest.approx(expected)
    without = [row for row in rows if row.label != "full"]
    assert control_table(context, without) is None


def test_endpoints_find_their_cells(rows):
    grid = endpoints(rows)
    assert (grid.starts, grid.ends, grid.baseline) == ((0.0, 1.0), (0.0, 1.0), (0.0, 0.0))
    assert {where: row.label for where, row in grid.cells.items()} == {
        (1.0, 0.0): "StepRS decreasing", (0.0, 1.0): "StepRS increasing", (1.0, 1.0): "constant",
    }  # fmt: skip
    assert endpoints([row for row in rows if row.label != "constant"]) is None, "three places are no grid"


def test_diversity_table(context, rows, slow):
    found = by_label(diversity_table(rows))
    paths = list(folders_of(context, "flat").values())
    for heading in ("distinct answers@16", "distinct right@16"):
        assert found["flat"][heading].value == pytest.approx(slow.mean(paths, heading), abs=1e-12)


def test_entropy_of_signatures_is_shown_once_it_is_measured(context, monkeypatch):
    """The three names come from the evaluation; a version without them has the other columns."""
    plain = result_module.problem_metrics

    def with_traces(problem, k):
        answers, inside = 0.1 * problem.correct, 0.3
        return plain(problem, k) | {
            "answer_entropy_traced": answers, "signature_entropy_given_answer": inside,
            "signature_entropy_joint": answers + inside,
        }  # fmt: skip

    monkeypatch.setattr(result_module, "problem_metrics", with_traces)
    rows = measure(Context(name="", baseline=context.baseline, arms=context.arms[2:4]))
    assert "H(sig|ans)" in main_table("t", rows).columns and "H(sig|ans)" in primary_of(rows).values()
    (label, answers, inside), _ = decomposition(rows)
    joint = by_label(diversity_table(rows))[label]["H(sig, ans)"]
    assert inside == pytest.approx(0.3) and answers + inside == pytest.approx(joint.value)
    monkeypatch.undo()
    assert decomposition(measure(context)) == []


def test_the_course_of_denoising_is_shown_once_it_is_measured(context, monkeypatch):
    assert denoising_table(measure(context)) is None
    plain = result_module.problem_metrics
    monkeypatch.setattr(
        result_module, "problem_metrics",
        lambda problem, k: plain(problem, k) | {"backslide_rate": 0.25, "entropy_tau_0.2_0.4": 0.125},
    )  # fmt: skip
    table = denoising_table(measure(context))
    assert table.columns == ("arm", "backslides", "entropy .2 to .4")
    assert [cell.value for cell in table.rows[2][1:]] == [0.25, 0.125]


class TestReading:
    def test_says_what_can_be_told_and_what_cannot(self, context, rows):
        text = "\n".join(reading(context, rows))
        difference = next(row for row in rows if row.label == "StepRS decreasing").difference
        one = difference["pass@1"]
        assert one.excludes_zero
        assert f"pass@1 {one.value:+.3f} [{one.low:+.3f}, {one.high:+.3f}]" in text
        many = difference["pass@16"]
        assert not many.excludes_zero
        assert f"pass@16 {many.value:+.3f} ± {(many.high - many.low) / 2:.3f}" in text
        assert "about the smallest effect that could have been told from 0" in text

    def test_counts_what_chance_would_give(self, context, rows):
        compared = [row for row in rows if row.arm.trained and row.difference is not None]
        verdicts = [row.difference[n].excludes_zero for row in compared for n in primary_of(rows)]
        sentence = next(s for s in reading(context, rows) if "if there were no effect at all" in s)
        assert sentence.startswith(f"{sum(verdicts)} of these {len(verdicts)} intervals exclude 0")
        assert "about 1 would be expected" in sentence

    def test_names_sharpening(self, context, rows):
        greedy = next(row for row in rows if row.label == "base, greedy").summary["pass@1"].value
        assert any(
            f"base, greedy reaches {greedy:.3f} without training" in s and "sharpening" in s
            for s in reading(context, rows)
        )

    @pytest.mark.parametrize(("tries", "judged"), [((1, 16, 32), 16), ((1, 4, 16), 16), ((1, 8), 8), ((1, 32), 32)])
    def test_outcomes_are_judged_at_sixteen_tries_where_they_can_be(self, tries, judged):
        row = SimpleNamespace(arm=SimpleNamespace(evaluations=(SimpleNamespace(k=(1,)), SimpleNamespace(k=tries))))
        assert judged_k([row]) == judged

    def test_warns_below_three_seeds(self, context, rows):
        assert any("with 2 seeds an arm, what another training seed" in s for s in reading(context, rows))
        enough = [row for row in rows if row.label != "StepRS increasing"]
        assert not any("what another training seed" in s for s in reading(context, enough))

    def test_many_arms_are_counted_not_listed(self, context, rows):
        arms = [row for row in rows if row.label == "flat"] * 9
        text = "\n".join(reading(context, [*rows[:1], *arms]))
        assert "9 arms (" in text

    def test_says_what_is_missing(self, study, context):
        assert coverage(study) == ()
        waiting = Arm(label="late", trained=True, runs=(replace(context.arms[2].runs[0], evaluation=None),), seeds=(1,))
        lacking = Context(name="weak", baseline="centred GRPO", arms=(context.arms[0], waiting))
        sentences = coverage(replace(study, planned=40, finished=36, contexts=(lacking,)))
        assert sentences[0].startswith("36 of 40 planned runs have finished")
        assert sentences[1] == "weak: no run of the baseline centred GRPO has finished, so there are no differences."
        assert sentences[2] == "weak: not evaluated, so in no table of results: late."

    @pytest.mark.parametrize(("skipped", "said"), [(2, False), (3, True), (10, True)])
    def test_says_how_often_nothing_was_learnt(self, context, study, skipped, said):
        run = replace(
            context.arms[2].runs[0],
            metrics=tuple({"update": n + 1, "skipped": float(n < skipped)} for n in range(10)),
            outcome={"updates": 10},
        )
        arm = Arm(label="silent", trained=True, runs=(run,), seeds=(7,))
        found = coverage(replace(study, contexts=(Context(name="", baseline="silent", arms=(arm,)),)))
        wanted = (
            f"silent, seed 7: {skipped} of 10 updates changed nothing, because no rollout of theirs had an advantage."
        )
        assert (wanted in found) is said
