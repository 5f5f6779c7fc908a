"""A report on a terminal: two lines a cell, so that intervals fit into 80 columns."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from ..evaluation.statistics import Estimate
from .escape import escape_terminal
from .tables import Cell, Table, show
from .write import Report


def show_report(report: Report) -> None:
    """The main tables, the reading of them, and where the files lie."""
    for table in report.tables:
        print_table(table)
    print()
    for warning in report.warnings:
        print(f"! {escape_terminal(warning)}")
    for sentence in report.reading:
        print(f"- {escape_terminal(sentence)}")
    print(f"\npage:    {report.page}\nreport:  {report.markdown}")
    for folder in sorted({file.parent for file in report.files}):
        print(f"{folder.name + ':':<8} {folder}/")


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table; labels are shown as they are, never read as markup.

    Args:
        table: what to print.
        console: where; standard output by default.
    """
    out = console or Console()
    grid, left_out = _grid(table), []
    for column in table.optional:
        if Measurement.get(out, out.options.update(max_width=10_000), grid).maximum <= out.width:
            break
        table = table.without(column)
        left_out.append(column)
        grid = _grid(table)
    out.print(grid)
    for note in [*table.notes, *([f"Not shown for want of width: {', '.join(left_out)}."] if left_out else [])]:
        out.print(Text(escape_terminal(note), style="dim"))


def _grid(table: Table) -> RichTable:
    table, counts = table.folded()
    title = Text(escape_terminal(table.title))
    grid = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    for column, at_left in zip(table.columns, table.left_aligned, strict=True):
        heading = Text("\n".join(escape_terminal(column).split()))
        grid.add_column(heading, justify="left" if at_left else "right", no_wrap=True)
    for row, count in zip(table.rows, counts, strict=True):
        cells = [_cell(cell, column in table.signed) for cell, column in zip(row, table.columns, strict=True)]
        if count:
            cells[0].append(f"\n{count}", style="dim")
        grid.add_row(*cells)
    return grid


def _cell(cell: Cell, signed: bool) -> Text:
    if not isinstance(cell, Estimate):
        return Text(escape_terminal(show(cell, signed=signed)))
    strong = "bold" if signed and cell.excludes_zero else ""
    text = Text(show(cell.value, signed=signed), style=strong)
    return text.append(f"\n{_short(cell.low, signed)} {_short(cell.high, signed)}", style="dim")


def _short(value: float, signed: bool) -> str:
    """Two decimals without the leading zero: `.44`, `+.02`, `1.03`.

    >>> _short(0.441, False), _short(-0.02, True), _short(1.03, False)
    ('.44', '-.02', '1.03')
    """
    text = f"{value:+.2f}" if signed else f"{value:.2f}"
    return text.replace("0.", ".", 1) if abs(value) < 0.995 else text
