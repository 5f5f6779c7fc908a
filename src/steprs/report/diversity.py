"""Diversity taken apart, and the course of denoising: statistics of the samples beside the primary outcomes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .results import Measured, judged_k
from .tables import Table

ANSWERS, GIVEN_ANSWER, JOINT = "answer_entropy_traced", "signature_entropy_given_answer", "signature_entropy_joint"

DENOISING: Mapping[str, str] = {
    "commit_progress": "committed",
    "commit_progress_right": "right ones",
    "commit_progress_wrong": "wrong ones",
    "reveal_order": "order",
    "backslide_rate": "backslides",
    "backslide_rate_wrong": "of the wrong",
}


def diversity_table(rows: Sequence[Measured]) -> Table:
    """Every measure of diversity that was taken, a row an arm."""
    most = judged_k(rows)
    named = {
        f"distinct@{most}": f"distinct answers@{most}",
        f"distinct_wrong@{most}": f"distinct wrong@{most}",
        f"distinct_right@{most}": f"distinct right@{most}",
        "effective_answers": "effective answers",
        "collision": "two samples differ",
        ANSWERS: "H(ans)",
        GIVEN_ANSWER: "H(sig|ans)",
        JOINT: "H(sig, ans)",
    }
    columns = {name: heading for name, heading in named.items() if any(name in row.summary for row in rows)}
    return Table(
        title="how different the samples of a problem are",
        columns=("arm", *columns.values()),
        rows=tuple((row.label, *(row.summary.get(name) for name in columns)) for row in rows),
        notes=(
            "Distinct wrong answers fall as accuracy rises, for no other reason. Effective answers: e to the entropy "
            "of the final answers."
            + (
                " H(sig, ans) = H(ans) + H(sig|ans), in nats: the last term is what goes beyond the final answer."
                if JOINT in columns
                else ""
            ),
        ),
    )


def denoising_table(rows: Sequence[Measured]) -> Table | None:
    """When answers are fixed, in which order, how often right ones are lost, and entropy over progress.

    None if the evaluations did not look into denoising.
    """
    seen = {name for row in rows for name in row.summary}
    columns = {name: heading for name, heading in DENOISING.items() if name in seen}
    columns |= {name: heading for name in sorted(seen) if (heading := _span(name)) is not None}
    cells = tuple((row.label, *(row.summary.get(name) for name in columns)) for row in rows)
    kept = tuple(row for row in cells if any(cell is not None for cell in row[1:]))
    if not columns:
        return None
    return Table(
        title="the course of denoising",
        columns=("arm", *columns.values()),
        rows=kept,
        notes=(
            "Committed: progress at which the final answer was fixed. Order: 1 from left to right, -1 from right to "
            "left. Backslides: right in some state, wrong in the end; among all samples, and among the wrong ones. "
            "Entropy: of the tokens revealed between two progresses, in nats.",
        ),
    )


def _span(name: str) -> str | None:
    """`entropy_tau_0.2_0.4` -> `entropy .2-.4`; None for another statistic."""
    if (found := re.fullmatch(r"entropy_tau_([\d.]+)_([\d.]+)", name)) is None:
        return None
    low, high = (f"{float(edge):g}".removeprefix("0") or "0" for edge in found.groups())
    return f"entropy {low} to {high}"


def decomposition(rows: Sequence[Measured]) -> list[tuple[str, float, float]]:
    """(arm, H(ans), H(sig|ans)) of the arms that have both; they add up to H(sig, ans)."""
    return [
        (row.label, row.summary[ANSWERS].value, row.summary[GIVEN_ANSWER].value)
        for row in rows
        if ANSWERS in row.summary and GIVEN_ANSWER in row.summary
    ]
