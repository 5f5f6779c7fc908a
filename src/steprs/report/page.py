"""A report as one HTML file that fetches nothing: style, script, figures and rollouts are inside."""

from __future__ import annotations

import base64
import hashlib
import html
from functools import singledispatch
from importlib import resources
from string import Template

from ..evaluation.statistics import Estimate
from .document import Document, Figure, Files, NamedTable, Section, Sentences, Viewer
from .elements import Html, element, joined
from .escape import escape_terminal
from .style import PROPERTIES, ArmStyle
from .tables import Cell, Table, show
from .viewer import embedded

MANY_COLUMNS = 8


def page(document: Document) -> str:
    """The whole file.

    The policy in its head forbids every address, and every script but the file's own, which is named by its hash.
    """
    script = _data("page.js")
    digest = base64.b64encode(hashlib.sha256(("\n" + script).encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    viewers = [b for section in document.sections for b in section.blocks if isinstance(b, Viewer)]
    data = [f'<script type="application/json" id="rollouts">{embedded(viewer.data)}</script>' for viewer in viewers]
    return Template(_data("page.html")).substitute(
        policy=policy,
        title=html.escape(_plain(document.title)),
        style=_data("page.css"),
        contents=_contents(document.sections),
        head=_head(document),
        body=joined(*(_section(section) for section in document.sections)),
        footer=element("p", document.made),
        data="\n".join(data),
        script=script,
    )


def _data(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _contents(sections: tuple[Section, ...]) -> Html:
    """A list of the sections, those of level 3 inside the one before."""
    items: list[tuple[Section, list[Section]]] = []
    for section in sections:
        if section.level == 2 or not items:
            items.append((section, []))
        else:
            items[-1][1].append(section)
    return element(
        "ul",
        *(
            element("li", _link(top), element("ul", *(element("li", _link(s)) for s in parts)) if parts else "")
            for top, parts in items
        ),
    )


def _link(section: Section) -> Html:
    return element("a", _plain(section.title), href=f"#{section.anchor}")


def _head(document: Document) -> Html:
    parts = [element("p", _plain(document.claim), class_="claim")] if document.claim else []
    parts.append(element("p", *(element("span", _plain(fact)) for fact in document.facts), class_="facts"))
    if document.warnings:
        items = (element("li", _plain(warning)) for warning in document.warnings)
        parts.append(element("ul", *items, class_="warnings"))
    parts += [element("p", _plain(note), class_="notes") for note in document.notes]
    return joined(*parts)


def _section(section: Section) -> Html:
    heading = element(f"h{section.level}", _plain(section.title), id=section.anchor)
    return element("section", heading, *(_block(block) for block in section.blocks))


@singledispatch
def _block(block: object) -> Html:
    raise TypeError(f"no way to show a {type(block).__name__} on a page")


@_block.register
def _sentences(block: Sentences) -> Html:
    items = (element("li", _plain(item)) for item in block.items)
    return element("ul", *items, class_="warnings" if block.warning else "sentences")


@_block.register
def _named_table(block: NamedTable) -> Html:
    count = len(block.table.rows)
    size = f"{_plain(block.table.title)} ({count} row{'s' if count > 1 else ''})"
    if block.display == "file":
        link = element("a", size, href=f"tables/{block.name}.csv")
        return element("p", link, ", in the folder beside this page", class_="under")
    shown = _table(block.table)
    if block.display == "open":
        return joined(element("p", _plain(block.table.title), class_="title"), shown)
    return element("details", element("summary", size), shown, class_="folded")


@_block.register
def _figure(block: Figure) -> Html:
    kind = " narrow" if block.narrow else " three" if len(block.panels) == 3 else ""
    crowded = " crowded" if any(style.quiet for style in block.legend) else ""
    legend = element("ul", *(_entry(style) for style in block.legend), class_="legend") if block.legend else ""
    panels = element("div", *(Html(panel.svg) for panel in block.panels), class_=f"panels{kind}")
    return element("figure", legend, panels, element("figcaption", _plain(block.caption)), class_=f"drawn{crowded}")


@_block.register
def _files(block: Files) -> Html:
    return element(
        "dl",
        *(
            element(
                "div", element("dt", _plain(label)), *(element("dd", element("code", _plain(name))) for name in names)
            )
            for label, names in block.arms
        ),
        class_="folders",
    )


@_block.register
def _viewer(block: Viewer) -> Html:
    return joined(Html(_data("viewer.html")), element("p", _plain(" ".join(block.notes)), class_="under"))


def _table(given: Table) -> Html:
    table, counts = given.folded()
    at_left = table.left_aligned
    head = (
        element("th", _plain(column), scope="col", class_="text" if left else False)
        for column, left in zip(table.columns, at_left, strict=True)
    )
    body = (
        element(
            "tr",
            element("th", _plain(show(row[0])), element("small", count) if count else "", scope="row"),
            *(_cell(table, cell, column) for cell, column in zip(row[1:], table.columns[1:], strict=True)),
        )
        for row, count in zip(table.rows, counts, strict=True)
    )
    dense = "dense" if len(table.columns) > MANY_COLUMNS else False
    shown = element("table", element("thead", element("tr", *head)), element("tbody", *body), class_=dense)
    # A region that scrolls must be reachable by keyboard.
    scroller = element("div", shown, class_="wide", tabindex=0, role="region", aria_label=_plain(table.title))
    notes = element("p", _plain(" ".join(table.notes)), class_="under") if table.notes else ""
    return joined(scroller, notes)


def _cell(table: Table, cell: Cell, column: str) -> Html:
    if isinstance(cell, str):
        return element("td", _plain(cell), class_="text")
    value, _, ends = table.show(cell, column).replace("-", "−").partition(" ")
    told = isinstance(cell, Estimate) and column in table.signed and cell.excludes_zero
    return element("td", value, element("small", ends) if ends else "", class_="told" if told else False)


def _entry(style: ArmStyle) -> Html:
    """A legend's entry: a piece of the arm's line, and its name."""
    colour = f"var({PROPERTIES[style.colour]})"
    dash = "" if style.dash == "-" else " ".join(f"{1.7 * length:g}" for length in style.dash[1])
    line = element("line", x1=0, y1=6, x2=32, y2=6, stroke=colour, stroke_width=2, stroke_dasharray=dash or False)
    mark = element("path", d=_MARKS[style.marker], fill=colour, stroke=colour, transform="translate(16 6)")
    sample = element("svg", line, mark, viewBox="0 0 32 12", aria_hidden="true")
    name = element("span", _plain(style.label))
    return element("li", element("button", sample, name, type="button", data_arm=style.key, aria_pressed="false"))


_MARKS = {
    "o": "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0Z",
    "s": "M-3.2-3.2H3.2V3.2H-3.2Z",
    "D": "M0-4.2L4.2 0L0 4.2L-4.2 0Z",
    "d": "M0-4.2L2.6 0L0 4.2L-2.6 0Z",
    "v": "M-4-3H4L0 4Z",
    "^": "M-4 3H4L0-4Z",
    "P": "M-1.3-4H1.3V-1.3H4V1.3H1.3V4H-1.3V1.3H-4V-1.3H-1.3Z",
    "X": "M-4-2.2L-2.2-4L0-1.8L2.2-4L4-2.2L1.8 0L4 2.2L2.2 4L0 1.8L-2.2 4L-4 2.2L-1.8 0Z",
}


def _plain(text: str) -> str:
    """Text with every invisible character shown by its number: a label or a completion may hold anything."""
    return escape_terminal(text)
