"""Every estimator keeps the rules that a trainer and a reader of its spec rely on."""

import pytest

from steprs.estimators import ESTIMATORS, get_estimator
from steprs.schedules import LinearSchedule
from steprs.testing import check_estimator

SETTINGS = [
    ("steprs-grpo", {"schedule": LinearSchedule(2.0, 0.0)}),
    ("steprs-grpo", {"schedule": LinearSchedule(0.0, 2.0), "base": "standardised"}),
    ("centred", {}),
    ("standardised", {}),
    ("rloo", {}),
    ("rs-grpo", {}),
]


@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=[f"{name} {settings}" for name, settings in SETTINGS])
def test_conformance(name, settings):
    check_estimator(get_estimator(name, **settings))


def test_every_estimator_has_a_row():
    assert {name for name, _ in SETTINGS} == set(ESTIMATORS)
