"""`write_report`: a study or runs become a page, Markdown, tables and figures in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import RunFolderError
from .build import READING, build
from .document import NamedTable, Sentences
from .markdown import PAGE, markdown
from .page import page
from .study import read_source
from .tables import Table, to_csv, to_json


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What was written, and what a terminal shows of it.

    Attributes:
        page: `index.html`.
        markdown: `report.md`.
        tables: the main table and the differences of each context, and the overview if there are several.
        warnings: what is missing.
        reading: sentences that say what the tables show and what they cannot tell.
        files: tables and figures.
    """

    page: Path
    markdown: Path
    tables: tuple[Table, ...]
    warnings: tuple[str, ...]
    reading: tuple[str, ...]
    files: tuple[Path, ...]


def write_report(
    source: str | Path | Sequence[str | Path], output: str | Path | None = None, *, baseline: str | None = None
) -> Report:
    """Write the report of a study or demo folder, or of run folders.

    Args:
        source: one folder with a `manifest.json`, or run folders.
        output: where the report goes; by default the study's own folder, or `report` for run folders.
        baseline: label of the arm to compare with; the study's own, or the first run, by default.

    Raises:
        RunFolderError: a folder that cannot be used, or nothing in it that could be reported.
        DependencyError: matplotlib is missing; names the install command.

    Example: `write_report(["runs/a", "runs/b"], "report").page`.
    """
    folders = [source] if isinstance(source, str | Path) else list(source)
    if not folders:
        raise RunFolderError("no folder was given; name a study's folder, or run folders")
    study = read_source(folders, baseline)
    if not any(arm.evaluations or arm.trained for context in study.contexts for arm in context.arms):
        raise RunFolderError(
            f"nothing in {study.source} has finished: no eval.json and no metrics.jsonl; finish a run first"
        )
    out = Path(output) if output is not None else study.folder or Path("report")
    document = build(study, out / "figures")
    tables = _write_tables(document.tables, out / "tables")
    pictures = [file for figure in document.figures for panel in figure.panels for file in panel.files]
    target, text = out / PAGE, out / "report.md"
    target.write_text(page(document), encoding="utf-8")
    text.write_text(markdown(document, out), encoding="utf-8")
    read = [b for section in document.sections if section.title == READING for b in section.blocks]
    return Report(
        page=target,
        markdown=text,
        tables=tuple(named.table for named in document.tables if _is_shown(named.name)),
        warnings=document.warnings,
        reading=tuple(item for block in read if isinstance(block, Sentences) for item in block.items),
        files=(*tables, *pictures),
    )


def _is_shown(name: str) -> bool:
    return name.endswith(("main", "differences")) or name.startswith("overview-")


def _write_tables(tables: Sequence[NamedTable], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for named in tables:
        for ending, text in (("csv", to_csv(named.table)), ("json", to_json(named.table))):
            file = folder / f"{named.name}.{ending}"
            file.write_text(text + "\n", encoding="utf-8")
            written.append(file)
    return written
