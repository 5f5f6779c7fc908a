"""Diversity taken apart: different answers, and different ways to the same answer."""

from __future__ import annotations

from collections.abc import Sequence

from .results import Measured, largest_k
from .tables import Table

ANSWERS, GIVEN_ANSWER, JOINT = "answer_entropy_traced", "signature_entropy_given_answer", "signature_entropy"


def diversity_table(rows: Sequence[Measured]) -> Table:
    """Every measure of diversity that was taken, a row an arm."""
    most = largest_k(rows)
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


def decomposition(rows: Sequence[Measured]) -> list[tuple[str, float, float]]:
    """(arm, H(ans), H(sig|ans)) of the arms that have both; they add up to H(sig, ans)."""
    return [
        (row.label, row.summary[ANSWERS].value, row.summary[GIVEN_ANSWER].value)
        for row in rows
        if ANSWERS in row.summary and GIVEN_ANSWER in row.summary
    ]
