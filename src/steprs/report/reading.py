"""Sentences made from the intervals: what can be told, what cannot, and how small an effect could have been seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..evaluation.statistics import SEEDS_NEEDED, Estimate
from .results import Measured, primary_of
from .study import Context, Study

MANY_ARMS = 8
# Some updates are skipped in any run whose policy is far too weak or nearly perfect; from here on it is the result.
MANY_SKIPPED = 0.2


def coverage(study: Study) -> tuple[str, ...]:
    """Sentences on what is missing of a study."""
    sentences = []
    if study.unfinished:
        sentences.append(
            f"{study.finished} of {study.planned} planned runs have finished. What follows is made from these alone; "
            "arms and seeds that are missing may change it."
        )
    for context in study.contexts:
        where = f"{context.name}: " if context.name else ""
        if context.find(context.baseline) is None:
            sentences.append(
                f"{where}no run of the baseline {context.baseline} has finished, so there are no differences."
            )
        if waiting := [arm.label for arm in context.arms if not arm.evaluations]:
            sentences.append(f"{where}not evaluated, so in no table of results: {', '.join(waiting)}.")
        sentences += [
            f"{where}{arm.label}, seed {seed}: measured at update {run.measured_update}"
            + (" (the policy before training)" if run.measured_update == 0 else "")
            + ", not after the last one, so not at equal updates; `steprs eval RUN --checkpoint last` measures that."
            for arm in context.arms
            for seed, run in zip(arm.seeds, arm.runs, strict=True)
            if run.measured_update is not None
        ]
        sentences += [
            f"{where}{arm.label}, seed {seed}: {skipped} of {len(run.metrics)} updates changed nothing, because no "
            "rollout of theirs had an advantage."
            for arm in context.arms
            for seed, run in zip(arm.seeds, arm.runs, strict=True)
            if (skipped := sum(bool(record.get("skipped")) for record in run.metrics)) > MANY_SKIPPED * len(run.metrics)
        ]
    return tuple(sentences)


def reading(context: Context, rows: Sequence[Measured]) -> tuple[str, ...]:
    """What the results of a context say."""
    outcomes = primary_of(rows)
    trained = [row for row in rows if row.arm.trained]
    compared = [row for row in trained if row.difference is not None]
    sentences = [*_against_base(trained, [row for row in rows if not row.arm.trained])]
    told = [row for row in compared if any(_told(row.difference, outcomes))]
    for row in compared if len(compared) <= MANY_ARMS else told:
        sentences.append(_against_baseline(row, context.baseline, outcomes))
    if len(compared) > MANY_ARMS:
        sentences.append(
            f"For the other {len(compared) - len(told)} arms no outcome can be told apart from {context.baseline}."
        )
    if compared:
        sentences.append(
            "± is half the width of the 95 % interval: about the smallest effect that could have been told from 0."
        )
    sentences += _chance(compared, outcomes)
    sentences += _seeds(trained)
    return tuple(sentences)


def smallest_effect(estimate: Estimate) -> float:
    """Half the width of the interval: about the smallest effect that it could have told from 0."""
    return (estimate.high - estimate.low) / 2


def _against_base(trained: Sequence[Measured], bases: Sequence[Measured]) -> list[str]:
    """Did training help at all, and is it more than decoding at a lower temperature?"""
    if not trained or not bases:
        return []
    base = max(bases, key=lambda row: row.arm.evaluations[0].samples)
    start = base.summary["pass@1"]
    groups: dict[str, list[Measured]] = {"above": [], "below": [], "not apart from": []}
    for row in trained:
        now = row.summary["pass@1"]
        groups["above" if now.low > start.high else "below" if now.high < start.low else "not apart from"].append(row)
    parts = [f"{verdict} it: {_named(members, len(trained))}" for verdict, members in groups.items() if members]
    sentences = [f"pass@1 of {base.label} is {_interval(start)}. By their intervals, {'; '.join(parts)}."]
    best = max(trained, key=lambda row: row.summary["pass@1"].value)
    for row in bases:
        value = row.summary["pass@1"].value
        if row is not base and value > start.value:
            relation = "above" if value > best.summary["pass@1"].value else "below"
            sentences.append(
                f"{row.label} reaches {value:.3f} without training, {relation} the best trained arm as sampled "
                f"({best.summary['pass@1'].value:.3f}): part of any gain at one try is sharpening."
            )
    return sentences


def _named(members: Sequence[Measured], of: int) -> str:
    """Arms with their pass@1; of many arms only how many, and their range."""
    values = [row.summary["pass@1"].value for row in members]
    if of > MANY_ARMS:
        return f"{len(members)} arms ({min(values):.3f} to {max(values):.3f})"
    return ", ".join(f"{row.label} {value:.3f}" for row, value in zip(members, values, strict=True))


def _against_baseline(row: Measured, baseline: str, outcomes: Mapping[str, str]) -> str:
    assert row.difference is not None
    told, open_ = [], []
    for name, heading in outcomes.items():
        if (estimate := row.difference.get(name)) is None:
            continue
        if estimate.excludes_zero:
            told.append(f"{heading} {estimate.value:+.3f} [{estimate.low:+.3f}, {estimate.high:+.3f}]")
        else:
            open_.append(f"{heading} {estimate.value:+.3f} ± {smallest_effect(estimate):.3f}")
    parts = []
    if told:
        parts.append("told apart from 0: " + ", ".join(told))
    if open_:
        parts.append("cannot be told from 0: " + ", ".join(open_))
    return f"{row.label} against {baseline}: {'; '.join(parts)}."


def _chance(compared: Sequence[Measured], outcomes: Mapping[str, str]) -> list[str]:
    """With many intervals some exclude 0 although nothing is there."""
    verdicts = [told for row in compared for told in _told(row.difference, outcomes)]
    if len(verdicts) < 2 * len(outcomes):
        return []
    return [
        f"{sum(verdicts)} of these {len(verdicts)} intervals exclude 0; if there were no effect at all, about "
        f"{max(1, round(0.05 * len(verdicts)))} would be expected to."
    ]


def _seeds(trained: Sequence[Measured]) -> list[str]:
    seeds = min((len(row.seeds) for row in trained), default=0)
    if not 0 < seeds < SEEDS_NEEDED:
        return []
    return [
        f"These intervals cover the choice of problems only: with {seeds} seed{'s' if seeds > 1 else ''} an arm, "
        "what another training seed would give is not in them."
    ]


def _told(difference: Mapping[str, Estimate] | None, outcomes: Mapping[str, str]) -> list[bool]:
    return [difference[name].excludes_zero for name in outcomes if difference is not None and name in difference]


def _interval(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"
