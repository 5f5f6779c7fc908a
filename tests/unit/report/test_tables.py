"""One table, four formats, the same numbers."""

from __future__ import annotations

import csv
import io
import json

import pytest
from rich.console import Console

from steprs.errors import ArgumentError
from steprs.evaluation.statistics import Estimate
from steprs.report.tables import Table, evaluation_tables, show
from steprs.report.terminal import print_table

HALF = Estimate(value=0.5, low=0.25, high=0.75, level=0.95, problems=8, seeds=1)
TABLE = Table(
    title="A | title",
    columns=("arm", "pass@1", "gain", "n"),
    rows=(("<b>one|two</b>", HALF, 0.125, 16), ("three", None, float("nan"), 4)),
    signed=("gain",),
    notes=("a note",),
)


def test_text():
    lines = TABLE.render("text").splitlines()
    assert lines[0] == "A | title"
    assert lines[1] == "arm                           pass@1    gain   n"
    assert lines[3] == "<b>one|two</b>  0.500 [0.250, 0.750]  +0.125  16"
    assert lines[4] == "three                              –       –   4"
    assert lines[5] == "a note"


def test_markdown():
    lines = TABLE.render("markdown").splitlines()
    assert lines[0] == r"**A \| title**"
    assert lines[2:4] == ["| arm | pass@1 | gain | n |", "| --- | --: | --: | --: |"]
    assert lines[4] == r"| &lt;b&gt;one\|two&lt;/b&gt; | 0.500 [0.250, 0.750] | +0.125 | 16 |"


def test_csv():
    rows = list(csv.reader(io.StringIO(TABLE.render("csv"))))
    assert rows[0] == ["arm", "pass@1", "pass@1 low", "pass@1 high", "gain", "n"]
    assert rows[1] == ["<b>one|two</b>", "0.5", "0.25", "0.75", "0.125", "16"]
    assert rows[2] == ["three", "", "", "", "", "4"]


def test_json():
    plain = json.loads(TABLE.render("json"))
    assert plain["rows"][0]["pass@1"] == HALF.to_json()
    assert plain["rows"][1] == {"arm": "three", "pass@1": None, "gain": None, "n": 4}


def test_a_terminal_reads_no_markup():
    out = io.StringIO()
    table = Table(title="t", columns=("arm", "x"), rows=(("[red]one[/red]\x1b[2J", HALF),))
    print_table(table, Console(file=out, width=80))
    assert "[red]one[/red]\\x1b[2J" in out.getvalue() and ".25 .75" in out.getvalue()


def test_main_table_of_three_ks_fits_eighty_columns():
    out = io.StringIO()
    columns = ("arm", "pass@1", "pass@4", "pass@16", "distinct right@16", "wrong diversity", "answer entropy")
    low = Estimate(value=-0.123, low=-0.223, high=-0.023, level=0.95, problems=8, seeds=1)
    table = Table(title="t", columns=columns, rows=(("StepRS decreasing", *[low] * 6),), signed=columns[1:])
    print_table(table, Console(file=out, width=80))
    assert "…" not in out.getvalue() and out.getvalue().count("-.22 -.02") == 6


def test_wrong_input_is_named():
    with pytest.raises(ArgumentError, match="Did you mean 'markdown'"):
        TABLE.render("markdwn")
    with pytest.raises(ArgumentError, match="has 2 columns; a row has 1"):
        Table(title="t", columns=("a", "b"), rows=(("x",),))


def test_show_signs_and_gaps():
    assert show(HALF, signed=True) == "+0.500 [+0.250, +0.750]"
    assert show(float("inf")) == "–"


def test_an_evaluation_in_every_format(made):
    result = made.evaluation("policy", 0.3, 16)
    value = result.summary()["pass@1"]
    assert show(value) in evaluation_tables(result)
    assert "&lt;script&gt;" in evaluation_tables(result, format="markdown")
    rows = {row[0]: row for row in csv.reader(io.StringIO(evaluation_tables(result, format="csv")))}
    assert float(rows["pass@1"][1]) == value.value and float(rows["pass@1"][2]) == value.low
    plain = json.loads(evaluation_tables(result, format="json"))
    assert plain["examples"]["rows"][0]["completion"] == made.NASTY


def test_a_second_evaluation_adds_the_paired_difference(made):
    better, worse = made.evaluation("better", 0.45, 16), made.evaluation("worse", 0.3, 16)
    plain = json.loads(evaluation_tables(better, worse, format="json"))["statistics"]
    row = next(row for row in plain["rows"] if row["statistic"] == "pass@1")
    assert row["difference"]["value"] == pytest.approx(row["better"]["value"] - row["worse"]["value"])
    wide = row["better"]["high"] - row["better"]["low"]
    assert row["difference"]["high"] - row["difference"]["low"] < wide / 2, "pairing narrows the interval"


def test_a_count_below_the_label_saves_a_column():
    table = Table(title="t", columns=("arm", "seeds", "x"), rows=(("a", 1, HALF), ("b", 12, HALF)), under="seeds")
    folded, counts = table.folded()
    assert folded.columns == ("arm", "x") and counts == ("1 seed", "12 seeds")
    out = io.StringIO()
    print_table(table, Console(file=out, width=80))
    assert "12 seeds" in out.getvalue()
    assert table.render("csv").splitlines()[0] == "arm,seeds,x,x low,x high", "files keep the column"


def test_digits_and_thousands():
    table = Table(title="t", columns=("arm", "minutes", "tokens"), rows=(("a", 1.25, 215030),), digits={"minutes": 1})
    assert table.shown() == [["a", "1.2", "215,030"]]
    assert table.render("csv").splitlines()[1] == "a,1.25,215030"


def test_a_narrow_terminal_leaves_out_what_matters_least_and_says_so():
    columns = ("arm", *(f"pass@{k}" for k in range(1, 10)))
    table = Table(title="t", columns=columns, rows=(("a", *[HALF] * 9),), optional=("pass@3", "pass@2", "pass@4"))
    out = io.StringIO()
    print_table(table, Console(file=out, width=74))
    text = out.getvalue()
    assert "Not shown for want of width: pass@3." in text and "…" not in text and "pass@2" in text
    out = io.StringIO()
    print_table(table, Console(file=out, width=120))
    assert "Not shown" not in out.getvalue()
