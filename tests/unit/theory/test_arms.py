"""Words become schedules and arms, or an error that says what is allowed."""

from __future__ import annotations

import pytest

from steprs.errors import ArgumentError
from steprs.schedules import (
    SCHEDULES,
    ConstantSchedule,
    KnotSchedule,
    LinearSchedule,
    PassRateSchedule,
    PowerSchedule,
    ReversedSchedule,
    SigmoidSchedule,
)
from steprs.theory import parse_arm, parse_schedule

READ = {
    "constant -2": ConstantSchedule(-2.0),
    "linear 4 0": LinearSchedule(4.0, 0.0),
    "power 4 0 gamma=3": PowerSchedule(4.0, 0.0, 3.0),
    "sigmoid 0 4 8 0.3": SigmoidSchedule(0.0, 4.0, 8.0, 0.3),
    "knots 0:4 0.5:1 1:0": KnotSchedule(((0.0, 4.0), (0.5, 1.0), (1.0, 0.0))),
    "reversed power 4 0": ReversedSchedule(PowerSchedule(4.0, 0.0)),
    "pass-rate 0.2 linear 4 0 / constant 1": PassRateSchedule(0.2, LinearSchedule(4.0, 0.0), ConstantSchedule(1.0)),
}


@pytest.mark.parametrize("text", READ)
def test_schedules_are_read(text):
    assert parse_schedule(text) == READ[text]


def test_every_family_can_be_written():
    written = {"knots": "knots 0:1", "reversed": "reversed linear 4 1", "constant": "constant 1"}
    written["pass-rate"] = "pass-rate 0.2 linear 4 0 / linear 0 4"
    for name, family in SCHEDULES.items():
        assert isinstance(parse_schedule(written.get(name, f"{name} 4 1")), family)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "unknown schedule ''"),
        ("liner 4 0", "Did you mean 'linear'"),
        ("linear 4", "lacks end"),
        ("linear 4 0 1", "more numbers than start, end"),
        ("linear four 0", "'four' is not a number"),
        ("power 4 0 gama=2", "Did you mean 'gamma'"),
        ("pass-rate 0.2 linear 4 0", "BELOW / ABOVE"),
        ("pass-rate", "BELOW / ABOVE"),
        ("knots 0", "not a number"),
        ("geometric 4 0", "of one sign"),
    ],
)
def test_what_is_no_schedule_is_explained(text, says):
    with pytest.raises(ArgumentError, match=says):
        parse_schedule(text)


def test_arms_take_a_control_and_a_base():
    arm = parse_arm("linear 4 0 control=reverse base=standardised")
    assert (arm.schedule, arm.control, arm.base) == (LinearSchedule(4.0, 0.0), "reverse", "standardised")
    named = parse_arm("standardised")
    assert (named.schedule, named.base, named.label) == (ConstantSchedule(0.0), "standardised", "standardised")


@pytest.mark.parametrize(
    ("text", "says"),
    [("linear 4 0 control=flatt", "Did you mean 'flat'"), ("constant 1 base=standard", "unknown base"),
     ("linear 4 0 control=shuffle-token", "unknown control")],
)  # fmt: skip
def test_what_the_laboratory_cannot_follow_is_refused(text, says):
    with pytest.raises(ArgumentError, match=says):
        parse_arm(text)
