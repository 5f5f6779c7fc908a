"""The accuracy of a majority vote among k of the n samples (maj@k), exactly. numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import comb

import numpy as np

from ..errors import ArgumentError
from .pass_at_k import check_k, whole_numbers


def majority_at_k(counts: Sequence[int], right_counts: Sequence[int], k: int, num_samples: int | None = None) -> float:
    """The expected accuracy of a majority vote among k of the n samples (maj@k), exactly.

    Every sample with an answer votes for it; unparsed samples do not vote. A tie is broken evenly at random among
    the tied answers, and a vote without any voter is wrong. When answer a wins, the vote is right with the share
    of right samples among those that gave a: 0 or 1, unless a task also judges how the answer was reached.

    The subsets where a has j votes are counted by a polynomial: answers with fewer than j samples can neither win
    nor tie and join the non-voters, every other answer b contributes `sum_{i<j} C(n_b, i) x^i + y C(n_b, j) x^j`;
    the coefficient of x^(k - j) y^t counts the subsets with t rivals tied with a.

    Args:
        counts: n_a, samples that gave each answer.
        right_counts: how many of these n_a samples are right, in the same order.
        k: voters drawn, 1 <= k <= n.
        num_samples: n, unparsed samples included; the sum of the counts by default.

    Raises:
        ArgumentError: as `distinct_at_k`; or a right count above its count.

    >>> round(majority_at_k([2, 1], [2, 0], 2), 12)  # right+right wins; right+wrong (2 of 3 pairs) is a tie
    0.666666666667
    >>> majority_at_k([3, 2], [3, 0], 5)
    1.0
    """
    n_a, right = whole_numbers("counts", counts), whole_numbers("right_counts", right_counts)
    if n_a.shape != right.shape or n_a.ndim != 1 or np.any(right < 0) or np.any(right > n_a):
        raise ArgumentError(
            f"right_counts {list(right_counts)} must be part of counts {list(counts)}, answer by answer"
        )
    n = int(n_a.sum()) if num_samples is None else int(whole_numbers("num_samples", num_samples))
    if n_a.sum() > n:
        raise ArgumentError(f"counts sum to {int(n_a.sum())}, more than num_samples = {n}")
    check_k(k, np.asarray(n))
    total = 0.0
    for a in np.flatnonzero(right):
        rivals = tuple(sorted(int(m) for b, m in enumerate(n_a) if b != a and m > 0))
        total += float(right[a] / n_a[a]) * _chance_to_win(int(n_a[a]), rivals, int(k), n)
    return total


@lru_cache(maxsize=65536)
def _chance_to_win(votes: int, rivals: tuple[int, ...], k: int, n: int) -> float:
    """The chance that an answer with `votes` samples wins among k of n, ties shared evenly; in exact fractions."""
    wins = Fraction(0)
    for j in range(1, min(votes, k) + 1):
        strong = [m for m in rivals if m >= j]
        free = n - votes - sum(strong)
        for tied, row in enumerate(_rival_votes(strong, j, k - j)):
            ways = sum(count * comb(free, k - j - taken) for taken, count in enumerate(row))
            wins += Fraction(comb(votes, j) * ways, 1 + tied)
    return float(wins / comb(n, k))


def _rival_votes(strong: list[int], j: int, most: int) -> list[list[int]]:
    """`[t][i]`: ways in which the rivals, none above j votes, have i <= `most` votes together and t of them have j."""
    table = [[1] + [0] * most]
    for m in strong:
        below = [comb(m, i) for i in range(j)]
        new = [[0] * (most + 1) for _ in range(len(table) + 1)]
        for tied, row in enumerate(table):
            for taken, count in enumerate(row):
                if not count:
                    continue
                for i, ways in enumerate(below[: most - taken + 1]):
                    new[tied][taken + i] += count * ways
                if taken + j <= most:
                    new[tied + 1][taken + j] += count * comb(m, j)
        table = [row for row in new if any(row)] or [[0] * (most + 1)]
    return table
