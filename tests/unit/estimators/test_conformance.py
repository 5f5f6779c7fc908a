"""Every estimator keeps the rules that a trainer and a reader of its spec rely on."""

import pytest

from steprs.estimators import ESTIMATORS, get_estimator, groups
from steprs.estimators.hadw import HADW
from steprs.estimators.reference import AAPO
from steprs.estimators.state_anchor import StateAnchor
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
    ("pkpo", {"k": 8, "k_end": 1}),
    ("pkpo", {"k": 6}),
    ("pkpo", {"k": 20}),
    ("passk-training", {}),
    ("passk-training", {"k": 6}),
    ("passk-training", {"k": 8}),
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
    ("aapo", {"clip_low": 0, "clip_high": 0}),
    ("aapo", {"clip_low": 0}),
    ("aapo", {"clip_high": 0}),
    ("sas", {}),
    ("sas", {"ratio": 0}),
    ("sas", {"ratio": 0.95}),
    ("sas", {"ratio": 0.99, "unit": "block"}),
    ("sas", {"unit": "block", "base": "centred"}),
    ("egspo", {"states": 2}),
    ("egspo", {"states": 0.5}),
    ("state-anchor", {}),
    ("state-anchor", {"episode": 0.0, "gae_lambda": 0.5, "leave_one_out": True}),
    ("state-anchor", {"gamma": 0.9, "gae_lambda": 0.0}),
    ("state-anchor", {"gamma": 0.5, "episode": 0}),
    ("state-anchor", {"gamma": 0.5, "omega": 0}),
    ("egspo-sa", {}),
    ("egspo-sa", {"coefficient": 0.0}),
    ("egspo-sa", {"states": 2, "divide": False}),
    ("gain", {}),
    ("gain", {"gamma": 1.0, "norm": "state"}),
    ("gain", {"gamma": 0.5, "norm": "none"}),
    ("mdpo", {"states": 2}),
    ("vsrm", {}),
    ("vsrm", {"norm": "none", "lookahead": 0}),
    ("bae", {}),
    ("bae", {"shrink": 2.0}),
    ("bae", {"form": "regions"}),
]


@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=[f"{name} {settings}" for name, settings in SETTINGS])
def test_conformance(name, settings):
    check_estimator(get_estimator(name, **settings))


def test_every_estimator_has_a_row():
    assert {name for name, _ in SETTINGS} == set(ESTIMATORS)


class TestTheCheckSees:
    def test_life_that_needs_unequal_numbers_of_states(self):
        anchors = StateAnchor(gamma=0.5)
        anchors.declare(alive=False)
        with pytest.raises(AssertionError, match="a group of equal rewards has no advantages, as declared"):
            check_estimator(anchors)

    def test_a_spec_that_does_not_follow_the_settings(self):
        still = AAPO(clip_low=0, clip_high=0)
        still.declare(alive=True)
        with pytest.raises(AssertionError, match="a group of equal rewards can have advantages, as declared"):
            check_estimator(still)

    def test_what_is_learnt_from_no_rollouts(self, monkeypatch):
        real = groups.mean_and_size
        monkeypatch.setattr(groups, "mean_and_size", lambda batch: (real(batch)[0], real(batch)[1].clamp(min=1)))
        with pytest.raises(AssertionError, match="an update without a rollout teaches nothing"):
            check_estimator(HADW())

    def test_nan_behind_a_mask(self, monkeypatch):
        monkeypatch.setattr("steprs.estimators.base.EstimatorBatch.cleaned", lambda batch: batch)
        monkeypatch.setattr("steprs.estimators.base.check_rewards", lambda rewards: None)
        with pytest.raises(AssertionError, match="a masked rollout is as if it were not there"):
            check_estimator(get_estimator("centred"))
