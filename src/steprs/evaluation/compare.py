"""Paired differences between evaluations of the same problems. numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from .result import EvalResult
from .statistics import Estimate, bootstrap_mean, paired_difference


def compare(
    results: EvalResult | Sequence[EvalResult], baseline: EvalResult | Sequence[EvalResult], **bootstrap: Any
) -> dict[str, Estimate]:
    """Every statistic that both sides have, as `results - baseline`, paired by problem (and by seed).

    Args:
        results: one evaluation, or one a seed.
        baseline: one evaluation (subtracted from every seed), or one a seed in the same order.
        bootstrap: `level`, `resamples` or `seed` of `statistics.paired_difference`.

    Returns:
        Estimates by statistic; a positive value means that `results` has more.

    Raises:
        ArgumentError: the two sides hold different problems.
    """
    a, b = _as_list(results), _as_list(baseline)
    for result in (*a, *b):
        same_problems(a[0], result)
    values, base = stacked_metrics(a), stacked_metrics(b)
    found = {name: paired_difference(values[name], base[name], **bootstrap) for name in values if name in base}
    return {name: estimate for name, estimate in found.items() if estimate.problems}


def summarise(results: EvalResult | Sequence[EvalResult], **bootstrap: Any) -> dict[str, Estimate]:
    """Every statistic with its interval over problems, and over seeds from three evaluations on.

    Args:
        results: one evaluation, or one a seed, of the same problems.
        bootstrap: as in `compare`.
    """
    rows = _as_list(results)
    for result in rows:
        same_problems(rows[0], result)
    found = {name: bootstrap_mean(values, **bootstrap) for name, values in stacked_metrics(rows).items()}
    return {name: estimate for name, estimate in found.items() if estimate.problems}


def stacked_metrics(results: Sequence[EvalResult]) -> dict[str, NDArray[np.float64]]:
    """[seeds, problems] of every statistic that all evaluations have."""
    each = [result.metrics() for result in results]
    return {name: np.stack([values[name] for values in each]) for name in each[0] if all(name in v for v in each)}


def same_problems(a: EvalResult, b: EvalResult) -> None:
    """Refuse a pair whose problems or their order differ: the difference would not be paired."""
    if (a.task, a.split) != (b.task, b.split) or a.ids != b.ids:
        only = sorted(set(a.ids) ^ set(b.ids))
        what = (
            f"{len(only)} problems are in one of them only, e.g. {only[0]!r}"
            if only
            else "their order or split differs"
        )
        raise ArgumentError(
            f"evaluations of {a.policy} ({a.task}, {a.split}) and {b.policy} ({b.task}, {b.split}) cannot be paired: "
            f"{what}; evaluate both on the same problems"
        )


def _as_list(results: EvalResult | Sequence[EvalResult]) -> list[EvalResult]:
    return [results] if isinstance(results, EvalResult) else list(results)
