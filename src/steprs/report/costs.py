"""What training took: tokens, forwards and seconds, from the runs' logs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .results import Measured, primary_of
from .runs import RunRecord
from .study import Arm, Context
from .tables import Cell, Table

# Heading, key in metrics.jsonl, and whether the updates are added up (else averaged).
LOGGED = (
    ("tokens scored", "tokens/scored", True),
    ("scoring forwards", "forwards", True),
    ("steps a rollout", "rollout/steps", False),
    ("groups without signal", "groups/dead", False),
    ("extra forwards", "collect/extra_forwards", True),
    ("extra verifier calls", "collect/verifier_calls", True),
    ("base rollouts", "collect/reference_rollouts", True),
    ("s in rollouts", "seconds/rollout", True),
    ("s in updates", "seconds/update", True),
)


def cost_table(context: Context) -> Table | None:
    """A row a trained arm, means over its seeds; None if nothing was logged."""
    arms = [arm for arm in context.trained if any(run.metrics for run in arm.runs)]
    rows = [_row(arm) for arm in arms]
    columns = ("arm", "seeds", "updates", "tokens sampled", *(heading for heading, _, _ in LOGGED), "minutes")
    kept = [i for i in range(len(columns)) if any(row[i] is not None for row in rows)]
    if not rows:
        return None
    return Table(
        title="what a run took, mean over seeds",
        columns=tuple(columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in rows),
        digits={"steps a rollout": 1, "groups without signal": 2, "minutes": 1},
        under="seeds",
        notes=(
            "Tokens sampled: completions up to their first end token. Tokens scored: those with a gradient. Groups "
            "without signal: all rollouts right or all wrong, which cost no forward unless the estimator gives them "
            "advantages. Extra forwards (rows), verifier calls and rollouts of the base policy are what the estimator "
            "asked for beside the rollouts. Evaluations are not counted.",
        ),
    )


def outcome_table(context: Context, rows: Sequence[Measured]) -> Table | None:
    """A row a trained arm: the outcomes that a study is judged by, beside what the arm cost."""
    trained = [row for row in rows if row.arm.trained and any(run.metrics for run in row.arm.runs)]
    if not trained:
        return None
    outcomes = primary_of(rows)
    cells = tuple(
        (row.label, len(row.seeds), *(row.summary.get(name) for name in outcomes), *_spent(row.arm)) for row in trained
    )
    return Table(
        title="outcome beside cost" + (f", in {context.name}" if context.name else ""),
        columns=("arm", "seeds", *outcomes.values(), "extra forwards", "seconds"),
        rows=cells,
        under="seeds",
        notes=("Extra forwards: rows read for the estimator beside rollouts and scoring. Seconds: of training.",),
    )


def _spent(arm: Arm) -> tuple[Cell, Cell]:
    runs = [run for run in arm.runs if run.metrics]
    extra = _mean([_value(run, "collect/extra_forwards", True) or 0.0 for run in runs])
    seconds = [_mean([_value(run, key, True) for run in runs]) for key in ("seconds/rollout", "seconds/update")]
    known = [value for value in seconds if value is not None]
    return _whole(extra), _whole(sum(known)) if known else None


def _row(arm: Arm) -> tuple[Cell, ...]:
    runs = [run for run in arm.runs if run.metrics]
    logged = [_mean([_value(run, key, total) for run in runs]) for _, key, total in LOGGED]
    seconds = [value for value, (_, key, _) in zip(logged, LOGGED, strict=True) if key.startswith("seconds/")]
    known = [value for value in seconds if value is not None]
    return (
        arm.label,
        len(runs),
        _whole(_mean([float(len(run.metrics)) for run in runs])),
        _whole(_mean([_sampled(run) for run in runs])),
        *(_whole(value) if total else value for value, (_, _, total) in zip(logged, LOGGED, strict=True)),
        round(sum(known) / 60, 1) if known else None,
    )


def _value(run: RunRecord, key: str, total: bool) -> float | None:
    _, values = run.series(key)
    if not values.size:
        return None
    return float(values.sum() if total else values.mean())


def _sampled(run: RunRecord) -> float | None:
    """Completion tokens of all rollouts; the log has their mean, the configuration their number."""
    train = run.config.get("train", {})
    mean = _value(run, "completions/tokens", True)
    if mean is None or not {"prompts_per_update", "group_size"} <= train.keys():
        return None
    return mean * float(train["prompts_per_update"]) * float(train["group_size"])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
