"""Loss and gradients do not depend on how the work is cut; nor does the ratio of two scoring forwards."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from steprs.logprobs import (
    pad_plan,
    plan_coupled,
    plan_one_step,
    plan_trace,
    score_batch,
    score_plan,
    trajectory_logprobs,
)
from steprs.losses import aggregation_weights, kl_estimate, ppo_clip_loss
from steprs.policies.distribution import truncation_support
from steprs.randomness import row_keys
from steprs.rollout.block import BlockDiffusionSampler
from steprs.rollout.masked import MaskedDiffusionSampler
from steprs.types import Decoding

KEYS = torch.arange(8) * 7919 + 13


def _plan(method, trajectory, policy, keys, budget):
    if method == "trace":
        return plan_trace(trajectory, policy, token_budget=budget)
    if method == "drawn":
        return plan_trace(trajectory, policy, token_budget=budget, states_per_rollout=2, keys_B=keys)
    plan = plan_one_step if method == "one-step" else plan_coupled
    return plan(trajectory, policy, token_budget=budget, keys_B=keys)


def _loss_and_gradients(kit, policy, trajectory, method, aggregation, parts, budget):
    """`parts` micro-batches of whole rollouts, each cut further by the budget; one denominator for all."""
    advantages = torch.linspace(-0.7, 1.0, 8)[:, None].expand(8, trajectory.completion_ids_BL.shape[1])
    mask, step = trajectory.completion_mask_BL, trajectory.unmask_step_BL
    count = sum(aggregation_weights(mask[i], step[i], aggregation)[1] for i in torch.arange(8).chunk(parts))
    total, grads = 0.0, [torch.zeros_like(p) for p in policy.parameters()]
    for index in torch.arange(8).chunk(parts):
        part = trajectory.rows(index)
        weights, _ = aggregation_weights(part.completion_mask_BL, part.unmask_step_BL, aggregation)
        for batch in _plan(method, part, policy, KEYS[index], budget):
            scores = score_batch(policy, part, batch)
            at = (scores.row_N, scores.pos_N)
            old = scores.logprobs_N.detach() - 0.1 * torch.sin(index[scores.row_N] + scores.pos_N)
            token, _, _ = ppo_clip_loss(scores.logprobs_N, old, advantages[index][at], clip_low=0.05, clip_high=0.08)
            token = token + 0.1 * kl_estimate(scores.logprobs_N, old, "k3")
            loss = (weights[at] * scores.weight_N * token).sum() / count
            total += float(loss.detach())
            grads = [a + b for a, b in zip(grads, kit.gradients(policy, loss), strict=True)]
    return total, grads


@pytest.mark.parametrize("attention", ["bidirectional", "block_causal"])
@pytest.mark.parametrize("method", ["trace", "drawn", "one-step", "coupled"])
@pytest.mark.parametrize("aggregation", ["token-mean", "state-mean", "sequence-mean"])
def test_one_by_eight_two_by_four_eight_by_one(kit, attention, method, aggregation):
    policy = kit.policy(attention, double=False)
    trajectory = kit.trajectory(policy, 17, rows=8, length=6)
    expected, slopes = _loss_and_gradients(kit, policy, trajectory, method, aggregation, 1, 10_000)
    assert abs(expected) > 1e-4
    for parts, budget in [(2, 10_000), (8, 10_000), (1, 40), (2, 25)]:
        loss, grads = _loss_and_gradients(kit, policy, trajectory, method, aggregation, parts, budget)
        assert loss == pytest.approx(expected, abs=1e-6)
        assert max(float((a - b).abs().max()) for a, b in zip(grads, slopes, strict=True)) <= 1e-6


@pytest.fixture(scope="module", params=["masked", "masked in blocks", "block", "block aligned"])
def rollouts(request, kit):
    """Real rollouts at temperature .7, top_p .9, with the support that truncation left."""
    block = request.param.startswith("block")
    policy = kit.policy(
        "block_causal" if block else "bidirectional", double=False,
        prompt_block="aligned" if "aligned" in request.param else "whole",
    )  # fmt: skip
    for parameter in policy.parameters():
        # Sharper than a fresh model, so that truncation cuts something.
        parameter.data *= 3
    decoding = Decoding(
        kind="block" if block else "masked", length=6, steps=6, block_size=6 if request.param == "masked" else 3,
        temperature=0.7, top_p=0.9, unmasking="max_probability",
    )  # fmt: skip
    sampler = (BlockDiffusionSampler if block else MaskedDiffusionSampler)(decoding=decoding)
    prompt = torch.tensor([[0, 4, 5], [6, 7, 8]])
    keys = row_keys(0, "train", 1, torch.arange(2).repeat_interleave(4), torch.arange(4).repeat(2))
    trajectory = sampler.sample(policy, prompt, prompt > 0, group_size=4, row_keys_B=keys, store_support=True)
    return policy, trajectory


def test_what_is_scored_is_what_was_sampled(rollouts):
    policy, trajectory = rollouts
    sizes = (trajectory.support_ids_BLK >= 0).sum(-1)[trajectory.completion_mask_BL]
    assert int(sizes.min()) < int(sizes.max())
    scored = trajectory_logprobs(policy, trajectory)
    gap = (scored - trajectory.sampling_logprobs_BL)[trajectory.completion_mask_BL]
    assert gap.abs().max() < 1e-4


def test_truncation_repeated_under_the_same_weights_is_the_stored_one(rollouts):
    policy, trajectory = rollouts
    bare = dataclasses.replace(trajectory, support_ids_BLK=None)
    difference = trajectory_logprobs(policy, bare) - trajectory_logprobs(policy, trajectory)
    assert difference.abs().max() < 1e-5


def test_ratio_is_one_at_the_first_inner_update_for_every_split(rollouts):
    policy, trajectory = rollouts
    old = trajectory_logprobs(policy, trajectory).detach()
    for budget in [1, 20, 64, 10_000]:
        new = trajectory_logprobs(policy, trajectory, token_budget=budget)
        assert ((new - old).exp() - 1)[trajectory.completion_mask_BL].abs().max() <= 1e-4


def test_padding_batches_are_a_zero_that_reaches_every_weight(kit):
    policy = kit.policy("block_causal", double=False)
    trajectory = kit.trajectory(policy, 1)
    plan = plan_trace(trajectory, policy, token_budget=40)
    padded = pad_plan(plan, len(plan) + 2, trajectory)
    assert len(padded) == len(plan) + 2
    assert torch.equal(score_plan(policy, trajectory, padded), score_plan(policy, trajectory, plan))
    (alone,) = pad_plan([], 1, trajectory)
    scores = score_batch(policy, trajectory, alone)
    assert scores.logprobs_N.shape == (0,)
    (scores.logprobs_N * scores.weight_N).sum().backward()
    for parameter in policy.parameters():
        assert parameter.grad is not None
        assert (parameter.grad == 0).all()
        parameter.grad = None
    with pytest.raises(ValueError, match="more than"):
        pad_plan(padded, 1, trajectory)


@pytest.mark.parametrize("support", [None, 3])
def test_head_in_chunks_is_the_head(kit, support):
    policy = kit.policy("block_causal")
    trajectory = kit.trajectory(policy, 3, rows=4, length=8, support=support)
    (batch,) = plan_trace(trajectory, policy)
    whole = score_batch(policy, trajectory, batch)
    chunked = score_batch(policy, trajectory, batch, head_elements=3 * policy.vocab_size)
    assert len(whole.logprobs_N) > 6
    kit.assert_same(chunked.logprobs_N, whole.logprobs_N, policy, tolerance=1e-12)
    assert (chunked.entropies_N - whole.entropies_N).abs().max() < 1e-12


def test_head_in_chunks_recomputes_under_the_same_autocast(kit):
    policy = dataclasses.replace(kit.policy("block_causal", double=False), compute_dtype=torch.bfloat16)
    trajectory = kit.trajectory(policy, 3, rows=2, length=6)
    (batch,) = plan_trace(trajectory, policy)
    whole = score_batch(policy, trajectory, batch).logprobs_N
    chunked = score_batch(policy, trajectory, batch, head_elements=2 * policy.vocab_size).logprobs_N
    assert whole.dtype == torch.float32
    assert (whole - chunked).abs().max() < 1e-6
    pairs = zip(kit.gradients(policy, whole.sum()), kit.gradients(policy, chunked.sum()), strict=True)
    assert all((a - b).abs().max() <= 0.02 * (1 + b.abs().max()) for a, b in pairs)


def test_head_never_sees_more_rows_than_a_chunk(kit, monkeypatch):
    policy = kit.policy("block_causal")
    trajectory = kit.trajectory(policy, 3, rows=4, length=8)
    (batch,) = plan_trace(trajectory, policy)
    seen: list[int] = []
    head = type(policy.module).head

    def counting(self, hidden):
        seen.append(hidden.shape[0])
        return head(self, hidden)

    monkeypatch.setattr(type(policy.module), "head", counting)
    scores = score_batch(policy, trajectory, batch, head_elements=5 * policy.vocab_size)
    forward = list(seen)
    assert max(forward) == 5
    assert sum(forward) == len(scores.logprobs_N)
    scores.logprobs_N.sum().backward()
    assert sorted(seen[len(forward) :]) == sorted(forward)


def test_support_of_old_weights_stays_while_the_weights_move(rollouts):
    """The stored set is what is renormalised over, whatever the new weights would have kept."""
    policy, trajectory = rollouts
    with torch.no_grad():
        moved = [p.data.clone() for p in policy.parameters()]
        for parameter in policy.parameters():
            parameter.data *= 0.5
        scored = trajectory_logprobs(policy, trajectory)
        (batch,) = plan_trace(trajectory, policy)
        packed = batch.pack()
        logits = policy.logits(
            packed.ids_RT, attention_mask=packed.mask_R1TT, position_ids=packed.position_ids_RT,
            select_BT=packed.select_RT,
        )  # fmt: skip
        for parameter, value in zip(policy.parameters(), moved, strict=True):
            parameter.data.copy_(value)
    support = trajectory.support_ids_BLK[packed.row_N, packed.pos_N]
    fresh = truncation_support((logits / 0.7).log_softmax(-1), top_p=0.9)
    assert fresh.shape[1] != support.shape[1] or not torch.equal(fresh, support)
    for n in range(len(support)):
        ids = support[n][support[n] >= 0]
        token = trajectory.completion_ids_BL[packed.row_N[n], packed.pos_N[n]]
        expected = logits[n, token] / 0.7 - torch.logsumexp(logits[n, ids] / 0.7, 0)
        assert float(scored[packed.row_N[n], packed.pos_N[n]]) == pytest.approx(float(expected), abs=1e-5)
