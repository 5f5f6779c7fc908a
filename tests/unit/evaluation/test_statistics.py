"""Bootstrap intervals: by hand where they can be, by coverage where they cannot."""

from __future__ import annotations

import math

import numpy as np
import pytest

from steprs.errors import ArgumentError
from steprs.evaluation.statistics import bootstrap_mean, paired_difference


def test_two_problems_by_hand():
    # The four equally likely resamples of (0, 1) have the means 0, 1/2, 1/2, 1.
    wide, narrow = bootstrap_mean([0.0, 1.0]), bootstrap_mean([0.0, 1.0], level=0.4)
    assert (wide.value, wide.low, wide.high) == (0.5, 0.0, 1.0)
    assert (narrow.low, narrow.high) == (0.5, 0.5)


def test_a_large_sample_has_the_normal_interval():
    values = np.random.default_rng(3).normal(size=1000)
    estimate = bootstrap_mean(values)
    half = 1.96 * values.std() / math.sqrt(1000)
    assert estimate.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert estimate.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_the_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(5)
    inside = [bootstrap_mean(rng.random(60) < 0.4, resamples=400).low <= 0.4 for _ in range(200)]
    outside = 1 - np.mean(inside)
    assert 0.002 <= outside <= 0.07, "about 2.5 % of the lower ends should lie above the truth"


def test_equal_values_give_a_point():
    estimate = bootstrap_mean([0.25] * 8)
    assert (estimate.low, estimate.value, estimate.high) == (0.25, 0.25, 0.25)


def test_problems_without_a_value_are_left_out_and_counted():
    with_gap = bootstrap_mean([math.nan, 0.0, 1.0])
    assert (with_gap.value, with_gap.problems) == (0.5, 2)
    nothing = bootstrap_mean([math.nan, math.nan])
    assert nothing.problems == 0 and math.isnan(nothing.value) and math.isnan(nothing.low)


def test_weights_pool():
    # 1 of 1 right and 1 of 3 right: pooled 2/4, not the mean 2/3 of the two rates.
    assert bootstrap_mean([1.0, 1 / 3], weights_Q=[1, 3]).value == pytest.approx(0.5)


def test_seeds_are_the_outer_level_from_three_on():
    rng = np.random.default_rng(0)
    offsets = np.array([[-0.2], [0.0], [0.2]])  # seeds differ far more than problems do
    values = offsets + rng.normal(scale=0.01, size=(3, 100))
    two, three = bootstrap_mean(values[[0, 2]]), bootstrap_mean(values)
    assert three.high - three.low > 0.3 and three.seeds == 3
    assert two.high - two.low < 0.01 and two.seeds == 2
    # A mean of three draws from (-.2, 0, .2): the 27 resamples reach -.2 with probability 1/27 > 2.5 %.
    assert three.low == pytest.approx(-0.2, abs=0.01) and three.high == pytest.approx(0.2, abs=0.01)


def test_pairing_removes_what_both_share():
    rng = np.random.default_rng(1)
    difficulty = rng.random(200)
    estimate = paired_difference(difficulty + 0.02 + rng.normal(scale=0.01, size=200), difficulty)
    assert estimate.excludes_zero and estimate.value == pytest.approx(0.02, abs=0.003)
    unpaired = bootstrap_mean(difficulty)
    assert estimate.high - estimate.low < 0.1 * (unpaired.high - unpaired.low)


def test_a_single_baseline_is_subtracted_from_every_seed():
    estimate = paired_difference([[0.5, 0.7], [0.7, 0.9]], [0.1, 0.3])
    assert estimate.value == pytest.approx(0.5) and estimate.seeds == 2


def test_the_result_is_a_function_of_the_arguments():
    values = np.random.default_rng(2).random(50)
    assert bootstrap_mean(values, seed=1) == bootstrap_mean(values, seed=1)
    assert bootstrap_mean(values, seed=1) != bootstrap_mean(values, seed=2)


def test_json_has_no_nan():
    assert bootstrap_mean([math.nan]).to_json()["value"] is None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: paired_difference([1.0, 2.0], [1.0]), "same problems"),
        (lambda: paired_difference(np.ones((2, 4)), np.ones((3, 4))), "same problems and seeds"),
        (lambda: bootstrap_mean([1.0], level=1.0), "level"),
        (lambda: bootstrap_mean([1.0, 2.0], weights_Q=[1.0]), "weights"),
        (lambda: bootstrap_mean(np.ones((2, 2, 2))), "dimensions"),
    ],
)
def test_wrong_input_is_named(call, words):
    with pytest.raises(ArgumentError, match=words):
        call()
