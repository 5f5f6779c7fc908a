"""Masks against their definitions, written out entry by entry, and one backend against another."""

import itertools

import pytest
import torch

from steprs.errors import ArgumentError, PolicyError
from steprs.policies.attention import block_causal_mask, cached_mask, full_mask, packed_mask, to_backend


def test_block_causal_mask_is_its_definition():
    generator = torch.Generator().manual_seed(1)
    block = torch.randint(0, 3, (2, 6), generator=generator)
    valid = torch.rand(2, 6, generator=generator) > 0.3
    mask = block_causal_mask(block, valid)
    for b, q, k in itertools.product(range(2), range(6), range(6)):
        assert mask[b, 0, q, k] == ((valid[b, k] and block[b, k] <= block[b, q]) or q == k)


def test_packed_mask_is_its_definition():
    generator = torch.Generator().manual_seed(2)
    block = torch.randint(0, 3, (2, 9), generator=generator)
    stream = torch.tensor([[0, 0, 0, 0, 1, 1, 2, 2, 3]]).expand(2, -1)
    valid = torch.rand(2, 9, generator=generator) > 0.2
    mask = packed_mask(block, stream, valid)
    for b, q, k in itertools.product(range(2), range(9), range(9)):
        clean_before = stream[b, k] == 0 and block[b, k] < block[b, q]
        own = stream[b, k] == stream[b, q] and block[b, k] == block[b, q]
        assert mask[b, 0, q, k] == ((valid[b, k] and (clean_before or own)) or q == k)


def test_every_query_sees_itself_even_when_all_is_padding(make_policy):
    nothing = torch.zeros(1, 4, dtype=torch.bool)
    assert torch.equal(full_mask(nothing)[0, 0], torch.eye(4, dtype=torch.bool))
    logits = make_policy().logits(torch.full((1, 4), 3), attention_mask=nothing, block_BT=torch.zeros(1, 4).long())
    assert torch.isfinite(logits).all()


def test_cached_mask_hides_the_caches_padding_and_nothing_new():
    mask = cached_mask(torch.tensor([[False, True], [True, True]]), torch.ones(2, 3, dtype=torch.bool))
    assert mask[0, 0].int().tolist() == [[0, 1, 1, 1, 1]] * 3
    assert mask[1].all()


def test_backends_agree_in_value_and_gradient(make_policy, inputs):
    ids, valid = inputs
    weights = torch.randn(3, 13, 14, generator=torch.Generator().manual_seed(5)) * valid[..., None]
    results = []
    for implementation in ("eager", "sdpa"):
        policy = make_policy(implementation=implementation)
        logits = policy.logits(ids, attention_mask=valid)
        (logits * weights).sum().backward()
        results.append((logits[valid], [weight.grad for weight in policy.parameters()]))
    (eager, eager_grads), (sdpa, sdpa_grads) = results
    torch.testing.assert_close(eager, sdpa, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(eager_grads, sdpa_grads, atol=1e-4, rtol=1e-4)


def test_flex_mask_holds_the_same_entries(make_policy, inputs):
    _, valid = inputs
    mask = block_causal_mask(make_policy().block_layout(valid[:, :5], 8), valid)
    flex = to_backend(mask, "flex_attention", torch.float32)
    for b, q, k in itertools.product(range(3), range(13), range(13)):
        index = [torch.tensor(i) for i in (b, 0, q, k)]
        assert flex.mask_mod(*index) == mask[b, 0, q, k]


def test_additive_masks_are_refused():
    with pytest.raises(ArgumentError, match="must be boolean"):
        to_backend(torch.zeros(1, 1, 2, 2), "eager", torch.float32)
    with pytest.raises(PolicyError, match="unknown attention implementation 'flash'"):
        to_backend(torch.ones(1, 1, 2, 2, dtype=torch.bool), "flash", torch.float32)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_bidirectional_mask_equals_a_model_that_is_not_causal(implementation, make_policy, inputs):
    policy = make_policy(implementation=implementation, attention="bidirectional")
    ids, _ = inputs
    expected = policy.logits(ids)
    for layer in policy.backbone.layers:
        layer.self_attn.is_causal = False
    policy.model.config.is_causal = False
    plain = policy.model(input_ids=ids, use_cache=False).logits
    torch.testing.assert_close(plain, expected, atol=1e-6, rtol=1e-5)
    causal = make_policy(implementation=implementation).model(input_ids=ids, use_cache=False).logits
    assert (causal - expected).abs().max() > 1e-2, "the stock model is causal unless it is told otherwise"
