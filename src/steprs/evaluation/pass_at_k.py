"""The chance that one of k tries succeeds. numpy only.

pass@k, like distinct@k (`diversity`) and maj@k (`majority`), averages over all C(n, k) ways to draw k of the n
samples without replacement: the unbiased estimate of what k fresh samples would give. Nothing is drawn.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError

Floats = NDArray[np.float64]


@overload
def pass_at_k(num_samples: int, num_correct: int, k: int) -> float: ...
@overload
def pass_at_k(num_samples: ArrayLike, num_correct: ArrayLike, k: int) -> float | Floats: ...
def pass_at_k(num_samples: ArrayLike, num_correct: ArrayLike, k: int) -> float | Floats:
    """The chance that at least one of k samples is right, `1 - C(n - c, k) / C(n, k)`.

    Computed as the product of (n - c - i) / (n - i) over i < k, which neither overflows nor cancels
    (the unbiased estimator of Chen et al. 2021, "Evaluating large language models trained on code").

    Args:
        num_samples: n, samples of a problem; a number or an array.
        num_correct: c, the right ones among them; broadcasts with `num_samples`.
        k: tries, 1 <= k <= n.

    Returns:
        A float for numbers, an array of float64 for arrays.

    Raises:
        ArgumentError: k < 1, k > n, c < 0, c > n, or something that is not a whole number.

    >>> pass_at_k(4, 2, 2)
    0.8333333333333334
    >>> pass_at_k(8, [0, 1, 8], 4)
    array([0. , 0.5, 1. ])
    """
    if (
        type(num_samples) is int
        and type(num_correct) is int
        and 0 <= num_correct <= num_samples
        and 0 < k <= num_samples
    ):
        return _pass_at_k(num_samples, num_correct, k)
    n, c = np.broadcast_arrays(whole_numbers("num_samples", num_samples), whole_numbers("num_correct", num_correct))
    check_k(k, n)
    if np.any(c < 0) or np.any(c > n):
        raise ArgumentError(f"num_correct must lie in 0..num_samples; got {num_correct!r} of {num_samples!r}")
    tries = np.arange(int(k)).reshape(-1, *([1] * n.ndim))
    failures = np.prod(np.maximum(n - c - tries, 0) / (n - tries), axis=0)
    return float(1.0 - failures) if n.ndim == 0 else np.asarray(1.0 - failures, dtype=np.float64)


@lru_cache(maxsize=65536)
def _pass_at_k(n: int, c: int, k: int) -> float:
    """The same product for three valid numbers: an evaluation asks for few different ones, thousands of times."""
    return 1.0 - prod(max(n - c - i, 0) / (n - i) for i in range(k))


def whole_numbers(name: str, value: ArrayLike) -> NDArray[np.int64]:
    """`value` as int64.

    Args:
        name: for the error message; "counts" may not be negative.
        value: numbers.

    Raises:
        ArgumentError: something that is not a whole number.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "iuf" and array.size:
        raise ArgumentError(f"{name} must hold whole numbers; got {value!r}")
    whole = array.astype(np.int64)
    if np.any(whole != array) or (name == "counts" and np.any(whole < 0)):
        raise ArgumentError(f"{name} must hold whole numbers from 0 on; got {value!r}")
    return whole


def check_k(k: int, n: NDArray[np.int64]) -> None:
    """Refuse a number of tries below 1 or above the samples of any problem.

    Args:
        k: tries.
        n: samples a problem.

    Raises:
        ArgumentError: names both numbers and what to do.
    """
    if isinstance(k, bool) or int(k) != k or k < 1:
        raise ArgumentError(f"k must be a whole number from 1 on; got {k!r}")
    if n.size and k > n.min():
        raise ArgumentError(
            f"k = {k} is more than the {int(n.min())} samples of a problem; draw more samples or ask for a smaller k"
        )
