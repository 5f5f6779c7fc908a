"""`steprs theory` as a person meets it: tables that parse, pictures that open, mistakes answered in one line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from steprs.cli import main
from steprs.cli.app import app

SMALL_LAB = ["lab", "--prompts", "6", "--states", "3", "--right-answers", "1,3", "--instances", "2", "--updates", "3"]
COMMANDS = {
    "curve": ["curve", "-b", "2,-2", "-p", "0.1,0.5", "-g", "8"],
    "landmarks": ["landmarks", "-b", "2,-2"],
    "rules": ["landmarks", "-p", "0.05,0.5"],
    "schedule": ["schedule", "linear 4 0", "-p", "0.1,0.5", "--points", "3"],
    "finite-group": ["finite-group", "pass-rate 0.2 linear 4 0 / linear 0 4", "-t", "0,1", "-p", "0.1", "-g", "4,8"],
    "compare": ["compare", "-p", "0.1,0.5", "--same-mean"],
    "lab": [*SMALL_LAB, "--arm", "linear 4 0", "--arm", "constant -2"],
}


def output(*words: str) -> str:
    result = CliRunner().invoke(app, ["theory", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_format_holds_the_same_table(name: str) -> None:
    words = COMMANDS[name]
    plain = json.loads(output(*words, "--format", "json"))
    lines = list(csv.reader(io.StringIO(output(*words, "--format", "csv"))))
    assert lines[0] == plain["columns"]
    assert len(lines) - 1 == len(plain["rows"]) > 0
    for line, row in zip(lines[1:], plain["rows"], strict=True):
        for shown, value in zip(line, row.values(), strict=True):
            assert (shown == "" and value is None) or shown == value or float(shown) == value
    assert output(*words, "--format", "markdown").count("\n| ") == len(plain["rows"]) + 2
    assert plain["title"] in output(*words)


@pytest.mark.parametrize("name", ["curve", "landmarks", "schedule", "finite-group", "compare", "lab"])
def test_every_picture_is_drawn(name: str, tmp_path: Path) -> None:
    output(*COMMANDS[name], "-o", str(tmp_path / "deeper/picture.svg"))
    picture = (tmp_path / "deeper/picture.svg").read_text()
    assert "</svg>" in picture
    assert "pass rate" in picture or "pass@1" in picture, "axes are named, as text"


def test_a_png_is_a_png(tmp_path: Path) -> None:
    output(*COMMANDS["compare"], "-o", str(tmp_path / "picture.png"))
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_values_of_the_method_page() -> None:
    rows = json.loads(output("finite-group", "constant 2", "-p", "0.05", "-g", "8,16", "--format", "json"))["rows"]
    assert [round(rows[0][name], 2) for name in ("c", "c_8", "c_16")] == [2.42, 1.42, 1.84]


def test_both_landmark_tables_are_one_json_list() -> None:
    tables = json.loads(output("landmarks", "-b", "2", "-p", "0.25", "--format", "json"))
    assert [len(table["rows"]) for table in tables] == [1, 8]


def test_the_laboratory_follows_the_arms_named() -> None:
    rows = json.loads(output(*COMMANDS["lab"], "--format", "json"))["rows"]
    assert {row["arm"] for row in rows} == {"base policy", "centred", "linear 4 0", "constant -2"}
    assert {row["measure"] for row in rows} == {"pass@1", "pass@16", "distinct right@16"}
    again = json.loads(output(*COMMANDS["lab"], "--format", "json"))["rows"]
    assert again == rows, "the same worlds for the same seed"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["schedule", "liner 4 0"], "Did you mean 'linear'"),
        (["curve", "-b", "two"], "--risk-coef is 'two'"),
        (["curve", "-p", "0,0.5"], "strictly between 0 and 1"),
        (["compare", "-g", "2.5"], "whole numbers"),
        (["curve", "-o", "curve.pdf"], "end it with .png or .svg"),
        (["landmarks", "-b", "1", "-p", "0.5", "--format", "csv"], "one table"),
        ([*SMALL_LAB, "--arm", "linear 4 0 control=shuffle-token"], "unknown control"),
        ([*SMALL_LAB, "--right-answers", "3"], "two whole numbers"),
    ],
)
def test_mistakes_are_answered_in_one_line(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["theory", *words])
    shown = capsys.readouterr()
    assert stop.value.code == 2
    assert says in shown.err
    assert shown.out == ""
