"""A report from folders alone: its files say the same in every format, nothing in it reaches outside or runs."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from steprs.errors import DependencyError, RunFolderError
from steprs.report import style
from steprs.report.inline import inline_svg
from steprs.report.results import main_table, measure
from steprs.report.study import read_study
from steprs.report.write import write_report

VOID = {"meta", "link", "input", "br", "img", "hr"}
SHAPES = {"path", "use", "line", "rect"}


class Page(HTMLParser):
    """Tags that close, ids that are unique, references that exist, and all text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: set[str] = set()
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.headings: list[int] = []
        self.text: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name.startswith("on"):
                self.handlers.append(name)
            if name in {"href", "src", "xlink:href", "action"}:
                (self.references.add(value[1:]) if value.startswith("#") else self.addresses.append(value))
            self.references |= set(re.findall(r"url\(#([^)]+)\)", value or ""))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in {"script", "style"}:
            self.text.append(data)
            if self.rows and {"td", "th"} & set(self.open):
                self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def html(report):
    return report.page.read_text()


@pytest.fixture(scope="module")
def parsed(html):
    return Page(html)


class TestPage:
    def test_is_well_formed(self, parsed):
        assert parsed.open == []
        assert len(set(parsed.ids)) == len(parsed.ids), "an id belongs to one element"
        assert parsed.references <= set(parsed.ids)

    def test_reaches_nothing_outside(self, html, parsed):
        assert [a for a in parsed.addresses if not a.startswith(("tables/", "data:,"))] == []
        assert "http" not in html.replace("http-equiv", "")
        assert "default-src 'none'" in html and "@import" not in html

    def test_runs_nothing_that_a_model_wrote(self, html, parsed):
        assert html.count("<script") == 2, "the page's own, and the data"
        assert parsed.handlers == []
        assert not set("\x1b\u202e\u2028") & set(html)
        assert r"<script>alert(1)</script> | `x` \x1b[31m **bold** \u202e" in "".join(parsed.text)

    def test_hostile_labels_are_text_too(self, folder, tmp_path, made):
        shutil.copytree(folder, tmp_path / "study")
        manifest = json.loads((tmp_path / "study/manifest.json").read_text())
        manifest["title"] = manifest["claim"] = made.NASTY
        contexts = manifest["contexts"]
        contexts[0]["arms"] = contexts[0]["arms"][:4]
        contexts[0]["arms"][3]["label"] = f"_$x$ {made.NASTY} </svg>"
        (tmp_path / "study/manifest.json").write_text(json.dumps(manifest))
        report = write_report(tmp_path / "study")
        page = report.page.read_text()
        assert page.count("<script") == 2 and Page(page).open == [] and not set("\x1b\u202e") & set(page)
        for file in report.files:
            if file.suffix == ".svg":
                ElementTree.parse(file)

    def test_headings_descend_one_level_at_a_time(self, parsed):
        assert parsed.headings[0] == 1 and parsed.headings.count(1) == 1
        assert all(b <= a + 1 for a, b in zip(parsed.headings, parsed.headings[1:], strict=False))

    def test_shows_the_numbers_of_the_table(self, study, parsed):
        table = main_table("t", measure(study.contexts[0]))
        row = next(r for r in parsed.rows if r[0] == "flat3 seeds")
        expected = next(r for r in table.rows if r[0] == "flat")[2]
        assert row[1] == f"{expected.value:.3f}[{expected.low:.3f}, {expected.high:.3f}]"

    def test_the_policy_names_the_script_as_it_is(self, html):
        import base64
        import hashlib

        body = re.search(r"<script>(.*?)</script>", html, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"script-src 'sha256-{digest}'" in html

    def test_figures_are_drawings_with_an_alternative(self, html):
        drawings = re.findall(r'<svg viewBox[^>]*role="img"[^>]*>', html)
        assert len(drawings) >= 12 and all(re.search(r'aria-label="[^"]{20,}"', d) for d in drawings)
        assert "<image" not in html


class TestMarkdown:
    def test_escapes_model_text(self, report):
        text = report.markdown.read_text()
        assert "<script" not in text and "\x1b" not in text and "\u202e" not in text

    def test_names_every_picture(self, report):
        text = report.markdown.read_text()
        pictures = [file for file in report.files if file.suffix == ".png"]
        assert len(pictures) >= 12
        for file in pictures:
            assert f"]({file.relative_to(report.page.parent).as_posix()})" in text
            assert file.stat().st_size > 0 and file.with_suffix(".svg").stat().st_size > 0


class TestTables:
    def test_files_hold_the_same_numbers(self, report):
        folder = report.page.parent / "tables"
        rows = list(csv.DictReader((folder / "main.csv").open()))
        plain = json.loads((folder / "main.json").read_text())
        assert float(rows[0]["pass@1"]) == plain["rows"][0]["pass@1"]["value"] == report.tables[0].rows[0][2].value
        assert {file.stem for file in folder.glob("*.csv")} == {file.stem for file in folder.glob("*.json")} == {
            "main", "differences", "statistics", "controls", "endpoints", "matched", "diversity", "cost", "completions",
            "outcome-and-cost", "advantages",
        }  # fmt: skip

    def test_the_terminal_is_given_the_tables_that_matter(self, report):
        assert [table.columns[1] for table in report.tables] == ["seeds", "pairs"]
        assert report.warnings == () and len(report.reading) > 5


@pytest.fixture(scope="module")
def unfinished(folder, tmp_path_factory):
    """Two of three contexts have begun; one lacks its baseline; one arm was trained and not yet evaluated."""
    root = tmp_path_factory.mktemp("unfinished") / "study"
    shutil.copytree(folder, root)
    (root / "store/flat-1/eval.json").unlink()
    manifest = json.loads((root / "manifest.json").read_text())
    arms = {arm["label"]: arm for arm in manifest["contexts"][0]["arms"]}
    waiting = {**arms["flat"], "folders": ["store/flat-1"], "seeds": [1]}
    first = [arms["base"], arms["centred GRPO"], arms["StepRS decreasing"], waiting]
    manifest["contexts"] = [
        {"name": "weak base", "baseline": "centred GRPO", "arms": first},
        {"name": "strong base", "baseline": "centred GRPO", "arms": [arms["base"], arms["full"]]},
        {"name": "later", "baseline": "centred GRPO", "arms": []},
    ]
    manifest["coverage"] = {"runs_planned": 20, "runs_finished": 10}
    (root / "manifest.json").write_text(json.dumps(manifest))
    return write_report(root)


class TestUnfinished:
    def test_is_reported_with_what_is_missing(self, unfinished):
        assert unfinished.warnings[0].startswith("10 of 20 planned runs have finished")
        assert any("strong base: no run of the baseline" in warning for warning in unfinished.warnings)
        assert any("weak base: not evaluated" in w and "flat" in w for w in unfinished.warnings)
        page = Page(unfinished.page.read_text())
        assert page.open == [] and len(set(page.ids)) == len(page.ids)
        assert "10 of 20 planned runs" in "".join(page.text)

    def test_contexts_have_sections_files_and_an_overview(self, unfinished):
        names = {file.stem for file in unfinished.files if file.suffix == ".csv"}
        assert {"weak-base-main", "weak-base-differences", "strong-base-main", "overview-pass-1"} <= names
        assert "strong-base-differences" not in names, "no baseline, no differences"
        overview = json.loads((unfinished.page.parent / "tables/overview-pass-1.json").read_text())
        weak = json.loads((unfinished.page.parent / "tables/weak-base-differences.json").read_text())
        row = next(r for r in weak["rows"] if r["arm"] == "StepRS decreasing")
        assert overview["columns"][1].startswith("weak base (base 0.29)")
        assert overview["rows"][0][overview["columns"][1]] == row["pass@1"]


def test_runs_that_were_not_evaluated_still_have_curves(folder, tmp_path):
    shutil.copytree(folder / "store/flat-1", tmp_path / "flat-1", ignore=shutil.ignore_patterns("eval.json"))
    report = write_report(tmp_path / "flat-1", tmp_path / "out")
    assert {file.stem for file in report.files if file.suffix == ".csv"} == {"advantages", "cost"}
    assert (tmp_path / "out/figures/learning-reward.svg").is_file()
    assert "not evaluated" in report.warnings[0]


def test_nothing_finished_is_an_error(tmp_path):
    manifest = {
        "title": "t", "coverage": {"runs_planned": 1, "runs_finished": 0},
        "contexts": [{"name": "", "baseline": "a", "arms": []}],
    }  # fmt: skip
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RunFolderError, match="nothing in .* has finished"):
        write_report(tmp_path)


def test_without_matplotlib_the_install_command_is_given(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DependencyError, match=r"pip install 'steprs\[plots\]'"):
        write_report(folder, tmp_path)


@pytest.mark.parametrize("command", ["steprs.report.__main__", "steprs.cli"])
def test_a_process_without_torch_makes_the_report(folder, tmp_path, command):
    run = str(folder / "store/StepRS-decreasing-1")
    words = [run, str(tmp_path)] if "report" in command else ["report", run, "-o", str(tmp_path)]
    code = f"import sys; sys.modules['torch'] = None; from {command} import main; sys.exit(main({words!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (tmp_path / "index.html").is_file() and "StepRS" in done.stdout and "index.html" in done.stdout


def test_the_same_folder_gives_the_same_bytes(folder, tmp_path):
    run = folder / "store/flat-1"
    first, again = (write_report(run, tmp_path / name) for name in "ab")
    for one, other in zip(first.files, again.files, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    assert first.page.read_bytes() == again.page.read_bytes()


class TestInline:
    FILE = (
        '<?xml version="1.0"?>\n<!DOCTYPE svg PUBLIC "x" "http://a">\n'
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://x" width="9pt" viewBox="0 0 9 9">'
        '<metadata>http://y</metadata><defs><style type="text/css">*{}</style><path id="m1"/></defs>'
        '<g id="arm-2.7"><use xlink:href="#m1" style="fill: #0072b2"/></g><g id="g" clip-path="url(#m1)"/>'
        '<text style="font: 9px \'DejaVu Sans\'">id="m1" #0072b2 &lt;b&gt;</text></svg>'
    )

    def test_ids_classes_and_colours(self):
        text = inline_svg(self.FILE, prefix="p", alt="a < b")
        assert text.startswith('<svg viewBox="0 0 9 9" role="img" aria-label="a &lt; b"')
        assert '<path id="p-m1"/>' in text and 'href="#p-m1"' in text and "url(#p-m1)" in text
        assert 'class="arm arm-2"' in text and 'id="p-g"' not in text, "nothing refers to it"
        assert "fill: var(--series-1)" in text and "http" not in text and "<style" not in text

    def test_text_is_left_alone(self):
        assert 'id="m1" #0072b2 &lt;b&gt;' in inline_svg(self.FILE, prefix="p", alt="")


class TestStyles:
    def test_arms_differ_by_colour_or_dash(self, study):
        styles = style.arm_styles(study.contexts[0].arms, "centred GRPO").values()
        assert len({(s.colour, str(s.dash)) for s in styles}) == len(study.contexts[0].arms)

    def test_of_a_crowd_only_the_baseline_has_a_colour(self, study):
        arms = [study.contexts[0].find("flat")] * 13 + [study.contexts[0].find("centred GRPO")]
        styles = style.arm_styles(arms, "centred GRPO")
        assert styles["flat"].colour == style.MUTED and styles["centred GRPO"].colour == style.COLOURS[0]


def test_reading_a_report_again_changes_nothing_in_the_runs(folder, report):
    assert not (folder / "report.md").exists() and read_study(folder).title == "A made-up study"
