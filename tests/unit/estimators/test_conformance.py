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
    ("maxrl", {}),
    ("maxrl", {"eps": 0.0}),
    ("pkpo", {}),
    ("pkpo", {"k": 1}),
    ("pkpo", {"k": 4, "k_end": 2}),
    ("passk-training", {}),
    ("passk-training", {"k": 2}),
    ("f-grpo", {}),
    ("f-grpo", {"gamma": 0.5, "base": "centred"}),
    ("mapo", {}),
    ("a-grae", {}),
    ("a-grae", {"alpha": 0.5}),
    ("ha-dw", {}),
    ("ha-dw", {"window": 2, "eta": 1.0, "base": "centred"}),
    ("ha-dw", {"belief": "hard", "window": 3}),
    ("capo", {}),
    ("capo", {"share": 0.0, "base": "centred"}),
    ("wd1", {}),
    ("wd1", {"temperature": 0.01}),
    ("wd1-batch", {}),
    ("dvao", {}),
    ("copo", {}),
    ("copo", {"gamma": 1.0, "rho": 0.5}),
    ("pvpo", {}),
    ("aapo", {}),
]


@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=[f"{name} {settings}" for name, settings in SETTINGS])
def test_conformance(name, settings):
    check_estimator(get_estimator(name, **settings))


def test_every_estimator_has_a_row():
    assert {name for name, _ in SETTINGS} == set(ESTIMATORS)
