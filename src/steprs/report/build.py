"""From a study to a report's sections, in the order in which a reader asks."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from . import figures
from .costs import cost_table, outcome_table
from .diversity import denoising_table, diversity_table
from .document import Block, Document, Files, NamedTable, Section, Sentences
from .endpoints import endpoint_table, endpoints
from .figures import Drawer
from .frontier import matched_table
from .overview import Compared, overview_tables
from .reading import coverage, reading
from .results import Measured, control_table, difference_table, main_table, measure, primary_of, statistics_table
from .spent import spent_table
from .study import Context, Study
from .tables import Cell, Table, decoding_notes, examples_table
from .viewer import viewer

READING = "Reading"
Display = Literal["open", "folded", "file"]


def build(study: Study, folder: Path) -> Document:
    """The document, whose figures are drawn into `folder`.

    Args:
        study: what is reported.
        folder: of the figures.

    Raises:
        DependencyError: matplotlib is missing.
        ArgumentError: arms of one context were evaluated on different problems.
    """
    compared = tuple(Compared(context=context, rows=measure(context)) for context in study.contexts)
    many = len(compared) > 1
    sections = list(_overview(compared, folder)) if many else []
    for number, each in enumerate(compared):
        prefix = f"{_slug(each.context.name) or number + 1}-" if many else ""
        parts = [section for section in _context(each, prefix, folder) if section.blocks]
        if many:
            sections.append(Section(title=each.context.name, anchor=f"context-{number + 1}", blocks=()))
            parts = [_lowered(section) for section in parts]
        sections += parts
    if (shown := viewer(study.contexts)) is not None:
        sections.append(Section(title="Rollouts", anchor="rollout-viewer", blocks=(shown,)))
    sections += [section for section in _provenance(study, compared) if section.blocks]
    return Document(
        title=study.title,
        claim=study.claim,
        facts=_facts(study, compared),
        warnings=coverage(study),
        notes=study.notes,
        sections=tuple(sections),
        made=f"Made from these folders alone with: steprs report {study.source}",
    )


def _context(each: Compared, prefix: str, folder: Path) -> Iterable[Section]:
    """The sections of one comparison; those without content are left out by the caller."""
    context, rows = each.context, each.rows
    drawer = Drawer.of(context, folder, prefix)

    def _section(title: str, *blocks: Block | None) -> Section:
        return Section(title=title, anchor=prefix + _slug(title), blocks=tuple(b for b in blocks if b is not None))

    def _named(name: str, table: Table | None, display: Display = "open") -> NamedTable | None:
        return None if table is None or not table.rows else NamedTable(name=prefix + name, table=table, display=display)

    if rows:
        sentences = reading(context, rows)
        grid = endpoints(rows)
        yield _section(READING, Sentences(items=sentences) if sentences else None)
        yield _section(
            "Results",
            _named("main", main_table("held-out problems" + _when(context), rows)),
            _named("differences", difference_table(context, rows)),
            figures.forest(drawer, context, rows),
            _named("statistics", statistics_table(context, rows), "file"),
        )
        yield _section("Matched controls", _named("controls", control_table(context, rows)))
        if grid is not None:
            outcomes = primary_of(rows)
            yield _section(
                "Endpoints of the schedule",
                figures.endpoint_maps(drawer, grid, outcomes),
                _named("endpoints", endpoint_table(grid, outcomes), "folded"),
            )
        yield _section("More tries", figures.tries(drawer, context))
    yield _section("The frontier", figures.frontier(drawer, context), _named("matched", matched_table(context)))
    yield _section("Learning", figures.learning(drawer, context))
    yield _section(
        "Where the advantage went", figures.spent(drawer, context), _named("advantages", spent_table(context))
    )
    if rows:
        yield _section("Diversity", figures.stacked_entropy(drawer, rows), _named("diversity", diversity_table(rows)))
        yield _section("Denoising", _named("denoising", denoising_table(rows)))
    yield _section(
        "Cost", _named("outcome-and-cost", outcome_table(context, rows)), _named("cost", cost_table(context), "folded")
    )


def _when(context: Context) -> str:
    """Which policies were measured, where it is the same for all runs."""
    mixed = any(run.measured_update is not None for arm in context.arms for run in arm.runs)
    return ", at different updates" if mixed else ", after the last update"


def _overview(compared: Sequence[Compared], folder: Path) -> Iterable[Section]:
    blocks: list[Block] = []
    if (figure := figures.contexts_figure(folder, compared)) is not None:
        blocks.append(figure)
    for name, table in overview_tables(compared).items():
        if table.rows:
            blocks.append(NamedTable(name=f"overview-{_slug(name)}", table=table))
    if blocks:
        yield Section(title="Overview", anchor="overview", blocks=tuple(blocks))


def _provenance(study: Study, compared: Sequence[Compared]) -> Iterable[Section]:
    """How the evaluations were made, some completions, and the folders."""
    many = len(compared) > 1
    examples: list[tuple[Cell, ...]] = []
    decoding: dict[str, list[str]] = {}
    folders: list[tuple[str, tuple[str, ...]]] = []
    for each in compared:
        where = f"{each.context.name}: " if many else ""
        for row in each.rows:
            result = row.arm.evaluations[0]
            decoding.setdefault("; ".join(decoding_notes(result)), []).append(where + row.label)
            examples += [(where + row.label, *example) for example in examples_table(result).rows]
        folders += [
            (where + arm.label, tuple(_relative(run.path, study) for run in arm.runs)) for arm in each.context.arms
        ]
    table = Table(
        title="first completions of each arm", columns=("arm", "prompt", "completion", "verdict"), rows=tuple(examples)
    )
    completions = NamedTable(name="completions", table=table, display="folded")
    yield Section(title="Completions", anchor="completions", blocks=(completions,) if examples else ())
    alike = tuple(f"{', '.join(labels)}: {notes}" for notes, labels in decoding.items())
    blocks = (*((Sentences(items=alike),) if alike else ()), Files(arms=tuple(folders)))
    yield Section(title="Decoding and folders", anchor="folders", blocks=blocks)


def _facts(study: Study, compared: Sequence[Compared]) -> tuple[str, ...]:
    """Sizes, in a few words each."""
    rows: list[Measured] = [row for each in compared for row in each.rows]
    facts = []
    if rows:
        tasks = dict.fromkeys(row.arm.evaluations[0].task for row in rows)
        samples = max(row.arm.evaluations[0].samples for row in rows)
        facts += [", ".join(tasks), f"{rows[0].problems} held-out problems × {samples} samples"]
    trained = [arm for each in compared for arm in each.context.trained]
    if trained:
        counts = sorted({len(arm.runs) for arm in trained})
        span = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        facts += [
            f"{len({arm.label for arm in trained})} trained arms",
            f"{span} seed{'s' if counts[-1] > 1 else ''} each",
        ]
    if len(compared) > 1:
        facts.append(f"{len(compared)} contexts")
    if study.planned is not None:
        facts.append(f"{study.finished} of {study.planned} runs finished")
    return tuple(facts)


def _relative(path: Path, study: Study) -> str:
    """As the manifest names it; run folders given directly are named as they were given."""
    return os.path.relpath(path, study.folder) if study.folder is not None else path.as_posix()


def _lowered(section: Section) -> Section:
    return Section(title=section.title, anchor=section.anchor, blocks=section.blocks, level=3)


def _slug(text: str) -> str:
    """Letters, digits and hyphens, for names of files and anchors.

    >>> _slug("Base pass rate .06 (pretrained)")
    'base-pass-rate-06-pretrained'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
