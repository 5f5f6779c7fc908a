"""Draws: never an impossible token, the right distribution, the recorded numbers those of that distribution."""

from __future__ import annotations

import math

import pytest
import torch

from steprs.rollout import sampling
from steprs.rollout.sampling import draw, is_truncated, sample_tokens
from steprs.types import Decoding

FORBIDDEN = (0, 2)


def settings(**changes):
    return Decoding(kind="masked", length=4, steps=4, block_size=4, **changes)


def logits(rows: int, words: int = 9, seed: int = 0) -> torch.Tensor:
    return 2 * torch.randn(rows, words, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def grid(count: int) -> torch.Tensor:
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


def test_draw_inverts_the_cumulative_distribution():
    probs = torch.tensor([0.0, 0.2, 0.0, 0.5, 0.3, 0.0], dtype=torch.float64)
    ids = draw(probs.log().expand(1000, -1), grid(1000))
    assert torch.bincount(ids, minlength=6).tolist() == [0, 200, 0, 500, 300, 0]


@pytest.mark.parametrize("u", [5e-324, 1e-300, 2.0**-53, 0.5, 1 - 2.0**-53])
def test_extreme_uniforms_never_hit_an_impossible_token(u):
    """Also where the float sum of probabilities falls short of, or beyond, one."""
    for seed in range(20):
        scores = logits(8, words=50, seed=seed).float() * 20
        scores[:, [0, 7, 48, 49]] = -float("inf")
        logprobs = torch.log_softmax(scores, dim=-1)
        ids = draw(logprobs, torch.full((8,), u, dtype=torch.float64))
        assert bool((logprobs.gather(1, ids[:, None]) > -float("inf")).all())


def test_empirical_distribution_of_truncated_draws_is_exact():
    rules = settings(temperature=0.7, top_k=4, top_p=0.8)
    scores = logits(1)
    draws = sample_tokens(scores.expand(20000, -1), grid(20000), rules, forbidden=FORBIDDEN, store_support=True)
    tempered = scores[0] / 0.7
    tempered[list(FORBIDDEN)] = -float("inf")
    probs = torch.softmax(tempered, 0)
    order = probs.argsort(descending=True)[:4]
    kept, total = [], 0.0
    for index in order.tolist():
        if total < 0.8 * float(probs[order].sum()):
            kept.append(index)
        total += float(probs[index])
    expected = torch.zeros_like(probs)
    expected[kept] = probs[kept] / probs[kept].sum()
    share = torch.bincount(draws.ids_N, minlength=9) / 20000
    torch.testing.assert_close(share.double(), expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(draws.logprobs_N.double(), expected[draws.ids_N].log(), atol=1e-5, rtol=0)
    entropy = -sum(p * math.log(p) for p in expected[kept].tolist())
    assert float(draws.entropies_N[0]) == pytest.approx(entropy, abs=1e-6)
    assert draws.support_NK is not None
    assert {i for i in draws.support_NK[0].tolist() if i >= 0} == set(kept)


def test_support_always_holds_the_drawn_token_and_never_a_forbidden_one():
    draws = sample_tokens(logits(500, seed=3), grid(500), settings(top_p=0.5), forbidden=FORBIDDEN, store_support=True)
    assert draws.support_NK is not None
    assert bool((draws.support_NK == draws.ids_N[:, None]).any(1).all())
    assert not bool(torch.isin(draws.support_NK, torch.tensor(FORBIDDEN)).any())


def test_no_support_is_stored_without_truncation():
    assert not is_truncated(settings()) and not is_truncated(settings(temperature=0.0, top_k=3))
    assert sample_tokens(logits(3), grid(3), settings(), forbidden=FORBIDDEN, store_support=True).support_NK is None


def test_temperature_zero_takes_the_best_allowed_token_and_records_temperature_one():
    scores = logits(40, seed=1)
    scores[:, 2] = 50.0
    draws = sample_tokens(scores, grid(40), settings(temperature=0.0), forbidden=FORBIDDEN)
    allowed = scores.index_fill(1, torch.tensor(FORBIDDEN), -float("inf"))
    assert torch.equal(draws.ids_N, allowed.argmax(1))
    expected = torch.log_softmax(allowed, 1).gather(1, draws.ids_N[:, None]).squeeze(1)
    torch.testing.assert_close(draws.logprobs_N.double(), expected, atol=1e-6, rtol=0)


def test_chunks_change_nothing(monkeypatch):
    scores, uniforms, rules = logits(101, seed=2), grid(101), settings(top_p=0.6)
    whole = sample_tokens(scores, uniforms, rules, forbidden=FORBIDDEN, store_support=True)
    monkeypatch.setattr(sampling, "_CHUNK_ELEMENTS", 30)
    parts = sample_tokens(scores, uniforms, rules, forbidden=FORBIDDEN, store_support=True)
    for name in ("ids_N", "logprobs_N", "entropies_N", "support_NK"):
        assert torch.equal(getattr(whole, name), getattr(parts, name)), name
