"""What every estimator is given and what none may be given: masked rollouts, broken rewards."""

import math

import pytest
import torch

from steprs.errors import RewardError
from steprs.estimators import ESTIMATORS, get_estimator
from steprs.estimators.pipeline import estimate
from steprs.testing.estimators import example_batch

REWARDS = [[1.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0, 0.0, 0.0]]
NAN = math.nan


def advantages(name, batch):
    estimator = get_estimator(name)
    made, memory = estimate(estimator, batch, estimator.initial_memory())
    return made, memory


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("masked", [NAN, math.inf, 7.0])
def test_what_a_masked_rollout_holds_does_not_matter(name, masked):
    valid_PG = torch.ones(2, 6, dtype=torch.bool)
    valid_PG[0, 2] = valid_PG[1, 3] = False
    kept_PGL = valid_PG[..., None].expand(2, 6, 6)
    plain = example_batch(REWARDS, seed=3)
    made = []
    for held in (0.0, masked):
        changes = {
            key: getattr(plain, key).masked_fill(~valid_PG.view(2, 6, *[1] * (getattr(plain, key).ndim - 2)), held)
            for key in ("rewards_PG", "state_rewards_PGS", "components_PGK", "logprobs_PGL", "entropies_PGL")
        }
        rewards_PG = changes.pop("rewards_PG")
        changes |= {"valid_PG": valid_PG, "mask_PGL": kept_PGL, "weights_PGL": kept_PGL.double()}
        drawn = {"answer_ids_PG": plain.answer_ids_PG}
        made.append(advantages(name, example_batch(rewards_PG, seed=3, **changes, **drawn)))
    (clean, kept), (found, remembered) = made
    assert bool(clean.values_PGL.any())
    assert torch.equal(found.values_PGL, clean.values_PGL)
    assert found.metrics == clean.metrics
    assert {key: value.tolist() for key, value in remembered.items()} == {k: v.tolist() for k, v in kept.items()}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("broken", [NAN, math.inf, -math.inf])
def test_a_valid_reward_that_is_no_number_is_refused_with_its_place(name, broken):
    rewards_PG = torch.tensor(REWARDS).double()
    rewards_PG[1, 4] = broken
    with pytest.raises(RewardError, match="prompt 1, rollout 4"):
        advantages(name, example_batch(rewards_PG))


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("gain", "state_rewards_PGS"), ("mdpo", "state_rewards_PGS"), ("egspo-sa", "state_rewards_PGS"),
        ("dvao", "components_PGK"), ("dvao", "component_weights_K"), ("pvpo", "reference_rewards_PM"),
    ],
)  # fmt: skip
def test_other_rewards_are_refused_by_name(name, field):
    given = getattr(example_batch(REWARDS), field).clone()
    given.view(-1)[1] = NAN
    with pytest.raises(RewardError, match=rf"{field}\[.*1\] is nan"):
        advantages(name, example_batch(REWARDS, **{field: given}))


def test_rewards_that_are_not_asked_for_may_hold_anything():
    state_rewards_PGS = torch.full((2, 6, 4), NAN, dtype=torch.float64)
    made, _ = advantages("centred", example_batch(REWARDS, state_rewards_PGS=state_rewards_PGS))
    assert made.values_PGL[1, :, 0].tolist() == [-0.5, 0.5, 0.5, 0.5, -0.5, -0.5]


@pytest.mark.parametrize("rms_match", ["batch", "group", "group-state"])
@pytest.mark.parametrize("equal", [0.1, 0.7, 1 / 3])
def test_rounding_of_equal_rewards_is_no_size_to_match(rms_match, equal):
    """The mean of three times 0.1 is not 0.1, and what is left once was the RMS that advantages were scaled to."""
    rewards_PG = torch.full((2, 3), equal, dtype=torch.float64)
    batch = example_batch(rewards_PG, reference_rewards_PM=torch.zeros(2, 4, dtype=torch.float64))
    made, _ = estimate(get_estimator("pvpo"), batch, {}, rms_match=rms_match)
    assert made.values_PGL.unique().tolist() == [equal]
    plain, _ = estimate(get_estimator("centred"), batch, {}, rms_match=rms_match)
    assert not plain.values_PGL.any()
    assert plain.metrics["silent_groups"] == 1.0


def test_equal_groups_are_matched_to_nothing_beside_groups_that_differ():
    rewards_PG = torch.tensor([[0.1, 0.1, 0.1], [1.0, 0.0, 0.0]]).double()
    batch = example_batch(rewards_PG, reference_rewards_PM=torch.zeros(2, 4, dtype=torch.float64))
    made, _ = estimate(get_estimator("pvpo"), batch, {}, rms_match="group")
    assert made.values_PGL[0].unique().tolist() == rewards_PG[0].unique().tolist()
    # The RMS of (2, -1, -1) / 3 over that of (1, 0, 0).
    assert made.values_PGL[1, 0].tolist() == pytest.approx([math.sqrt(2 / 3)] * 6, abs=1e-15)
