"""Loss terms against pencil, enumeration and finite differences."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from steprs.errors import ArgumentError
from steprs.losses import (
    aggregation_weights,
    kl_estimate,
    off_policy_rows,
    policy_gradient_loss,
    ppo_clip_loss,
    truncated_is_loss,
)


def _policy(seed: int) -> torch.Tensor:
    """Logits of a distribution over five tokens, float64."""
    return torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# policy gradient ---------------------------------------------------------------------------------------------------


def test_policy_gradient_by_enumeration():
    """The mean over all tokens of the loss' gradient is minus the gradient of the expected advantage."""
    logits, advantage = _policy(0).requires_grad_(), torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0], dtype=torch.float64)
    logprobs = logits.log_softmax(-1)
    loss = (logprobs.exp().detach() * policy_gradient_loss(logprobs, advantage)).sum()
    expected = (logits.softmax(-1) * advantage).sum()
    ours = torch.autograd.grad(loss, logits, retain_graph=True)[0]
    torch.testing.assert_close(ours, -torch.autograd.grad(expected, logits)[0], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss", ["policy-gradient", "ppo-clip"])
def test_no_gradient_reaches_the_advantages(loss):
    logprobs, advantages = torch.zeros(3, requires_grad=True), torch.ones(3, requires_grad=True)
    if loss == "policy-gradient":
        value = policy_gradient_loss(logprobs, advantages)
    else:
        value = ppo_clip_loss(logprobs, torch.zeros(3), advantages, clip_low=0.2, clip_high=0.2)[0]
    value.sum().backward()
    assert advantages.grad is None
    assert (logprobs.grad != 0).all()


# PPO clip ------------------------------------------------------------------------------------------------------------

CLIP_TABLE = [  # ratio, advantage, low, high -> loss, clipped
    (1.0, 1.0, 0.2, 0.2, -1.0, False),
    (1.1, 2.0, 0.2, 0.2, -2.2, False),
    (1.5, 2.0, 0.2, 0.2, -2.4, True),
    (1.5, 2.0, 0.2, 0.28, -2.56, True),
    (0.5, 2.0, 0.2, 0.28, -1.0, False),
    (0.5, -2.0, 0.2, 0.28, 1.6, True),
    (0.5, -2.0, 0.4, 0.28, 1.2, True),
    (0.9, -2.0, 0.2, 0.28, 1.8, False),
    (1.5, -2.0, 0.2, 0.28, 3.0, False),
    (5.0, 0.0, 0.2, 0.28, 0.0, False),
]


@pytest.mark.parametrize(("ratio", "advantage", "low", "high", "expected", "clipped"), CLIP_TABLE)
def test_ppo_clip_by_hand(ratio, advantage, low, high, expected, clipped):
    logprob = torch.tensor([math.log(ratio) - 1.3], dtype=torch.float64, requires_grad=True)
    loss, was_clipped, measured = ppo_clip_loss(
        logprob, torch.tensor([-1.3], dtype=torch.float64), torch.tensor([advantage], dtype=torch.float64),
        clip_low=low, clip_high=high,
    )  # fmt: skip
    loss.sum().backward()
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    assert was_clipped.item() is clipped
    assert measured.item() == pytest.approx(ratio)
    assert logprob.grad.item() == pytest.approx(0.0 if clipped else -advantage * ratio, abs=1e-12)


def test_ppo_at_the_first_inner_update_has_the_policy_gradient():
    logits = _policy(1).requires_grad_()
    logprobs, advantages = logits.log_softmax(-1), torch.linspace(-1.0, 1.0, 5, dtype=torch.float64)
    clip, clipped, ratio = ppo_clip_loss(logprobs, logprobs.detach(), advantages, clip_low=0.2, clip_high=0.2)
    assert (ratio == 1).all()
    assert not clipped.any()
    ours = torch.autograd.grad(clip.sum(), logits, retain_graph=True)[0]
    plain = torch.autograd.grad(policy_gradient_loss(logprobs, advantages).sum(), logits)[0]
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.2), (1.0, 0.2), (0.2, 0.0), (-0.1, 0.2)])
def test_clip_bounds_out_of_range_are_refused(low, high):
    with pytest.raises(ArgumentError, match="clip_low"):
        ppo_clip_loss(torch.zeros(1), torch.zeros(1), torch.ones(1), clip_low=low, clip_high=high)


# KL ------------------------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000))
def test_kl_values_by_enumeration(seed):
    pi, ref = _policy(seed).log_softmax(-1), _policy(seed + 5000).log_softmax(-1)
    exact = float((pi.exp() * (pi - ref)).sum())
    assert float((pi.exp() * kl_estimate(pi, ref, "k1")).sum()) == pytest.approx(exact, rel=1e-10)
    assert float((pi.exp() * kl_estimate(pi, ref, "k3")).sum()) == pytest.approx(exact, rel=1e-10)
    assert (kl_estimate(pi, ref, "k3") >= 0).all()
    assert (kl_estimate(pi, ref, "k2") == 0.5 * (pi - ref) ** 2).all()


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl_gradients_by_enumeration(kind):
    """Over tokens sampled from pi: k1 and k2 descend KL(pi, ref), k3 descends KL(ref, pi)."""
    logits, ref = _policy(2).requires_grad_(), _policy(3).log_softmax(-1)
    pi = logits.log_softmax(-1)
    exact = (ref.exp() * (ref - pi)).sum() if kind == "k3" else (pi.exp() * (pi - ref)).sum()
    estimate = (pi.exp().detach() * kl_estimate(pi, ref, kind)).sum()
    ours = torch.autograd.grad(estimate, logits, retain_graph=True)[0]
    torch.testing.assert_close(ours, torch.autograd.grad(exact, logits)[0], rtol=1e-10, atol=1e-12)
    assert ours.abs().max() > 0.01


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl_of_equal_policies_is_nothing(kind):
    """The first update of a run: value 0 and gradient 0, no NaN."""
    pi = _policy(4).log_softmax(-1).requires_grad_()
    value = kl_estimate(pi, pi.detach(), kind)
    value.sum().backward()
    assert (value == 0).all()
    assert (pi.grad == 0).all()


def test_k3_keeps_its_accuracy_when_policies_are_close():
    pi = torch.tensor([-1.0, -1.0, -1.0])
    ref = pi + torch.tensor([0.0, 2.0**-10, -(2.0**-10)])
    assert kl_estimate(pi, ref, "k3").tolist() == pytest.approx([0.0, 2.0**-21, 2.0**-21], rel=0.05)


def test_unknown_names_are_refused():
    with pytest.raises(ArgumentError, match="k4"):
        kl_estimate(torch.zeros(1), torch.zeros(1), "k4")
    with pytest.raises(ArgumentError, match="token-mean"):
        aggregation_weights(torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2, dtype=torch.int64), "token-men")


@pytest.mark.parametrize("loss", ["policy-gradient", "ppo-clip", "k1", "k2", "k3"])
def test_gradients_against_finite_differences(loss):
    generator = torch.Generator().manual_seed(7)
    old = torch.randn(6, dtype=torch.float64, generator=generator) - 2
    logprobs = (old + 0.4 * torch.randn(6, dtype=torch.float64, generator=generator)).requires_grad_()
    advantages = torch.randn(6, dtype=torch.float64, generator=generator)

    def value(x: torch.Tensor) -> torch.Tensor:
        if loss == "policy-gradient":
            return policy_gradient_loss(x, advantages)
        if loss == "ppo-clip":
            return ppo_clip_loss(x, old, advantages, clip_low=0.2, clip_high=0.3)[0]
        # k1's gradient is k2's by design.
        return kl_estimate(x, old, "k2" if loss == "k1" else loss)

    assert torch.autograd.gradcheck(value, (logprobs,), eps=1e-6, atol=1e-6)


# Aggregation ---------------------------------------------------------------------------------------------------------


def _token_mean(loss, mask, step):
    return loss[mask].mean()


def _sequence_mean(loss, mask, step):
    rows = [loss[b][mask[b]].mean() for b in range(len(loss)) if mask[b].any()]
    return torch.stack(rows).mean()


def _state_mean(loss, mask, step):
    pairs = {(b, int(s)) for b in range(len(loss)) for s in step[b][mask[b]]}
    return torch.stack([loss[b][mask[b] & (step[b] == s)].mean() for b, s in pairs]).mean()


AGGREGATIONS = {"token-mean": _token_mean, "sequence-mean": _sequence_mean, "state-mean": _state_mean}


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 5), length=st.integers(1, 7))
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_aggregations_against_three_lines(aggregation, seed, rows, length):
    generator = torch.Generator().manual_seed(seed)
    loss = torch.randn(rows, length, generator=generator, dtype=torch.float64)
    step = torch.randint(-1, 4, (rows, length), generator=generator)
    mask = (torch.rand(rows, length, generator=generator) < 0.6) & (step >= 0)
    weights, count = aggregation_weights(mask, step, aggregation)
    assert weights.dtype == torch.float32
    assert (weights[~mask] == 0).all()
    assert float(weights.sum()) == pytest.approx(count, rel=1e-5)
    if mask.any():
        expected = float(AGGREGATIONS[aggregation](loss, mask, step))
        assert float((weights * loss).sum() / count) == pytest.approx(expected, abs=1e-6)
    else:
        assert count == 0


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_parts_of_an_update_add_up(aggregation):
    generator = torch.Generator().manual_seed(3)
    step = torch.randint(0, 3, (8, 5), generator=generator)
    mask = torch.rand(8, 5, generator=generator) < 0.7
    weights, count = aggregation_weights(mask, step, aggregation)
    for parts in (2, 4, 8):
        pairs = [
            aggregation_weights(m, s, aggregation) for m, s in zip(mask.chunk(parts), step.chunk(parts), strict=True)
        ]
        assert torch.equal(torch.cat([w for w, _ in pairs]), weights)
        assert sum(c for _, c in pairs) == count


def test_misuse_is_named():
    mask, step = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[0, -1]])
    with pytest.raises(ArgumentError, match="never revealed"):
        aggregation_weights(mask, step, "state-mean")
    with pytest.raises(ArgumentError, match=r"\[B, L\]"):
        aggregation_weights(mask, step[0], "token-mean")


def test_truncated_importance_weights_carry_no_gradient():
    logprobs = torch.tensor([-1.0, -1.0, -3.0], requires_grad=True)
    sampled, advantages = torch.tensor([-1.5, -3.0, -1.0]), torch.tensor([1.0, 2.0, -1.0])
    loss, cut, ratio = truncated_is_loss(logprobs, sampled, advantages, ratio_cap=2.0)
    assert cut.tolist() == [False, True, False]
    assert ratio.tolist() == pytest.approx([math.exp(0.5), math.exp(2.0), math.exp(-2.0)])
    loss.sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([-math.exp(0.5), -2.0 * 2.0, math.exp(-2.0)])


def test_rows_are_left_out_only_without_a_positive_advantage_and_far_away():
    sampled = torch.full((4, 3), -1.0)
    now = sampled - torch.tensor([[0.6], [0.6], [0.4], [-0.6]])
    mask = torch.tensor([[True, True, False]]).expand(4, 3)
    now = now.masked_fill(~mask, -100.0)
    advantages = torch.tensor([[1.0], [0.0], [-1.0], [-1.0]]).expand(4, 3)
    assert off_policy_rows(now, sampled, advantages, mask.float(), limit=0.5).tolist() == [False, True, False, False]
