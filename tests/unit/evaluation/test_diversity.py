"""Entropy, effective number and collision diversity, by hand."""

from __future__ import annotations

import math

import pytest

from steprs.errors import ArgumentError
from steprs.evaluation.diversity import answer_entropy, collision_diversity, effective_number


def test_entropy_by_hand():
    # Shares 1/2, 1/4, 1/4: H = 1.5 bits; Miller-Madow adds (3 - 1) / (2 * 8).
    assert answer_entropy([4, 2, 2], corrected=False) == pytest.approx(1.5 * math.log(2))
    assert answer_entropy([4, 2, 2]) == pytest.approx(1.5 * math.log(2) + 1 / 8)
    assert effective_number([4, 2, 2], corrected=False) == pytest.approx(2**1.5)
    assert effective_number([4, 2, 2]) == pytest.approx(2**1.5 * math.exp(1 / 8))


def test_one_answer_has_no_entropy_and_zeros_are_not_answers():
    assert answer_entropy([7]) == 0.0 and math.copysign(1, answer_entropy([7])) == 1
    assert answer_entropy([4, 0, 4]) == answer_entropy([4, 4])


def test_collision_by_hand():
    # Four samples a a b c: of the 6 pairs one agrees.
    assert collision_diversity([2, 1, 1]) == pytest.approx(5 / 6)
    assert collision_diversity([1, 1, 1]) == 1.0
    assert collision_diversity([9]) == 0.0


def test_what_cannot_be_told_is_nan():
    assert math.isnan(answer_entropy([])) and math.isnan(effective_number([0]))
    assert math.isnan(collision_diversity([1])) and math.isnan(collision_diversity([]))


@pytest.mark.parametrize("counts", [[-1, 2], [0.5, 1], [[1, 2]]])
def test_counts_must_be_counts(counts):
    with pytest.raises(ArgumentError, match="whole numbers from 0 on"):
        collision_diversity(counts)
