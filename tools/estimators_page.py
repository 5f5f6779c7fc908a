"""Bring the generated part of docs/estimators.md up to date: `python tools/estimators_page.py` (part of `make format`).

The table and the sections are made from what the estimators say about themselves; the introduction is written by hand.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from steprs.estimators.base import COLLECTORS
from steprs.estimators.listing import list_estimators, traits

PAGE = Path(__file__).resolve().parent.parent / "docs/estimators.md"
BLOCK = re.compile(r"(<!-- estimators -->\n)(.*?)(<!-- /estimators -->)", re.S)
READ = {
    "paper": "the paper",
    "code": "released code",
    "paper and code": "the paper and released code",
    "secondary": "secondary sources only",
    "ours": "this project",
}


def render() -> str:
    """The table of all estimators, what collectors fill, and a section for each."""
    records = list_estimators()
    table = ["| `advantage.estimator` | | what is peculiar | from |", "|---|---|---|---|"]
    for record in records:
        words = "; ".join([record["role"], *traits(record)])
        table.append(
            f"| [`{record['name']}`](#{record['name']}) | {record['title']} | {words} | {READ[record['read']]} |"
        )
    fields = [f"| `{name}` | {what} |" for name, what in COLLECTORS.items()]
    collected = ["Collected only where an estimator needs it:\n", "| field | what it is |", "|---|---|", *fields]
    return "\n".join([*table, "", *collected, "", *map(section, records)])


def section(record: dict[str, Any]) -> str:
    """Formula, settings and provenance of one estimator."""
    settings = ", ".join(f"`{name}={value}`" for name, value in record["settings"].items())
    cost = {"forwards": record["extra_forwards"], "verifier calls": record["verifier_calls"]}
    extra = "; ".join(f"{words}: {value}" for words, value in cost.items() if value != "none")
    lines = [
        f"Settings and defaults: {settings or 'none'}.",
        f"Sums to 0 over: {record['zero_sum']}. Depends on: {record['coupling']}. Differs by: {record['granularity']}.",
        f"Extra {extra}." if extra else "",
        f"Source: {record['source']}; read: {READ[record['read']]}; fidelity: {record['fidelity']}.",
        record["notes"],
    ]
    return "\n".join([f"## {record['name']}\n", record["formula"], "", *(f"- {line}" for line in lines if line), ""])


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda found: found[1] + render() + found[3], text, count=1), encoding="utf-8")
