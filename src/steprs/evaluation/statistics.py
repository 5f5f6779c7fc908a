"""Means with bootstrap intervals: over problems, over seeds and problems, and for paired differences. numpy only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError

Floats = NDArray[np.float64]

SEEDS_NEEDED = 3
"""From this many seeds on, seeds are resampled too: two values say nothing about their spread."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A mean with its interval.

    Attributes:
        value: the mean over seeds and problems.
        low, high: ends of the bootstrap interval.
        level: its nominal coverage.
        problems: problems that had a value (in every seed).
        seeds: runs averaged.
    """

    value: float
    low: float
    high: float
    level: float
    problems: int
    seeds: int

    @property
    def excludes_zero(self) -> bool:
        """True iff the interval lies on one side of 0."""
        return self.low > 0 or self.high < 0

    def to_json(self) -> dict[str, Any]:
        """Plain values; NaN becomes None, which JSON has."""
        return {key: None if value != value else value for key, value in asdict(self).items()}


def bootstrap_mean(
    values_SQ: ArrayLike,
    *,
    weights_Q: ArrayLike | None = None,
    level: float = 0.95,
    resamples: int = 4000,
    seed: int = 0,
) -> Estimate:
    """The mean over problems (and seeds) with a percentile bootstrap interval.

    One row: problems are drawn with replacement. From `SEEDS_NEEDED` rows on, seeds are drawn as the outer level and
    problems, which the seeds share, as the inner one. With two rows they are averaged first and only problems are
    drawn. A problem with a NaN in any row is left out of all rows, and counted in `problems` by its absence.

    Where every problem has the same value the interval is a point: a bootstrap cannot see what it never sampled.

    Args:
        values_SQ: one row of problems, or [seeds, problems] with the same problems in the same order.
        weights_Q: weight of each problem (its number of samples for a pooled rate); equal by default.
        level: coverage, in (0, 1).
        resamples: bootstrap draws.
        seed: of the draws; the result is a function of the arguments.

    Raises:
        ArgumentError: a shape or level that cannot be used.

    >>> estimate = bootstrap_mean([0.0, 1.0, 1.0, 1.0])
    >>> estimate.value, estimate.low <= .75 <= estimate.high
    (0.75, True)
    """
    values, weights = _values_and_weights(values_SQ, weights_Q)
    if not 0 < level < 1 or resamples < 1:
        raise ArgumentError(f"level must lie in (0, 1) and resamples be >= 1; got level={level}, resamples={resamples}")
    known = np.isfinite(values).all(axis=0) & (weights > 0)
    seeds, problems = values.shape[0], int(known.sum())
    if not problems:
        nan = float("nan")
        return Estimate(value=nan, low=nan, high=nan, level=level, problems=0, seeds=seeds)
    values, weights = np.where(known, values, 0.0), np.where(known, weights, 0.0)
    value = float(np.average(values.mean(axis=0), weights=weights))
    low, high = np.quantile(_resampled_means(values, weights, resamples, seed), [(1 - level) / 2, (1 + level) / 2])
    return Estimate(value=value, low=float(low), high=float(high), level=level, problems=problems, seeds=seeds)


def paired_difference(
    values_SQ: ArrayLike, baseline_SQ: ArrayLike, *, level: float = 0.95, resamples: int = 4000, seed: int = 0
) -> Estimate:
    """Mean of `values - baseline`, problem by problem and seed by seed, with its bootstrap interval.

    Pairing removes what both have in common, the difficulty of each problem; a base policy measured once (one row)
    is subtracted from every seed.

    >>> paired_difference([.2, .4, .9], [.1, .3, .8]).excludes_zero
    True
    """
    a = np.atleast_2d(np.asarray(values_SQ, dtype=np.float64))
    b = np.atleast_2d(np.asarray(baseline_SQ, dtype=np.float64))
    if a.shape[1] != b.shape[1] or (a.shape[0] != b.shape[0] and 1 not in (a.shape[0], b.shape[0])):
        raise ArgumentError(
            f"a paired difference needs the same problems and seeds on both sides; got [seeds, problems] "
            f"{list(a.shape)} and {list(b.shape)}"
        )
    return bootstrap_mean(a - b, level=level, resamples=resamples, seed=seed)


def _values_and_weights(values_SQ: ArrayLike, weights_Q: ArrayLike | None) -> tuple[Floats, Floats]:
    values = np.atleast_2d(np.asarray(values_SQ, dtype=np.float64))
    if values.ndim != 2:
        raise ArgumentError(f"values must be [problems] or [seeds, problems]; got {values.ndim} dimensions")
    weights = np.ones(values.shape[1]) if weights_Q is None else np.asarray(weights_Q, dtype=np.float64)
    if weights.shape != values.shape[1:] or np.any(weights < 0):
        raise ArgumentError(f"weights must be {values.shape[1]} numbers >= 0, one a problem; got {weights.shape}")
    return values, weights


def _resampled_means(values_SQ: Floats, weights_Q: Floats, resamples: int, seed: int) -> Floats:
    """Weighted mean of each resample; a resample that drew no problem with a value has none and is left out."""
    if len(values_SQ) < SEEDS_NEEDED:
        values_SQ = values_SQ.mean(axis=0, keepdims=True)
    times_RS, times_RQ = _multiplicities(len(values_SQ), len(weights_Q), resamples, seed)
    totals_R = times_RQ @ weights_Q
    # Problems first, then seeds: no second matrix of every resample and problem is made.
    sums_SR = (values_SQ * weights_Q) @ times_RQ.T
    sums_R = np.sum(sums_SR.T * times_RS, axis=1) / len(values_SQ)
    return np.asarray(sums_R[totals_R > 0] / totals_R[totals_R > 0])


@lru_cache(maxsize=2)
def _multiplicities(seeds: int, problems: int, resamples: int, seed: int) -> tuple[Floats, Floats]:
    """How often each resample drew each seed and each problem; kept, as a table asks for the same ones many times."""
    rng = np.random.default_rng(seed)
    times_RS = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples).astype(np.float64)
    times_RQ = rng.multinomial(problems, np.full(problems, 1 / problems), size=resamples).astype(np.float64)
    return times_RS, times_RQ
