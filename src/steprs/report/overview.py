"""Several contexts beside each other: each arm's difference to the baseline of its own context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..evaluation.statistics import Estimate
from .results import Measured, primary_of
from .study import Context
from .tables import Cell, Table


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """A context with its evaluated arms."""

    context: Context
    rows: Sequence[Measured]

    @property
    def start(self) -> Estimate | None:
        """pass@1 of the policy that training starts from, at its own temperature (the base arm with most samples)."""
        bases = [row for row in self.rows if not row.arm.trained and "pass@1" in row.summary]
        return max(bases, key=lambda row: row.arm.evaluations[0].samples).summary["pass@1"] if bases else None

    def difference(self, label: str, name: str) -> Estimate | None:
        """An arm's difference to the baseline; None where it has none."""
        row = next((row for row in self.rows if row.label == label), None)
        return None if row is None or row.difference is None else row.difference.get(name)


def shared_labels(contexts: Sequence[Compared]) -> list[str]:
    """Trained arms with a difference in some context, in the order of their first appearance."""
    labels = [row.label for each in contexts for row in each.rows if row.arm.trained and row.difference is not None]
    return list(dict.fromkeys(labels))


def shared_outcomes(contexts: Sequence[Compared]) -> dict[str, str]:
    """Statistic -> heading of the primary outcomes that some context has."""
    found: dict[str, str] = {}
    for each in contexts:
        found |= primary_of(each.rows) if each.rows else {}
    return found


def overview_tables(contexts: Sequence[Compared]) -> dict[str, Table]:
    """A table for each primary outcome: arms by contexts, cells the difference to the context's baseline."""
    labels = shared_labels(contexts)
    headings = [heading_of(each) for each in contexts]
    tables: dict[str, Table] = {}
    for name, outcome in shared_outcomes(contexts).items():
        cells: list[tuple[Cell, ...]] = [
            (label, *(each.difference(label, name) for each in contexts)) for label in labels
        ]
        tables[name] = Table(
            title=f"{outcome}: difference to the baseline of each context",
            columns=("arm", *headings),
            rows=tuple(cells),
            signed=tuple(headings),
        )
    return tables


def heading_of(each: Compared) -> str:
    """The context's name, with the pass@1 that training started from."""
    start = each.start
    return each.context.name if start is None else f"{each.context.name} (base {start.value:.2f})"


def starts(contexts: Sequence[Compared]) -> Mapping[str, float]:
    """Context -> pass@1 of its base policy, where it was measured."""
    return {each.context.name: start.value for each in contexts if (start := each.start) is not None}
