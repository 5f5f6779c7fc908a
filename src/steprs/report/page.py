"""The report of a study: `report.md`, tables as CSV and JSON, figures as PNG. Everything from its folder alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import RunFolderError
from ..evaluation.compare import compare, summarise
from ..evaluation.result import EvalResult
from ..evaluation.statistics import Estimate
from . import figures
from .escape import escape_markdown
from .runs import Arm, Study, read_study
from .tables import Table, evaluation_notes, examples_table, to_csv, to_json, to_markdown

SMOOTHING = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What was written.

    Attributes:
        page: `report.md`.
        main, differences: the two tables that matter.
        reading: sentences that say what the tables show and what they cannot tell.
        files: tables and figures.
    """

    page: Path
    main: Table
    differences: Table
    reading: tuple[str, ...]
    files: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A picture of the page: its file, what it is called, and the sentence under it."""

    file: Path
    title: str
    caption: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """An arm with its statistics, and their paired differences to the baseline (None for the baseline itself)."""

    arm: Arm
    summary: Mapping[str, Estimate]
    difference: Mapping[str, Estimate] | None


def write_report(folder: str | Path, output: str | Path | None = None) -> Report:
    """Write the report of a folder with a `manifest.json`.

    Args:
        folder: of a demo or study.
        output: where the report goes; the folder itself by default.

    Raises:
        RunFolderError: no manifest, or the baseline was not evaluated.
        DependencyError: matplotlib is missing; names the install command.
    """
    study = read_study(folder)
    rows = measured_arms(study)
    out = Path(output or folder)
    main, differences, sentences = main_table(study, rows), difference_table(study, rows), reading(study, rows)
    pictures = _draw(study, out / "figures")
    files = [*_write_tables({"main": main, "differences": differences}, out / "tables"), *(p.file for p in pictures)]
    parts = [
        *_head(study, main, differences, sentences),
        *_figures(pictures, out),
        *_details(study, rows, Path(folder)),
    ]
    page = out / "report.md"
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return Report(page=page, main=main, differences=differences, reading=sentences, files=tuple(files))


def measured_arms(study: Study) -> list[Measured]:
    """The evaluated arms of a study with their statistics.

    Raises:
        RunFolderError: the baseline was not evaluated.
    """
    baseline = study.arm(study.baseline)
    if not baseline.evaluations:
        raise RunFolderError(f"no eval.json in the folders of the baseline {study.baseline!r}; finish its runs first")
    return [
        Measured(
            arm=arm,
            summary=summarise(arm.evaluations),
            difference=None if arm is baseline else compare(arm.evaluations, _baseline_for(arm, baseline)),
        )
        for arm in study.arms
        if arm.evaluations
    ]


def columns_of(rows: Sequence[Measured]) -> dict[str, str]:
    """Statistic -> heading, for every k that some arm has."""
    tries = sorted({k for row in rows for result in row.arm.evaluations for k in result.k})
    return {
        **{f"pass@{k}": f"pass@{k}" for k in tries},
        f"distinct_right@{tries[-1]}": f"distinct right@{tries[-1]}",
        "collision_wrong": "wrong diversity",
        "answer_entropy": "answer entropy",
    }


def main_table(study: Study, rows: Sequence[Measured]) -> Table:
    """A row an arm, each statistic with its 95 % interval."""
    columns = columns_of(rows)
    cells = tuple((row.arm.label, *(row.summary.get(name) for name in columns)) for row in rows)
    return Table(title=study.title, columns=("arm", *columns.values()), rows=cells, notes=(_interval_note(rows),))


def difference_table(study: Study, rows: Sequence[Measured]) -> Table:
    """A row an arm: the paired difference to the baseline with its 95 % interval."""
    columns = columns_of(rows)
    cells = tuple(
        (row.arm.label, *(row.difference.get(name) for name in columns)) for row in rows if row.difference is not None
    )
    headings = tuple(columns.values())
    title = f"difference to {study.baseline}, paired by problem"
    return Table(title=title, columns=("arm", *headings), rows=cells, signed=headings)


def reading(study: Study, rows: Sequence[Measured]) -> tuple[str, ...]:
    """What can be told from the intervals, and what cannot."""
    columns = columns_of(rows)
    untrained = next((row for row in rows if not row.arm.trained), None)
    trained = [row for row in rows if row.arm.trained]
    sentences = []
    for row in trained:
        if untrained is not None:
            sentences.append(_against_base(row, untrained))
        if row.difference is not None:
            told = [
                f"{text} {_in_words(row.difference[name])}" for name, text in columns.items() if name in row.difference
            ]
            sentences.append(f"{row.arm.label} against {study.baseline}: {'; '.join(told)}.")
    seeds = min((len(row.arm.evaluations) for row in trained), default=0)
    if 0 < seeds < 3:
        sentences.append(
            f"These intervals cover the choice of problems only: with {seeds} seed{'s' if seeds > 1 else ''} an arm, "
            "what another training seed would give is not in them."
        )
    return tuple(sentences)


def _against_base(row: Measured, base: Measured) -> str:
    now, start = row.summary["pass@1"], base.summary["pass@1"]
    verdict = "the intervals are not apart"
    if now.low > start.high or now.high < start.low:
        verdict = f"{'above' if now.value > start.value else 'below'}, and the intervals are apart"
    return f"{row.arm.label}: pass@1 {now.value:.3f} against {start.value:.3f} of {base.arm.label}: {verdict}."


def _in_words(estimate: Estimate) -> str:
    return f"{estimate.value:+.3f} ({'interval excludes 0' if estimate.excludes_zero else 'cannot be told from 0'})"


def _baseline_for(arm: Arm, baseline: Arm) -> list[EvalResult]:
    """The baseline's evaluations, seed by seed where the arm has as many, else its first."""
    return baseline.evaluations if len(baseline.evaluations) == len(arm.evaluations) else baseline.evaluations[:1]


def _interval_note(rows: Sequence[Measured]) -> str:
    result = rows[0].arm.evaluations[0]
    seeds = max(len(row.arm.evaluations) for row in rows)
    over = "problems and seeds" if seeds >= 3 else "problems"
    return (
        f"[95 % bootstrap interval over {over}]; {len(result.problems)} held-out problems of {result.task} "
        f"({result.split}). "
        "Distinct right: different right solutions. Wrong diversity: "
        "chance that two wrong samples differ. Entropy in nats, bias-corrected (Miller-Madow)."
    )


def _write_tables(tables: dict[str, Table], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, table in tables.items():
        for ending, text in (("csv", to_csv(table)), ("json", to_json(table))):
            file = folder / f"{name}.{ending}"
            file.write_text(text + "\n", encoding="utf-8")
            written.append(file)
    return written


def _draw(study: Study, folder: Path) -> list[Figure]:
    labels = [arm.label for arm in study.arms]
    pass_at_k = figures.pass_at_k_curves(study)
    pictures = [
        Figure(
            file=figures.draw_pass_at_k(pass_at_k, labels, folder / "pass_at_k.png"),
            title="pass@k",
            caption="Chance that at least one of k samples is right, with 95 % bands over problems; "
            "a gain at k = 1 that is lost at the largest k is sharpening.",
        )
    ]
    train = figures.learning_curves(study, "reward/mean", window=SMOOTHING)
    dev = figures.learning_curves(study, "pass@1", dev=True)
    if train or dev:
        pictures.append(
            Figure(
                file=figures.draw_learning(train, dev, labels, folder / "learning.png"),
                title="Learning curves",
                caption=f"Mean reward of the training rollouts (moving average over {SMOOTHING} updates) and pass@1 on "
                "dev problems.",
            )
        )
    for name, title, centre, empty, label, caption in _GRIDS:
        if found := figures.grids(study, name, empty=empty):
            file = figures.draw_grids(found, folder / f"{name}.png", centre=centre, label=label)
            pictures.append(Figure(file=file, title=title, caption=caption))
    return pictures


_GRIDS = (
    (
        "scale_grid",
        "Mean advantage scale",
        1.0,
        None,
        "|A| / |r - mean r|",
        "How much an advantage was multiplied, by pass rate of the prompt's group and denoising progress, averaged "
        "over updates; 1 is centred GRPO, grey cells had no active token.",
    ),
    (
        "mass_grid",
        "Where the advantage was spent",
        None,
        0.0,
        "share of the sum of |A|",
        "Share of each update's total absolute advantage, by the same two coordinates, averaged over "
        "updates; the cells of a panel sum to 1.",
    ),
)


def _head(study: Study, main: Table, differences: Table, sentences: Sequence[str]) -> list[str]:
    return [
        f"# {escape_markdown(study.title)}",
        *(escape_markdown(note) for note in study.notes),
        "## Results",
        to_markdown(main),
        to_markdown(differences),
        "## Reading",
        "\n".join(f"- {escape_markdown(sentence)}" for sentence in sentences),
    ]


def _figures(pictures: Sequence[Figure], out: Path) -> list[str]:
    parts = ["## Figures"]
    for picture in pictures:
        where = picture.file.relative_to(out).as_posix()
        parts += [f"### {picture.title}", f"![{picture.title}]({where})", f"*{escape_markdown(picture.caption)}*"]
    return parts


def _details(study: Study, rows: Sequence[Measured], folder: Path) -> list[str]:
    first = [(row.arm.label, row.arm.evaluations[0]) for row in rows]
    decoding = [
        f"- **{escape_markdown(label)}**: {escape_markdown('; '.join(evaluation_notes(r)))}" for label, r in first
    ]
    return [
        "## How it was decoded",
        "\n".join(decoding),
        "## Completions",
        *(to_markdown(examples_table(result)) for _, result in first if result.examples),
        "## Files",
        "\n".join(_folder_line(arm, folder) for arm in study.arms),
        f"Made from these folders alone with `python -m steprs.report {folder.name.replace('`', '')}`.",
    ]


def _folder_line(arm: Arm, folder: Path) -> str:
    names = ", ".join(f"`{run.path.relative_to(folder).as_posix()}/`" for run in arm.runs)
    return f"- **{escape_markdown(arm.label)}**: {names}"
