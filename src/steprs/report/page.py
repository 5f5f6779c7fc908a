"""The report of a study: `report.md`, tables as CSV and JSON, figures as PNG. Everything from its folder alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import RunFolderError
from ..evaluation.compare import compare, summarise
from ..evaluation.statistics import Estimate
from . import figures
from .escape import escape_markdown
from .runs import Arm, Study, read_study
from .tables import Cell, Table, evaluation_notes, examples_table, to_csv, to_json, to_markdown

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


def write_report(folder: str | Path, output: str | Path | None = None) -> Report:
    """Write the report of a folder with a `manifest.json`.

    Args:
        folder: of a demo or study.
        output: where the report goes; the folder itself by default.

    Raises:
        RunFolderError: no manifest, or no arm of it was evaluated.
        DependencyError: matplotlib is missing; names the install command.
    """
    study = read_study(folder)
    measured = [arm for arm in study.arms if arm.evaluations]
    if not measured or not study.arm(study.baseline).evaluations:
        raise RunFolderError(f"{folder}: no eval.json in the baseline {study.baseline!r}; finish the runs first")
    out = Path(output or folder)
    main, differences = main_table(study, measured), difference_table(study, measured)
    sentences = reading(study, measured)
    pictures = _draw(study, out / "figures")
    files = [*_write_tables({"main": main, "differences": differences}, out / "tables"), *(p.file for p in pictures)]
    page = out / "report.md"
    page.write_text(_page(study, measured, main, differences, sentences, pictures, Path(folder), out), encoding="utf-8")
    return Report(page=page, main=main, differences=differences, reading=sentences, files=tuple(files))


def columns_of(measured: Sequence[Arm]) -> dict[str, str]:
    """Statistic -> heading, for the largest k that some arm has."""
    tries = sorted({k for arm in measured for result in arm.evaluations for k in result.k})
    return {
        **{f"pass@{k}": f"pass@{k}" for k in tries},
        f"distinct_right@{tries[-1]}": f"distinct right@{tries[-1]}",
        "collision_wrong": "wrong diversity",
        "answer_entropy": "answer entropy",
    }


def main_table(study: Study, measured: Sequence[Arm]) -> Table:
    """A row an arm, each statistic with its 95 % interval."""
    columns = columns_of(measured)
    rows: list[tuple[Cell, ...]] = []
    for arm in measured:
        summary = summarise(arm.evaluations)
        rows.append((arm.label, *(summary.get(name) for name in columns)))
    return Table(
        title=study.title, columns=("arm", *columns.values()), rows=tuple(rows), notes=(_interval_note(measured),)
    )


def difference_table(study: Study, measured: Sequence[Arm]) -> Table:
    """A row an arm: the paired difference to the baseline with its 95 % interval."""
    columns = columns_of(measured)
    baseline = study.arm(study.baseline)
    rows: list[tuple[Cell, ...]] = []
    for arm in measured:
        if arm.label == study.baseline:
            continue
        difference = compare(arm.evaluations, _baseline_for(arm, baseline))
        rows.append((arm.label, *(difference.get(name) for name in columns)))
    headings = tuple(columns.values())
    title = f"difference to {study.baseline}, paired by problem"
    return Table(title=title, columns=("arm", *headings), rows=tuple(rows), signed=headings)


def reading(study: Study, measured: Sequence[Arm]) -> tuple[str, ...]:
    """What can be told from the intervals, and what cannot."""
    baseline = study.arm(study.baseline)
    untrained = next((arm for arm in measured if not arm.trained), None)
    sentences = []
    for arm in (arm for arm in measured if arm.trained):
        if untrained is not None:
            sentences.append(_against_base(arm, untrained))
        if arm.label == study.baseline:
            continue
        difference = compare(arm.evaluations, _baseline_for(arm, baseline))
        told = [
            f"{column} {_in_words(difference[name])}"
            for name, column in columns_of(measured).items()
            if name in difference
        ]
        sentences.append(f"{arm.label} against {study.baseline}: {'; '.join(told)}.")
    seeds = min(len(arm.evaluations) for arm in measured if arm.trained) if any(a.trained for a in measured) else 0
    if 0 < seeds < 3:
        sentences.append(
            f"These intervals cover the choice of problems only: with {seeds} seed{'s' if seeds > 1 else ''} an arm, "
            "what another training seed would give is not in them."
        )
    return tuple(sentences)


def _against_base(arm: Arm, base: Arm) -> str:
    trained, start = summarise(arm.evaluations)["pass@1"], summarise(base.evaluations)["pass@1"]
    verdict = "above, and the intervals are apart" if trained.low > start.high else "the intervals are not apart"
    if trained.high < start.low:
        verdict = "below, and the intervals are apart"
    return f"{arm.label}: pass@1 {trained.value:.3f} against {start.value:.3f} of {base.label}: {verdict}."


def _in_words(estimate: Estimate) -> str:
    return f"{estimate.value:+.3f} ({'interval excludes 0' if estimate.excludes_zero else 'cannot be told from 0'})"


def _baseline_for(arm: Arm, baseline: Arm) -> list:
    """The baseline's evaluations, seed by seed where the arm has as many, else its first."""
    return baseline.evaluations if len(baseline.evaluations) == len(arm.evaluations) else baseline.evaluations[:1]


def _interval_note(measured: Sequence[Arm]) -> str:
    result = measured[0].evaluations[0]
    seeds = max(len(arm.evaluations) for arm in measured)
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


def _page(
    study: Study,
    measured: Sequence[Arm],
    main: Table,
    differences: Table,
    sentences: Sequence[str],
    pictures: Sequence[Figure],
    folder: Path,
    out: Path,
) -> str:
    parts = [f"# {escape_markdown(study.title)}", *(escape_markdown(note) for note in study.notes)]
    parts += ["## Results", to_markdown(main), to_markdown(differences)]
    parts += ["## Reading", "\n".join(f"- {escape_markdown(sentence)}" for sentence in sentences)]
    parts.append("## Figures")
    for picture in pictures:
        where = picture.file.relative_to(out).as_posix()
        parts += [f"### {picture.title}", f"![{picture.title}]({where})", f"*{escape_markdown(picture.caption)}*"]
    parts.append("## How it was decoded")
    parts.append("\n".join(_decoding_line(arm) for arm in measured))
    parts.append("## Completions")
    parts += [to_markdown(examples_table(arm.evaluations[0])) for arm in measured if arm.evaluations[0].examples]
    parts += ["## Files", "\n".join(_folder_line(arm, folder) for arm in study.arms)]
    parts.append(f"Made from these folders alone with `python -m steprs.report {folder.name.replace('`', '')}`.")
    return "\n\n".join(parts) + "\n"


def _decoding_line(arm: Arm) -> str:
    return f"- **{escape_markdown(arm.label)}**: " + escape_markdown("; ".join(evaluation_notes(arm.evaluations[0])))


def _folder_line(arm: Arm, folder: Path) -> str:
    names = ", ".join(f"`{run.path.relative_to(folder).as_posix()}/`" for run in arm.runs)
    return f"- **{escape_markdown(arm.label)}**: {names}"
