"""Bring the generated parts of the documentation up to date: `python tools/made_pages.py` (part of `make format`).

docs/estimators.md says what the estimators say of themselves, docs/settings.md what the settings do.
What stands outside the markers is written by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from steprs.configs.listing import by_section, describe_section, list_settings
from steprs.estimators.base import COLLECTORS
from steprs.estimators.listing import list_estimators, traits

DOCS = Path(__file__).resolve().parent.parent / "docs"
BLOCK = re.compile(r"(<!-- made: (\S+) -->\n)(.*?)(<!-- /made -->)", re.S)
READ = {
    "paper": "the paper",
    "code": "released code",
    "paper and code": "the paper and released code",
    "secondary": "secondary sources only",
    "ours": "this project",
}


def estimators() -> str:
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
    return "\n".join([*table, "", *collected, "", *map(estimator, records)])


def estimator(record: dict[str, Any]) -> str:
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


def run_settings() -> str:
    """A table for every section of a run file."""
    return settings("run")


def pretrain_settings() -> str:
    """A table for every section of a pretraining file that a run file does not have."""
    return settings("pretrain", without={record["key"] for record in list_settings("run") if "." in record["key"]})


def settings(kind: str, without: Collection[str] = ()) -> str:
    """Tables of one kind of file, without the keys named."""
    records = [record for record in list_settings(kind) if record["key"] not in without]
    lines = []
    for section, found in by_section(records).items():
        if section:
            lines += [f"### {section}\n", describe_section(section, kind), ""]
        lines += ["| setting | default | allowed | |", "|---|---|---|---|"]
        for record in found:
            row = [f"`{record['key']}`", f"`{json.dumps(record['default'])}`", record["allowed"], record["meaning"]]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
        lines.append("")
    return "\n".join(lines)


MADE = {"estimators": estimators, "run-settings": run_settings, "pretrain-settings": pretrain_settings}


def rendered(text: str) -> str:
    """The page with everything between markers made again."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{MADE[found[2]]()}\n{found[4]}", text)


if __name__ == "__main__":
    for page in DOCS.glob("*.md"):
        before = page.read_text(encoding="utf-8")
        if (after := rendered(before)) != before:
            page.write_text(after, encoding="utf-8")
