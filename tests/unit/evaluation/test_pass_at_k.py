"""pass@k, distinct@k and maj@k against stored values and against enumeration of every subset."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steprs.errors import ArgumentError
from steprs.evaluation.diversity import distinct_at_k
from steprs.evaluation.majority import majority_at_k
from steprs.evaluation.pass_at_k import pass_at_k

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "risk.json").read_text())


@pytest.mark.parametrize("row", GOLDEN["pass_at_k"], ids=lambda row: f"n{row['n']}c{row['c']}k{row['k']}")
def test_pass_at_k_golden(row):
    assert pass_at_k(row["n"], row["c"], row["k"]) == pytest.approx(row["pass_at_k"], rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("row", GOLDEN["distinct_at_k"], ids=lambda row: f"k{row['k']}-{row['counts']}")
def test_distinct_at_k_golden(row):
    assert distinct_at_k(row["counts"], row["k"]) == pytest.approx(row["distinct_at_k"], rel=1e-12)


def by_enumeration(labels, k, statistic):
    """The mean of `statistic` over every subset of size k."""
    values = [statistic(subset) for subset in combinations(labels, k)]
    return sum(values) / len(values)


def vote(subset, right):
    """Accuracy of a majority vote; None does not vote, ties are shared."""
    votes = [label for label in subset if label is not None]
    if not votes:
        return 0.0
    most = max(votes.count(label) for label in set(votes))
    winners = [label for label in set(votes) if votes.count(label) == most]
    return sum(label in right for label in winners) / len(winners)


samples_of_one_problem = st.lists(st.sampled_from([None, "a", "b", "c", "d"]), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(samples_of_one_problem, st.data())
def test_all_three_equal_enumeration(labels, data):
    n = len(labels)
    k = data.draw(st.integers(1, n))
    right = set(data.draw(st.lists(st.sampled_from("abcd"), max_size=2)))
    answers = sorted({label for label in labels if label is not None})
    counts = [labels.count(answer) for answer in answers]
    correct = sum(label in right for label in labels)
    assert pass_at_k(n, correct, k) == pytest.approx(by_enumeration(labels, k, lambda s: any(x in right for x in s)))
    assert distinct_at_k(counts, k, n) == pytest.approx(by_enumeration(labels, k, lambda s: len({*s} - {None})))
    right_counts = [count if answer in right else 0 for answer, count in zip(answers, counts, strict=True)]
    majority = majority_at_k(counts, right_counts, k, n)
    assert majority == pytest.approx(by_enumeration(labels, k, lambda s: vote(s, right)))


def test_majority_of_one_is_pass_at_1_and_of_all_is_the_plain_vote():
    assert majority_at_k([3, 4], [3, 0], 1, 10) == pytest.approx(pass_at_k(10, 3, 1))
    assert majority_at_k([3, 4], [3, 0], 7) == 0.0
    assert majority_at_k([3, 3, 2], [3, 0, 0], 8) == pytest.approx(0.5)


def test_majority_credits_the_share_of_right_samples_of_an_answer():
    # Both samples voted for the same value; only one of them reached it by allowed steps.
    assert majority_at_k([2], [1], 2) == pytest.approx(0.5)


def test_majority_stays_exact_and_quick_with_many_samples():
    # Two answers, 100 samples each, all of them drawn but one: a tie is impossible, and each wins half of the time.
    assert majority_at_k([100, 100], [100, 0], 199) == pytest.approx(0.5, abs=1e-12)


def test_arrays_broadcast():
    np.testing.assert_allclose(pass_at_k([4, 8], [2, 8], 2), [5 / 6, 1.0])
    assert isinstance(pass_at_k(4, 2, 1), float)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pass_at_k(4, 1, 5), "k = 5 is more than the 4 samples"),
        (lambda: pass_at_k([8, 4], [1, 1], 5), "k = 5 is more than the 4 samples"),
        (lambda: distinct_at_k([1, 2], 4), "k = 4 is more than the 3 samples"),
        (lambda: majority_at_k([1, 2], [1, 0], 4), "k = 4 is more than the 3 samples"),
        (lambda: pass_at_k(4, 1, 0), "k must be a whole number from 1 on"),
        (lambda: pass_at_k(4, 5, 1), "num_correct must lie in 0..num_samples"),
        (lambda: pass_at_k(4, 1.5, 1), "whole numbers"),
        (lambda: distinct_at_k([-1, 2], 1), "whole numbers from 0 on"),
        (lambda: distinct_at_k([3, 2], 1, 4), "counts sum to 5"),
        (lambda: majority_at_k([2], [3], 1), "right_counts"),
    ],
)
def test_wrong_input_is_named(call, words):
    with pytest.raises(ArgumentError, match=words.replace("(", r"\(")):
        call()


def test_no_answers_at_all():
    assert distinct_at_k([], 2, 4) == 0.0
    assert majority_at_k([], [], 2, 4) == 0.0
