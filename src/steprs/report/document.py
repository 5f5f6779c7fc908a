"""What a report consists of, whichever format it is written in: sections of sentences, tables, figures and rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .style import ArmStyle, Panel
from .tables import Table


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """Panels that belong together, with one caption.

    Attributes:
        caption: how to read them.
        panels: side by side where there is room.
        legend: the arms drawn in all of them; empty where rows or panels are named.
        narrow: many small panels.
    """

    caption: str
    panels: tuple[Panel, ...]
    legend: tuple[ArmStyle, ...] = ()
    narrow: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedTable:
    """A table and the name of its files.

    Attributes:
        name: of the files, without ending.
        table: what it holds.
        display: "open", "folded" (on the page behind a click) or "file" (in the files only).
    """

    name: str
    table: Table
    display: Literal["open", "folded", "file"] = "open"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sentences:
    """A list of sentences; `warning` marks those that limit what the rest can say."""

    items: tuple[str, ...]
    warning: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """Which folders an arm was read from."""

    arms: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Viewer:
    """Rollouts to look at, as plain values for the page's script."""

    data: Mapping[str, Any]
    notes: tuple[str, ...]


Block = Figure | NamedTable | Sentences | Files | Viewer


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """Blocks under a heading.

    Attributes:
        title: the heading.
        anchor: unique in the report.
        blocks: in their order.
        level: 2, or 3 for a part of the section before it.
    """

    title: str
    anchor: str
    blocks: tuple[Block, ...]
    level: int = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A whole report.

    Attributes:
        title: of the study.
        claim: what it could show.
        facts: a few words each, for the line under the title.
        warnings: what is missing.
        notes: the study's own sentences.
        sections: the rest.
        made: how to make it again.
    """

    title: str
    claim: str
    facts: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    sections: tuple[Section, ...]
    made: str

    @property
    def tables(self) -> tuple[NamedTable, ...]:
        """Every table, in order."""
        return tuple(b for section in self.sections for b in section.blocks if isinstance(b, NamedTable))

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every figure, in order."""
        return tuple(b for section in self.sections for b in section.blocks if isinstance(b, Figure))
