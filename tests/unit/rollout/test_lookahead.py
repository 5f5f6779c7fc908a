"""Greedy one-step completions, recorded and computed, against one plain forward of one row at a time."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from steprs.errors import SamplingError
from steprs.policies import attention as masks
from steprs.policies.base import count_before
from steprs.policies.loading import load_policy
from steprs.rollout.block import BlockDiffusionSampler
from steprs.rollout.lookahead import complete_states, completion_texts, recording
from steprs.rollout.masked import MaskedDiffusionSampler
from steprs.rollout.unmasking import RULES
from steprs.states import merge_steps, state_at

from .helpers import decoding, make_keys, padded
from .stand_in import EOS, MASK, PAD, TablePolicy

PROMPTS = [[3, 4, 5, 6, 3], [4, 6], [5, 5, 3]]


class Policy(TablePolicy):
    """The table policy with a head that can be taken over."""

    def logits(self, ids_BT, *, reduce=None, **options):
        logits = super().logits(ids_BT, **options)
        return logits if reduce is None else reduce(lambda hidden: hidden, logits)


def policy_for(kind, size, **options):
    return Policy(**options) if kind == "masked" else Policy(attention="block_causal", block_size=size, **options)


def decoded(policy, settings, *, store=False, group=4, prompts=PROMPTS):
    if settings.kind == "block":
        sampler = BlockDiffusionSampler(decoding=settings)
    else:
        sampler = MaskedDiffusionSampler(decoding=settings, store_predictions=store)
    ids, mask = padded(prompts)
    return sampler.sample(policy, ids, mask, group_size=group, row_keys_B=make_keys(len(prompts), group))


def completed(policy, trajectory, row, canvas):
    """One row's canvas filled by one forward of the prompt without padding and the whole completion."""
    prompt = trajectory.prompt_ids_BC[row][trajectory.prompt_mask_BC[row]]
    ids = torch.cat([prompt, canvas])[None]
    valid = torch.ones_like(ids, dtype=torch.bool)
    mask = masks.full_mask(valid)
    if policy.attention == "block_causal":
        mask = masks.block_causal_mask(policy.block_layout(valid[:, : len(prompt)], len(canvas)), valid)
    with torch.no_grad():
        policy.module.eval()
        logits = policy.logits(ids, attention_mask=mask, position_ids=count_before(valid))[0, len(prompt) :]
    logits[:, [policy.mask_token_id, policy.pad_token_id]] = -torch.inf
    return torch.where(canvas == policy.mask_token_id, logits.argmax(-1), canvas)


@pytest.mark.parametrize("rule", RULES)
def test_recorded_and_computed_completions_are_those_of_one_forward_a_state(rule):
    tight = {"threshold": 0.1} if rule == "entropy_bound" else {}
    settings = decoding("masked", 8, 6, 8, unmasking=rule, **tight)
    policy = policy_for("masked", 8, eos_bias=-1.0, sharpness=3.0)
    trajectory = decoded(policy, settings, store=True, group=8)
    recorded = complete_states(policy, trajectory)
    assert recorded.forwards == 0
    computed = complete_states(policy, dataclasses.replace(trajectory, predictions_BSL=None), max_rows=5)
    assert torch.equal(recorded.ids_BNL, computed.ids_BNL) and torch.equal(recorded.moment_BS, computed.moment_BS)
    steps = trajectory.num_steps_B.tolist()
    assert (len(set(steps)) > 1) == (not RULES[rule].fixed_steps), "dynamic rollouts must differ in their states"
    for row, taken in enumerate(steps):
        for state in range(max(steps)):
            found = recorded.ids_BNL[row, state]
            if state < taken:
                assert torch.equal(found, completed(policy, trajectory, row, state_at(trajectory, state)[row]))
            else:
                assert found.tolist() == [-1] * 8
    assert not torch.equal(recorded.ids_BNL[:, 0], trajectory.completion_ids_BL), "greedy differs from the sample"


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_recording_leaves_the_rollouts_as_they_are(rule, temperature):
    settings = decoding("masked", 12, 7, 12, unmasking=rule, temperature=temperature)
    policy, prompts = load_policy("tiny-full"), [[5, 6, 7, 8], [9, 10]]
    plain, stored = (decoded(policy, settings, store=store, prompts=prompts, group=8) for store in (False, True))
    assert plain.predictions_BSL is None and stored.predictions_BSL.dtype == torch.int32
    for field in dataclasses.fields(plain):
        one, other = getattr(plain, field.name), getattr(stored, field.name)
        if isinstance(one, torch.Tensor) and one.dtype == torch.float32 and RULES[rule].looks_at == "nothing":
            # The head multiplies more rows than the rollout needs, which may round them otherwise.
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
        elif isinstance(one, torch.Tensor):
            assert torch.equal(one, other), field.name


@pytest.mark.parametrize(("kind", "prompt_block"), [("masked", "whole"), ("block", "whole"), ("block", "aligned")])
@pytest.mark.parametrize("eos_bias", [-torch.inf, 0.5])
def test_block_borders_against_one_row_at_a_time(kind, prompt_block, eos_bias):
    policy = policy_for(kind, 4, prompt_block=prompt_block, eos_bias=eos_bias)
    trajectory = decoded(policy, decoding(kind, 12, 9, 4), group=6)
    policy.seen.clear()
    looked = complete_states(policy, trajectory, max_rows=4)
    rows_read = sum(len(ids) for ids in policy.seen)
    assert max(len(ids) for ids in policy.seen) <= 4
    different = set()
    for row in range(18):
        blocks, steps = trajectory.block_index_BL[row], trajectory.unmask_step_BL[row]
        reached = int(blocks[steps >= 0].max())
        for block in range(looked.ids_BNL.shape[1]):
            if block > reached:
                assert looked.ids_BNL[row, block].tolist() == [-1] * 12
                continue
            canvas = torch.where(blocks < block, trajectory.completion_ids_BL[row], MASK)
            assert torch.equal(looked.ids_BNL[row, block], completed(policy, trajectory, row, canvas))
            different.add((row // 6, *canvas.tolist()))
        for state in range(int(trajectory.num_steps_B[row])):
            assert int(looked.moment_BS[row, state]) == int(blocks[steps == state][0])
    assert looked.forwards == rows_read == len(different) < 18 * 3
    assert (looked.ids_BNL[:, 2] == -1).any() == (eos_bias > 0), "the bias must end some rollouts early"


@pytest.mark.parametrize("kind", ["masked", "block"])
def test_the_empty_canvas_is_read_once_a_prompt(kind):
    policy = policy_for(kind, 4, eos_bias=-torch.inf)
    trajectory = decoded(policy, decoding(kind, 4, 4, 4), group=6)
    policy.seen.clear()
    assert complete_states(policy, trajectory).moment_BS.shape == (18, 4)
    assert policy.seen[0].shape[0] == 3


def test_a_text_ends_at_its_first_end_token():
    policy = load_policy("tiny")
    words = policy.tokenizer("1 + 2 3")["input_ids"]
    ids = torch.tensor([[*words, policy.eos_token_id, *words], [*words, *words, policy.eos_token_id]])
    assert completion_texts(policy, ids) == ["1 + 2 3", "1 + 2 3 1 + 2 3"]


@pytest.mark.parametrize("shrinkage", [2, 3])
def test_a_merged_state_keeps_the_completion_of_its_first_step(shrinkage):
    policy = policy_for("masked", 8, sharpness=4.0)
    settings = decoding("masked", 8, 8, 8, unmasking="confidence_threshold")
    trajectory = decoded(policy, settings, store=True)
    merged = merge_steps(trajectory, shrinkage)
    looked = complete_states(policy, merged)
    assert torch.equal(
        looked.ids_BNL, complete_states(policy, dataclasses.replace(merged, predictions_BSL=None)).ids_BNL
    )
    for row, taken in enumerate(merged.num_steps_B.tolist()):
        for state in range(taken):
            expected = trajectory.predictions_BSL[row, state * shrinkage]
            assert torch.equal(merged.predictions_BSL[row, state], expected)


def test_recording_is_for_whole_sequences():
    with pytest.raises(SamplingError, match="blocks of 4 of 8 positions.*complete_states"):
        MaskedDiffusionSampler(decoding=decoding("masked", 8, 8, 4), store_predictions=True)
    blocks = MaskedDiffusionSampler(decoding=decoding("masked", 8, 8, 4))
    causal = BlockDiffusionSampler(decoding=decoding("block", 8, 8, 4))
    assert recording(blocks) is blocks and recording(causal) is causal


def test_special_ids_are_never_predicted():
    """The table policy likes them best by far."""
    policy = policy_for("masked", 8)
    found = decoded(policy, decoding("masked", 8, 8, 8), store=True).predictions_BSL
    assert not torch.isin(found, torch.tensor([MASK, PAD])).any() and EOS not in (MASK, PAD)
