"""What a policy promises: rows score their own token, padding and caches change nothing, blocks do not leak."""

import dataclasses

import pytest
import torch

from steprs.errors import ArgumentError, PolicyError
from steprs.policies.attention import block_causal_mask
from steprs.policies.base import count_before
from steprs.policies.tiny import create_tiny
from steprs.testing.policies import check_policy


@pytest.mark.parametrize("attention", ["block_causal", "bidirectional"])
def test_conforms(attention, make_policy):
    check_policy(make_policy(attention=attention))


def test_row_scores_the_token_at_its_own_position(make_policy):
    """A policy trained to copy puts the token AT a position, not the next one, on top of that position's row."""
    policy = make_policy(attention="bidirectional").train(True)
    optimiser = torch.optim.Adam(policy.parameters(), lr=2e-2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        ids = torch.randint(3, 14, (16, 10), generator=generator)
        loss = torch.nn.functional.cross_entropy(policy.logits(ids).flatten(0, 1), ids.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    ids = torch.tensor([[3, 7, 3, 3, 9, 12, 4, 4]])
    assert torch.equal(policy.logits(ids).argmax(dim=-1), ids)


@pytest.mark.parametrize("attention", ["block_causal", "bidirectional"])
def test_left_padding_changes_nothing(attention, make_policy, inputs):
    policy = make_policy(attention=attention)
    ids, _ = inputs
    alone = policy.logits(ids).log_softmax(-1)
    padded = torch.cat((torch.zeros(3, 4, dtype=torch.int64), ids), dim=1)
    valid = torch.arange(17).expand(3, 17) >= 4
    beside = policy.logits(padded, attention_mask=valid).log_softmax(-1)[:, 4:]
    torch.testing.assert_close(beside, alone, atol=1e-5, rtol=0)


def test_selected_rows_are_rows_of_the_whole(make_policy, inputs):
    policy = make_policy()
    ids, valid = inputs
    select = torch.rand(3, 13, generator=torch.Generator().manual_seed(4)) < 0.4
    whole = policy.logits(ids, attention_mask=valid)
    torch.testing.assert_close(
        policy.logits(ids, attention_mask=valid, select_BT=select), whole[select], atol=1e-6, rtol=0
    )


def test_the_head_never_sees_unselected_rows(make_policy, inputs):
    policy = make_policy()
    seen = []
    policy.model.get_output_embeddings().register_forward_hook(lambda module, args, out: seen.append(out.shape))
    ids, _ = inputs
    select = torch.zeros(3, 13, dtype=torch.bool)
    select[1, 4] = True
    policy.logits(ids, select_BT=select)
    assert seen == [torch.Size([1, policy.vocab_size])]


def test_later_blocks_never_reach_earlier_logits(make_policy, inputs):
    policy = make_policy()
    ids, _ = inputs
    changed = ids.clone()
    changed[:, 9:] = 3 + (changed[:, 9:] - 2) % 11
    before, after = policy.logits(ids), policy.logits(changed)
    assert torch.equal(before[:, :9], after[:, :9])
    assert (before[:, 9:] - after[:, 9:]).abs().max() > 1e-3


def test_inside_a_block_both_directions_are_seen(make_policy, inputs):
    policy = make_policy()
    ids, _ = inputs
    changed = ids.clone()
    changed[:, 8] = 3 + (changed[:, 8] - 2) % 11
    before, after = policy.logits(ids), policy.logits(changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert ((before[:, 5:8] - after[:, 5:8]).abs().amax(dim=-1) > 1e-6).all()


def test_prefix_cache_equals_no_cache(make_policy, inputs):
    policy = make_policy()
    ids, _ = inputs
    whole = policy.logits(ids)
    cache = policy.new_cache()
    parts = [policy.logits(ids[:, start:stop], cache=cache) for start, stop in ((0, 5), (5, 9), (9, 13))]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-5, rtol=0)


def test_cropped_and_repeated_cache_is_the_prompts(make_policy, inputs):
    """A noisy block is looked at, dropped, and the prompt shared by the rows of a group."""
    policy = make_policy()
    ids, _ = inputs
    cache = policy.new_cache()
    policy.logits(ids[:, :5], cache=cache)
    cache.batch_repeat_interleave(2)
    rows = ids.repeat_interleave(2, dim=0)
    noisy = torch.full((6, 4), policy.mask_token_id)
    policy.logits(noisy, cache=cache)
    cache.crop(-4)
    expected = policy.logits(rows)[:, 5:9]
    torch.testing.assert_close(policy.logits(rows[:, 5:9], cache=cache), expected, atol=1e-5, rtol=0)


def test_block_layout_whole_and_aligned(make_policy):
    prompt_mask = torch.tensor([[False, True, True], [True, True, True]])
    whole = make_policy(block_size=2)
    assert whole.block_layout(prompt_mask, 4)[1].tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert torch.equal(whole.block_layout(prompt_mask, 4)[0, 1:], whole.block_layout(prompt_mask, 4)[1, 1:])
    aligned = dataclasses.replace(whole, prompt_block="aligned")
    assert aligned.block_layout(prompt_mask, 4).tolist() == [[0, 0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2, 3]]
    bidirectional = make_policy(attention="bidirectional")
    assert not bidirectional.block_layout(prompt_mask, 4).any()


def test_explicit_mask_is_used_as_given(make_policy, inputs):
    policy = make_policy()
    ids, valid = inputs
    layout = policy.block_layout(valid[:, :5], 8)
    own = policy.logits(ids, attention_mask=valid)
    given = policy.logits(ids, attention_mask=block_causal_mask(layout, valid), position_ids=count_before(valid))
    assert torch.equal(own, given)


def test_unknown_completion_length_is_asked_for(make_policy, inputs):
    policy = make_policy(decoding_defaults={})
    ids, _ = inputs
    with pytest.raises(ArgumentError, match="block_BT=policy.block_layout"):
        policy.logits(ids)
    assert policy.logits(ids, block_BT=policy.block_layout(torch.ones(3, 5, dtype=torch.bool), 8)).isfinite().all()


@pytest.mark.parametrize(
    ("mask", "cached", "message"),
    [
        (torch.ones(3, 1, 13, 12, dtype=torch.bool), False, "need \\[B, 1, 13, 13\\]"),
        (torch.ones(3, 12, dtype=torch.bool), False, "for ids"),
        (torch.zeros(3, 1, 13, 13), False, "must be boolean"),
        (torch.ones(3, 13, dtype=torch.bool), True, "with a cache"),
    ],
)
def test_masks_that_fit_nothing_are_refused(mask, cached, message, make_policy, inputs):
    policy = make_policy()
    ids, _ = inputs
    cache = policy.new_cache() if cached else None
    with pytest.raises(ArgumentError, match=message):
        policy.logits(ids, attention_mask=mask, cache=cache)


def test_gradient_checkpointing_changes_no_gradient(make_policy, inputs):
    ids, _ = inputs
    gradients = []
    for checkpointing in (False, True):
        policy = make_policy().train(True)
        if checkpointing:
            policy.model.activation_checkpointing_enable({"use_reentrant": False})
        policy.logits(ids).square().mean().backward()
        gradients.append([weight.grad for weight in policy.parameters()])
    assert all(map(torch.equal, *gradients))


def test_bfloat16_keeps_float32_weights_and_logits(make_policy, inputs):
    policy = make_policy()
    ids, _ = inputs
    low = dataclasses.replace(policy, compute_dtype=torch.bfloat16)
    assert low.logits(ids).dtype == torch.float32
    assert {weight.dtype for weight in low.parameters()} == {torch.float32}
    difference = (low.logits(ids) - policy.logits(ids)).abs().max()
    assert 0 < difference < 0.05 * policy.logits(ids).abs().max()


def test_no_adapter_needs_adapters(make_policy):
    with pytest.raises(PolicyError, match="no adapters"), make_policy().no_adapter():
        pass


def test_seed_alone_decides_the_weights():
    torch.manual_seed(11)
    state = torch.get_rng_state()
    first, second, other = (create_tiny(["1", "2"], seed=s, hidden_size=8, heads=2, layers=1) for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state), "creating a policy must not move the global generator"
    pairs = zip(first.parameters(), second.parameters(), other.parameters(), strict=True)
    compared = [(torch.equal(a, b), torch.equal(a, c)) for a, b, c in pairs if a.ndim == 2]
    assert compared and all(same and not different for same, different in compared)
