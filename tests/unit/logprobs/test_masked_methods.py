"""One-step and coupled scoring against plain forwards, with the masks read back from the packed rows."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from steprs.errors import ArgumentError
from steprs.logprobs import coupled_logprobs, one_step_logprobs, plan_coupled, plan_one_step

KINDS = [("bidirectional", "whole"), ("block_causal", "whole"), ("block_causal", "aligned")]
KEYS = torch.tensor([101, 202, 303, 404])


@pytest.mark.parametrize("kind", KINDS)
def test_one_step_without_prompt_masking_is_the_empty_canvas(kit, kind):
    policy = kit.policy(kind[0], prompt_block=kind[1])
    trajectory = kit.trajectory(policy, 6, rows=4, temperature=0.7)

    def score(row, place):
        return kit.slow_score(policy, trajectory, row, place, lambda p: True)

    fast = one_step_logprobs(policy, trajectory, keys_B=KEYS, prompt_mask_rate=0.0, token_budget=50)
    kit.assert_same(fast, kit.slow_all(trajectory, score), policy, tolerance=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_one_step_masks_the_prompt_tokens_it_says(kit, kind):
    policy = kit.policy(kind[0], prompt_block=kind[1])
    trajectory = kit.trajectory(policy, 6, rows=4, context=8)
    plan = plan_one_step(trajectory, policy, keys_B=KEYS, prompt_mask_rate=0.5)
    hidden = plan[0].canvas.reveal_BW[:, :8] == -1
    assert (hidden <= trajectory.prompt_mask_BC).all()
    assert 0 < hidden.sum() < trajectory.prompt_mask_BC.sum()

    def score(row, place):
        return kit.slow_score(policy, trajectory, row, place, lambda p: True, lambda column: bool(hidden[row, column]))

    fast = one_step_logprobs(policy, trajectory, keys_B=KEYS, prompt_mask_rate=0.5)
    kit.assert_same(fast, kit.slow_all(trajectory, score), policy, tolerance=1e-10)


def test_prompt_mask_rate_is_met(kit):
    policy = kit.policy("bidirectional")
    trajectory = kit.trajectory(policy, 0, rows=1, context=4).rows(torch.zeros(3000, dtype=torch.int64))
    trajectory = dataclasses.replace(trajectory, prompt_mask_BC=torch.ones(3000, 4, dtype=torch.bool))
    plan = plan_one_step(trajectory, policy, keys_B=torch.arange(3000), prompt_mask_rate=0.15)
    assert float((plan[0].canvas.reveal_BW[:, :4] == -1).float().mean()) == pytest.approx(0.15, abs=0.015)


@pytest.mark.parametrize("kind", KINDS)
def test_coupled_masks_are_complementary_and_score_each_token_once(kit, kind):
    policy = kit.policy(kind[0], prompt_block=kind[1], block_size=4)
    trajectory = kit.trajectory(policy, 9, rows=4, length=8, temperature=0.7)
    half = plan_coupled(trajectory, policy, keys_B=KEYS)[0].canvas.reveal_BW[:, -8:]
    assert ((half == -1) == (trajectory.unmask_step_BL < 0)).all()
    assert {0, 1} <= set(half.unique().tolist()) <= {-1, 0, 1}

    def score(row, place):
        return kit.slow_score(policy, trajectory, row, place, lambda p: bool(half[row, p] == half[row, place]))

    fast = coupled_logprobs(policy, trajectory, keys_B=KEYS, token_budget=60)
    kit.assert_same(fast, kit.slow_all(trajectory, score), policy, tolerance=1e-10)


def test_coupled_rate_range_is_met(kit):
    policy = kit.policy("bidirectional")
    trajectory = kit.trajectory(policy, 2, rows=1, length=40).rows(torch.zeros(500, dtype=torch.int64))
    trajectory = dataclasses.replace(trajectory, unmask_step_BL=torch.zeros(500, 40, dtype=torch.int64))
    plan = plan_coupled(trajectory, policy, keys_B=torch.arange(500), mask_rate_range=(0.2, 0.8))
    first = (plan[0].canvas.reveal_BW[:, -40:] == 0).float().mean(1)
    assert first.mean().item() == pytest.approx(0.5, abs=0.03)
    assert first.quantile(0.02) < 0.28
    assert first.quantile(0.98) > 0.72


@pytest.mark.parametrize("method", [one_step_logprobs, coupled_logprobs])
def test_noise_belongs_to_the_rollout_not_to_its_place(kit, method):
    policy = kit.policy("block_causal")
    trajectory = kit.trajectory(policy, 9, rows=4, length=8)
    order = torch.tensor([2, 0, 3, 1])
    whole = method(policy, trajectory, keys_B=KEYS)
    moved = method(policy, trajectory.rows(order), keys_B=KEYS[order])
    assert (moved - whole[order]).abs().max() < 1e-12
    other = method(policy, trajectory, keys_B=KEYS + 1)
    assert (other - whole).abs().max() > 1e-3


def test_wrong_use_is_named(kit):
    policy = kit.policy("bidirectional")
    trajectory = kit.trajectory(policy, 0)
    with pytest.raises(ArgumentError, match="prompt_mask_rate"):
        plan_one_step(trajectory, policy, keys_B=KEYS[:3], prompt_mask_rate=1.0)
    with pytest.raises(ArgumentError, match="keys_B"):
        plan_one_step(trajectory, policy, keys_B=KEYS)
    with pytest.raises(ArgumentError, match="keys_B"):
        plan_coupled(trajectory, policy, keys_B=KEYS[:3].float())
    with pytest.raises(ArgumentError, match="mask_rate_range"):
        plan_coupled(trajectory, policy, keys_B=KEYS[:3], mask_rate_range=(0.8, 0.2))
