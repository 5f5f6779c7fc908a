"""How different the answers to one problem are. numpy only; every function takes the counts of the answers.

Unparsed samples are a rate of their own and never an answer. A number that cannot be told from the samples
(no answer at all, one answer for a pair statistic) is NaN, and the averages over problems leave it out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError
from .pass_at_k import check_k, pass_at_k, whole_numbers


def distinct_at_k(counts: ArrayLike, k: int, num_samples: int | None = None) -> float:
    """The expected number of different answers among k samples, `sum_a [1 - C(n - n_a, k) / C(n, k)]`.

    Args:
        counts: n_a, how often each canonical answer was given (1-D; the order does not matter).
        k: samples drawn, 1 <= k <= n.
        num_samples: n, all samples, those included that belong to none of the counted answers (unparsed ones, or
            right ones when wrong answers are counted); the sum of the counts by default.

    Raises:
        ArgumentError: k > n, a negative count, or counts that sum to more than `num_samples`.

    >>> round(distinct_at_k([4, 2], 3), 12)
    1.8
    >>> distinct_at_k([2], 1, num_samples=8)
    0.25
    """
    given = whole_numbers("counts", counts)
    if given.ndim != 1:
        raise ArgumentError(f"counts must be one list, the number of times each answer was given; got {counts!r}")
    n = int(given.sum()) if num_samples is None else int(whole_numbers("num_samples", num_samples))
    if given.sum() > n:
        raise ArgumentError(f"counts sum to {int(given.sum())}, more than num_samples = {n}")
    check_k(k, np.asarray(n))
    return sum((pass_at_k(n, count, k) for count in given.tolist()), 0.0)


def answer_entropy(counts: ArrayLike, *, corrected: bool = True) -> float:
    """Entropy of the answer distribution in nats, `H = -sum_a (n_a/n) log(n_a/n)`.

    The plug-in value is biased low by about (m - 1) / (2n) for m answers seen; the correction of Miller (1955) and
    Madow adds that back. One answer seen gives 0 either way.

    Args:
        counts: n_a, how often each answer was given; zeros are answers not seen.
        corrected: add (m - 1) / (2n).

    Returns:
        Nats; NaN without any answer.

    >>> round(answer_entropy([1, 1], corrected=False), 6), round(answer_entropy([1, 1]), 6)
    (0.693147, 0.943147)
    """
    seen = _seen(counts)
    if not seen.size:
        return float("nan")
    share = seen / seen.sum()
    plug_in = float(-np.sum(share * np.log(share))) + 0.0  # + 0.0 turns -0.0 into 0.0
    return plug_in + (seen.size - 1) / (2 * float(seen.sum())) if corrected else plug_in


def effective_number(counts: ArrayLike, *, corrected: bool = True) -> float:
    """`exp(H)`: the number of equally frequent answers with the same entropy; NaN without any answer.

    >>> round(effective_number([5, 5, 5], corrected=False), 6)
    3.0
    """
    return float(np.exp(answer_entropy(counts, corrected=corrected)))


def collision_diversity(counts: ArrayLike) -> float:
    """The chance that two different samples gave different answers, `1 - sum_a n_a (n_a - 1) / (n (n - 1))`.

    Unbiased for `1 - sum_a p_a^2` at any n >= 2 (Simpson's index), so it does not fall merely because fewer
    samples are wrong; NaN for fewer than two answers.

    >>> round(collision_diversity([2, 2]), 6)
    0.666667
    """
    seen = _seen(counts)
    n = float(seen.sum())
    return 1.0 - float(np.sum(seen * (seen - 1))) / (n * (n - 1)) if n >= 2 else float("nan")


def _seen(counts: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(counts, dtype=np.float64)
    if array.ndim != 1 or np.any(array < 0) or np.any(array != np.floor(array)):
        raise ArgumentError(f"counts must be one list of whole numbers from 0 on; got {counts!r}")
    return array[array > 0]
