"""A report as Markdown, for a terminal, a diff or a repository's web page; figures are beside it."""

from __future__ import annotations

import re
from functools import singledispatch
from pathlib import Path

from .document import Document, Figure, Files, NamedTable, Section, Sentences, Viewer
from .escape import escape_markdown
from .tables import to_markdown

PAGE = "index.html"


def markdown(document: Document, folder: Path) -> str:
    """The whole file.

    Args:
        document: what it says.
        folder: where the file will lie; figures are named relative to it.
    """
    head = [f"# {escape_markdown(document.title)}"]
    head += [escape_markdown(document.claim)] if document.claim else []
    head.append(" · ".join(escape_markdown(fact) for fact in document.facts))
    head += [f"**{escape_markdown(warning)}**" for warning in document.warnings]
    head += [escape_markdown(note) for note in document.notes]
    body = [text for section in document.sections for text in _section(section, folder)]
    return "\n\n".join([*head, *body, escape_markdown(document.made)]) + "\n"


def _section(section: Section, folder: Path) -> list[str]:
    return [
        f"{'#' * section.level} {escape_markdown(section.title)}",
        *(text for block in section.blocks for text in _block(block, folder)),
    ]


@singledispatch
def _block(block: object, folder: Path) -> list[str]:
    raise TypeError(f"no way to write a {type(block).__name__} as Markdown")


@_block.register
def _sentences(block: Sentences, folder: Path) -> list[str]:
    return ["\n".join(f"- {escape_markdown(item)}" for item in block.items)]


@_block.register
def _table(block: NamedTable, folder: Path) -> list[str]:
    if block.display != "open":
        title = escape_markdown(block.table.title)
        return [f"[{title}, {len(block.table.rows)} rows](tables/{block.name}.csv)"]
    return [to_markdown(block.table)]


@_block.register
def _figure(block: Figure, folder: Path) -> list[str]:
    images = [
        f"![{escape_markdown(panel.alt)}]({panel.files[0].relative_to(folder).as_posix()})" for panel in block.panels
    ]
    return ["\n".join(images), f"*{escape_markdown(block.caption)}*"]


@_block.register
def _files(block: Files, folder: Path) -> list[str]:
    lines = [
        f"- **{escape_markdown(label)}**: " + ", ".join(f"`{re.sub('[`]', '', name)}`" for name in names)
        for label, names in block.arms
    ]
    return ["\n".join(lines)]


@_block.register
def _viewer(block: Viewer, folder: Path) -> list[str]:
    return [f"Rollouts can be played step by step in [{PAGE}]({PAGE})."]
