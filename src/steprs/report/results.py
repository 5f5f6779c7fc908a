"""Held-out results: each arm's statistics, and their paired differences to the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..evaluation.compare import same_problems, stacked_metrics
from ..evaluation.statistics import SEEDS_NEEDED, Estimate, Floats, bootstrap_mean, paired_difference
from .study import Arm, Context
from .tables import Cell, Table

# Statistic -> heading. `{K}` is how many tries outcomes are judged at. Those that no evaluation has are left out.
COLUMNS: Mapping[str, str] = {
    "distinct_right@{K}": "distinct right@{K}",
    "collision_wrong": "wrong diversity",
    "answer_entropy": "answer entropy",
    "signature_entropy_given_answer": "H(sig|ans)",
}
# Tries that outcomes are judged at; with as many as samples pass@k is but a yes or no for each problem.
JUDGED_AT = 16
PRIMARY = ("pass@1", "pass@{K}", "distinct_right@{K}", "signature_entropy_given_answer")
MEANINGS: Mapping[str, str] = {
    "distinct right": "different right solutions among that many tries",
    "wrong diversity": "chance that two wrong samples differ",
    "answer entropy": "of the final answers, in nats, bias-corrected (Miller-Madow)",
    "H(sig|ans)": "entropy of the ways that lead to the same final answer, in nats",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """An evaluated arm.

    Attributes:
        arm: which.
        seeds: of its evaluations.
        values: [seeds, problems] of every statistic; NaN where a problem cannot tell.
        summary: mean and interval of every statistic.
        difference: the paired difference to the baseline; None for the baseline, and if that has not finished.
        pairs: seeds that the difference is averaged over.
    """

    arm: Arm
    seeds: tuple[int, ...]
    values: Mapping[str, Floats]
    summary: Mapping[str, Estimate]
    difference: Mapping[str, Estimate] | None = None
    pairs: int = 0

    @property
    def label(self) -> str:
        """The arm's."""
        return self.arm.label

    @property
    def problems(self) -> int:
        """Problems that each seed was evaluated on."""
        return len(self.arm.evaluations[0].problems)


def measure(context: Context) -> list[Measured]:
    """The evaluated arms of a context, in its order.

    Raises:
        ArgumentError: arms were evaluated on different problems, so that nothing can be paired.
    """
    bare = [_alone(arm) for arm in context.arms if arm.evaluated]
    for row in bare:
        for evaluation in row.arm.evaluations:
            same_problems(bare[0].arm.evaluations[0], evaluation)
    baseline = next((row for row in bare if row.label == context.baseline), None)
    return [row if baseline is None or row is baseline else _against(row, baseline) for row in bare]


def paired_rows(row: Measured, other: Measured) -> tuple[list[int], list[int]]:
    """Indices of the seeds that a difference pairs.

    Trained arms are paired by seed; those without a common one only if both have a single run. A policy measured once
    stands against every seed of the other side.
    """
    a, b = list(row.seeds), list(other.seeds)
    common = [seed for seed in a if seed in b] if row.arm.trained and other.arm.trained else []
    if common:
        return [a.index(seed) for seed in common], [b.index(seed) for seed in common]
    if row.arm.trained and other.arm.trained and len(a) + len(b) > 2:
        return [], []
    if 1 in (len(a), len(b)):
        return list(range(len(a))), list(range(len(b)))
    shared = min(len(a), len(b))
    return list(range(shared)), list(range(shared))


def difference(row: Measured, other: Measured) -> tuple[dict[str, Estimate], int]:
    """Every statistic that both have, as `row - other` paired by problem and seed, and the number of pairs."""
    rows, others = paired_rows(row, other)
    if not rows:
        return {}, 0
    found = {
        name: paired_difference(values[rows], other.values[name][others])
        for name, values in row.values.items()
        if name in other.values
    }
    return {name: estimate for name, estimate in found.items() if estimate.problems}, max(len(rows), len(others))


def judged_k(rows: Sequence[Measured]) -> int:
    """The tries that outcomes are judged at: 16 where some arm has a pass@k for it, else the most."""
    tries = _tries(rows)
    return JUDGED_AT if JUDGED_AT in tries else tries[-1]


def _tries(rows: Sequence[Measured]) -> list[int]:
    return sorted({k for row in rows for result in row.arm.evaluations for k in result.k})


def columns_of(rows: Sequence[Measured]) -> dict[str, str]:
    """Statistic -> heading: pass@k for every k that some arm has, then those of `COLUMNS` that were measured."""
    judged = judged_k(rows)
    named = {f"pass@{k}": f"pass@{k}" for k in _tries(rows)}
    named |= {name.format(K=judged): heading.format(K=judged) for name, heading in COLUMNS.items()}
    return {name: heading for name, heading in named.items() if any(name in row.summary for row in rows)}


def primary_of(rows: Sequence[Measured]) -> dict[str, str]:
    """Statistic -> heading of the outcomes that a study is judged by, as far as they were measured."""
    columns, judged = columns_of(rows), judged_k(rows)
    names = dict.fromkeys(name.format(K=judged) for name in PRIMARY)
    return {name: columns[name] for name in names if name in columns}


def main_table(title: str, rows: Sequence[Measured]) -> Table:
    """A row an arm: number of seeds, and each statistic with its 95 % interval."""
    columns = columns_of(rows)
    cells = tuple((row.label, len(row.seeds), *(row.summary.get(name) for name in columns)) for row in rows)
    return Table(
        title=title, columns=("arm", "seeds", *columns.values()), rows=cells, notes=(_note(rows, columns),),
        under="seeds", optional=_optional(rows),
    )  # fmt: skip


def difference_table(context: Context, rows: Sequence[Measured]) -> Table:
    """A row an arm: the paired difference to the baseline with its 95 % interval."""
    columns = columns_of(rows)
    headings = tuple(columns.values())
    cells = tuple(
        (row.label, row.pairs, *(row.difference.get(name) for name in columns))
        for row in rows
        if row.difference is not None
    )
    return Table(
        title=f"difference to {context.baseline}, paired by problem and seed",
        columns=("arm", "pairs", *headings),
        rows=cells,
        signed=headings,
        under="pairs",
        optional=_optional(rows),
    )


def statistics_table(context: Context, rows: Sequence[Measured]) -> Table:
    """Every statistic of every arm, one a row, for whoever looks for one that the main table leaves out."""
    cells: list[tuple[Cell, ...]] = [
        (row.label, name, estimate, None if row.difference is None else row.difference.get(name))
        for row in rows
        for name, estimate in row.summary.items()
    ]
    against = f"difference to {context.baseline}"
    return Table(
        title="every statistic", columns=("arm", "statistic", "value", against), rows=tuple(cells), signed=(against,)
    )


def control_table(context: Context, rows: Sequence[Measured]) -> Table | None:
    """The full method minus each matched control: what the thing that the control removes is worth.

    None unless one arm has the field `risk.control: full` and another a different control.
    """
    controls = {row.arm.fields.get("risk.control"): row for row in rows if row.arm.fields.get("risk.control")}
    full = controls.pop("full", None)
    if full is None or not controls:
        return None
    columns = primary_of(rows)
    cells: list[tuple[Cell, ...]] = []
    for name, row in controls.items():
        found, pairs = difference(full, row)
        cells.append((str(name), ISOLATES.get(str(name), MISSING), pairs, *(found.get(column) for column in columns)))
    headings = tuple(columns.values())
    return Table(
        title=f"{full.label} minus each matched control",
        columns=("control", "isolates", "pairs", *headings),
        rows=tuple(cells),
        signed=headings,
        under="pairs",
    )


MISSING = "–"
ISOLATES: Mapping[str, str] = {
    "flat": "which denoising states get the prompt's mass",
    "constant": "variation over states, at the mass of the base pass rate",
    "reverse": "direction",
    "shuffle-token": "order of coefficients over tokens",
    "shuffle-state": "order of coefficients over states",
    "state-only": "reweighting of prompts",
    "centred": "the whole transformation",
}


def _alone(arm: Arm) -> Measured:
    values = stacked_metrics(arm.evaluations)
    found = {name: bootstrap_mean(stacked) for name, stacked in values.items()}
    return Measured(
        arm=arm,
        seeds=tuple(seed for seed, _ in arm.evaluated),
        values=values,
        summary={name: estimate for name, estimate in found.items() if estimate.problems},
    )


def _against(row: Measured, baseline: Measured) -> Measured:
    found, pairs = difference(row, baseline)
    if not pairs:
        return row
    return Measured(arm=row.arm, seeds=row.seeds, values=row.values, summary=row.summary, difference=found, pairs=pairs)


def _optional(rows: Sequence[Measured]) -> tuple[str, ...]:
    """Headings beside the primary outcomes, the last ones first."""
    primary = primary_of(rows)
    return tuple(heading for name, heading in reversed(columns_of(rows).items()) if name not in primary)


def _note(rows: Sequence[Measured], columns: Mapping[str, str]) -> str:
    result = rows[0].arm.evaluations[0]
    counts = [len(row.seeds) for row in rows if row.arm.trained]
    over = "problems, and over seeds where an arm has at least three" if max(counts, default=0) >= SEEDS_NEEDED else (
        "problems"
    )  # fmt: skip
    headings = [heading.partition("@")[0] for heading in columns.values()]
    meanings = " ".join(f"{name[0].upper()}{name[1:]}: {text}." for name, text in MEANINGS.items() if name in headings)
    return (
        f"[95 % bootstrap interval over {over}]; {len(result.problems)} held-out problems of {result.task} "
        f"({result.split}). {meanings}"
    )
