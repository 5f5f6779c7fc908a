"""A report made from a folder alone: its numbers, its figures' data, and what it must not need."""

from __future__ import annotations

import csv
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from steprs.errors import DependencyError, RunFolderError
from steprs.evaluation.compare import compare
from steprs.evaluation.result import EvalResult
from steprs.report import figures
from steprs.report.page import write_report
from steprs.report.runs import read_run, read_study

_spec = importlib.util.spec_from_file_location("report_study", Path(__file__).with_name("study.py"))
study = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(study)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return study.make_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def report(folder):
    return write_report(folder)


def test_tables_hold_the_statistics_of_the_evaluations(folder, report):
    centred = EvalResult.load(folder / "centred" / "eval.json")
    stepped = EvalResult.load(folder / "decreasing" / "eval.json")
    main = {row[0]: dict(zip(report.main.columns, row, strict=True)) for row in report.main.rows}
    assert list(main) == list(study.ARMS)
    assert main["centred GRPO"]["pass@4"] == centred.summary()["pass@4"]
    assert main["centred GRPO"]["distinct right@16"] == centred.summary()["distinct_right@16"]
    assert main["base, greedy"]["pass@16"] is None, "one sample has no pass@16"
    assert main["base, greedy"]["pass@1"].value == pytest.approx(14 / 40)
    difference = {row[0]: dict(zip(report.differences.columns, row, strict=True)) for row in report.differences.rows}
    assert "centred GRPO" not in difference
    assert difference["StepRS decreasing"]["pass@1"] == compare(stepped, centred)["pass@1"]


def test_files_hold_the_same_numbers(report):
    rows = list(csv.DictReader((report.page.parent / "tables" / "main.csv").open()))
    plain = json.loads((report.page.parent / "tables" / "main.json").read_text())
    assert float(rows[0]["pass@1"]) == plain["rows"][0]["pass@1"]["value"] == report.main.rows[0][1].value


def test_the_page_names_everything_and_escapes_model_text(report):
    page = report.page.read_text()
    assert "<script" not in page and "\x1b" not in page and "\u202e" not in page
    assert r"&lt;script&gt;alert(1)&lt;/script&gt; \| \`x\`" in page
    for file in report.files:
        assert file.stat().st_size > 0
        if file.suffix == ".png":
            where = file.relative_to(report.page.parent).as_posix()
            caption = page.split(f"]({where})\n\n")[1].splitlines()[0]
            assert caption.startswith("*") and caption.endswith(".*")
    assert len([file for file in report.files if file.suffix == ".png"]) == 4


def test_the_reading_says_what_cannot_be_told(report):
    text = "\n".join(report.reading)
    assert "centred GRPO: pass@1 0.439 against 0.291 of base: above, and the intervals are apart." in text
    assert "pass@16 +0.000 (cannot be told from 0)" in text
    assert "with 1 seed an arm" in text


def test_pass_at_k_curves(folder):
    curves = {curve.label: curve for curve in figures.pass_at_k_curves(read_study(folder))}
    summary = EvalResult.load(folder / "base" / "eval.json").summary()
    base = curves["base"]
    assert base.x.tolist() == list(range(1, 17))
    for k in (1, 4, 16):
        estimate = summary[f"pass@{k}"]
        assert (base.y[k - 1], base.low[k - 1], base.high[k - 1]) == pytest.approx(
            (estimate.value, estimate.low, estimate.high)
        )
    assert curves["base, greedy"].x.tolist() == [1.0]


def test_learning_curves(folder):
    read = read_study(folder)
    raw = {curve.label: curve for curve in figures.learning_curves(read, "reward/mean")}
    smooth = {curve.label: curve for curve in figures.learning_curves(read, "reward/mean", window=3)}
    dev = {curve.label: curve for curve in figures.learning_curves(read, "pass@1", dev=True)}
    assert list(raw) == ["centred GRPO", "StepRS decreasing"], "untrained arms have no curve"
    np.testing.assert_allclose(raw["centred GRPO"].y, 0.45 / 20 * np.arange(1, 21))
    np.testing.assert_allclose(smooth["centred GRPO"].y[[0, 1, -1]], 0.45 / 20 * np.array([1.5, 2.0, 19.5]))
    np.testing.assert_allclose(dev["StepRS decreasing"].x, [0, 10, 20])
    assert raw["centred GRPO"].low is None, "one seed has no band"


def test_grids_average_over_the_updates_that_have_a_value(folder):
    scale = figures.grids(read_study(folder), "scale_grid")[0]
    np.testing.assert_allclose(scale.values[1], 1.25)
    assert np.isnan(scale.values[0, 0]), "never an active token"
    assert scale.row_edges.tolist() == [0, 0.2, 0.4, 0.6, 0.8, 1]
    np.testing.assert_allclose(scale.column_edges, np.linspace(0, 1, 6))
    mass = figures.grids(read_study(folder), "mass_grid", empty=0.0)[0]
    assert mass.values.sum() == pytest.approx(1.0)


def test_an_empty_share_counts_as_nothing(folder):
    run = read_run(folder / "centred")
    filled = run.mean_grid("scale_grid", empty=0.0)
    assert filled[1, 1] == pytest.approx(1.25 / 2) and filled[0, 0] == 0.0


def test_seeds_are_averaged_and_banded(folder, tmp_path):
    root = tmp_path / "study"
    shutil.copytree(folder, root)
    study.write_run(root / "centred", 20, slope=0.01)
    shutil.copytree(root / "centred", root / "centred-1")
    study.write_run(root / "centred-1", 20, slope=0.03)
    manifest = json.loads((root / "manifest.json").read_text())
    manifest["arms"] = [{"label": "centred GRPO", "folders": ["centred", "centred-1"]}]
    (root / "manifest.json").write_text(json.dumps(manifest))
    curve = figures.learning_curves(read_study(root), "reward/mean")[0]
    np.testing.assert_allclose([curve.low[-1], curve.y[-1], curve.high[-1]], [0.2, 0.4, 0.6])


def test_a_torn_last_line_is_left_out_and_a_torn_middle_is_named(folder, tmp_path):
    assert len(read_run(folder / "centred").metrics) == 20, "the fixture ends with half a line"
    (tmp_path / "metrics.jsonl").write_text('{"update": 1}\n{"upd\n{"update": 3}\n')
    with pytest.raises(RunFolderError, match="line 2 is not JSON"):
        read_run(tmp_path)


def test_folders_that_cannot_be_read_are_named(folder, tmp_path):
    with pytest.raises(RunFolderError, match=r"has no manifest\.json"):
        write_report(tmp_path)
    shutil.copy(folder / "manifest.json", tmp_path)
    with pytest.raises(RunFolderError, match="base is not a folder"):
        write_report(tmp_path)
    for name in ("base", "base-greedy", "centred", "decreasing"):
        (tmp_path / name).mkdir()
    with pytest.raises(RunFolderError, match=r"no eval\.json"):
        write_report(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "baseline": "centered GRPO"}))
    with pytest.raises(RunFolderError, match="Did you mean 'centred GRPO'"):
        write_report(tmp_path)


def test_without_matplotlib_the_install_command_is_given(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DependencyError, match=r"pip install 'steprs\[plots\]'"):
        figures.draw_pass_at_k([], [], tmp_path / "x.png")


def test_a_process_without_torch_makes_the_report(folder, tmp_path):
    code = (
        "import sys; sys.modules['torch'] = None; from steprs.report.__main__ import main; "
        f"sys.exit(main([{str(folder)!r}, {str(tmp_path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (tmp_path / "report.md").is_file() and "StepRS decreasing" in done.stdout
