"""A result as plain cells under column names; how it is printed is the command's business."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Sheet:
    """Rows of cells.

    Attributes:
        title: one line.
        columns: names; the first column holds the row's label.
        rows: numbers and text; None where there is no value.
        signed: columns that hold differences.
        notes: sentences below the table.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[float | int | str | None, ...], ...]
    signed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
