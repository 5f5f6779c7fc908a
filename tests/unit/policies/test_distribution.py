"""The one definition of the sampling distribution."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from steprs.errors import ArgumentError
from steprs.policies.distribution import forbidden_ids, picked_logprobs, token_logprobs, truncation_support


def _logits(seed: int, rows: int = 4, vocabulary: int = 9) -> torch.Tensor:
    return 2 * torch.randn(rows, vocabulary, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_padding_that_doubles_as_end_of_text_may_be_sampled():
    assert forbidden_ids(SimpleNamespace(mask_token_id=7, eos_token_id=3, pad_token_id=5)) == (5, 7)
    assert forbidden_ids(SimpleNamespace(mask_token_id=7, eos_token_id=3, pad_token_id=3)) == (7,)


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 2.0])
def test_it_is_the_tempered_softmax_over_what_is_allowed(temperature):
    logits = _logits(0)
    weights = (logits / temperature).exp()
    weights[:, [2, 5]] = 0.0
    expected = weights / weights.sum(-1, keepdim=True)
    actual = token_logprobs(logits, temperature=temperature, forbidden_ids=(2, 5)).exp()
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)


def test_greedy_decoding_is_scored_at_temperature_one():
    logits = _logits(1)
    assert torch.equal(token_logprobs(logits, temperature=0.0), token_logprobs(logits, temperature=1.0))


def test_negative_temperature_is_refused():
    with pytest.raises(ArgumentError, match="temperature"):
        token_logprobs(_logits(0), temperature=-0.1)


def test_support_renormalises_over_its_ids():
    logits = _logits(2, rows=2)
    support = torch.tensor([[1, 4, -1], [8, 0, 3]])
    probs = token_logprobs(logits, temperature=0.5, support_ids_NK=support).exp()
    torch.testing.assert_close(probs[0, [1, 4]], (logits[0, [1, 4]] / 0.5).softmax(-1))
    torch.testing.assert_close(probs[1, [8, 0, 3]], (logits[1, [8, 0, 3]] / 0.5).softmax(-1))
    assert (probs > 0).sum(-1).tolist() == [2, 3]


def _brute_support(probs: list[float], top_p: float, top_k: int) -> set[int]:
    order = sorted((i for i, p in enumerate(probs) if p > 0), key=lambda i: -probs[i])
    order = order[:top_k] if top_k else order
    total, kept, mass = sum(probs[i] for i in order), [], 0.0
    for i in order:
        if kept and mass / total >= top_p:
            break
        kept.append(i)
        mass += probs[i]
    return set(kept)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 0.999, 1.0]),
    top_k=st.sampled_from([0, 1, 3, 50]),
)
def test_truncation_is_top_k_then_nucleus(seed, top_p, top_k):
    logprobs = token_logprobs(_logits(seed), temperature=0.8, forbidden_ids=(0,))
    support = truncation_support(logprobs, top_p=top_p, top_k=top_k)
    for row in range(4):
        assert {i for i in support[row].tolist() if i >= 0} == _brute_support(
            logprobs[row].exp().tolist(), top_p, top_k
        )
    assert (support >= 0).any(0).all()


@pytest.mark.parametrize("support", [None, torch.tensor([[1, 4, -1], [8, 0, 3]])])
@pytest.mark.parametrize("truncation", [{}, {"top_p": 0.7}, {"top_k": 2}])
def test_picked_value_entropy_and_gradient_are_those_of_the_whole_distribution(support, truncation):
    logits = _logits(3, rows=2).requires_grad_()
    token = torch.tensor([4, 3])
    picked = picked_logprobs(logits, token, temperature=0.7, forbidden_ids=(6,), support_ids_NK=support, **truncation)
    kept = support
    if support is None and truncation:
        kept = truncation_support(token_logprobs(logits, temperature=0.7, forbidden_ids=(6,)), **truncation)
        kept = torch.cat((kept, token[:, None]), 1)
    whole = token_logprobs(logits, temperature=0.7, forbidden_ids=(6,), support_ids_NK=kept)
    expected = whole.gather(1, token[:, None])[:, 0]
    torch.testing.assert_close(picked[:, 0], expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(picked[:, 1], torch.special.entr(whole.exp()).sum(-1), rtol=1e-12, atol=1e-12)
    tilt = torch.tensor([1.0, -2.0])
    ours = torch.autograd.grad((picked[:, 0] * tilt).sum(), logits, retain_graph=True)[0]
    theirs = torch.autograd.grad((expected * tilt).sum(), logits)[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert torch.isfinite(ours).all()
    entropy_part = torch.autograd.grad(picked.sum() - picked[:, 0].sum(), logits, allow_unused=True)[0]
    assert entropy_part is None or (entropy_part == 0).all()


def test_half_precision_is_lifted():
    logits = _logits(4).to(torch.bfloat16)
    assert token_logprobs(logits, temperature=1.0).dtype == torch.float32
    torch.testing.assert_close(token_logprobs(logits, temperature=1.0), logits.float().log_softmax(-1))
