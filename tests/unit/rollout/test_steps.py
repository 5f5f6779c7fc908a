"""Schedules are exact, and settings that cannot be are refused (case: steps and blocks that do not divide)."""

from __future__ import annotations

import pytest

from steprs.errors import SamplingError
from steprs.rollout.steps import block_steps, check_decoding, spread

from .helpers import decoding


def test_every_schedule_is_exact():
    for length in range(1, 25):
        for size in (s for s in range(1, length + 1) if length % s == 0):
            for steps in range(length // size, length + 1):
                settings = decoding("masked", length, steps, size)
                check_decoding(settings, "masked")
                blocks = block_steps(settings)
                counts = [spread(size, part) for part in blocks]
                assert sum(blocks) == steps and len(blocks) == length // size
                assert all(sum(count) == size and min(count) >= 1 for count in counts)
                assert all(list(count) == sorted(count, reverse=True) for count in counts)


def test_first_steps_take_the_remainder():
    assert spread(10, 4) == (3, 3, 2, 2)


@pytest.mark.parametrize(
    ("length", "steps", "size", "message"),
    [
        (12, 12, 5, "block_size 5 does not divide length 12; allowed for this length: 1, 2, 3, 4, 6, 12"),
        (12, 13, 4, "steps 13 cannot decode length 12 in 3 block"),
        (12, 2, 4, "give 3 to 12"),
        (12, 12, 24, "does not divide"),
        (0, 1, 1, "must be 1 or more"),
        (4, 0, 4, "must be 1 or more"),
    ],
)
def test_what_does_not_fit_is_refused(length, steps, size, message):
    with pytest.raises(SamplingError, match=message):
        check_decoding(decoding("masked", length, steps, size), "masked")


@pytest.mark.parametrize("change", [{"temperature": -0.1}, {"top_p": 0.0}, {"top_p": 1.2}, {"top_k": -1}])
def test_distribution_settings_are_checked(change):
    with pytest.raises(SamplingError, match=next(iter(change))):
        check_decoding(decoding("block", 4, 4, 4, **change), "block")


def test_settings_of_the_other_kind_are_refused():
    with pytest.raises(SamplingError, match="kind 'block'"):
        check_decoding(decoding("masked", 4, 4, 4), "block")
