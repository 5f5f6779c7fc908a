"""Both samplers on a table policy: canvases, cache, schedules, independence of the batch."""

from __future__ import annotations

import pytest
import torch

from steprs.errors import ArgumentError, SamplingError
from steprs.rollout.block import GivenBlocks
from steprs.rollout.unmasking import RULES
from steprs.states import state_at

from .helpers import assert_same, decoding, make_keys, make_sampler, padded, sample
from .stand_in import EOS, MASK, PAD, TablePolicy

PROMPTS = [[3, 4, 5, 6, 3], [4, 6], [5, 5, 3]]
NEVER = -float("inf")


def policy_for(kind: str, size: int, **options) -> TablePolicy:
    if kind == "masked":
        return TablePolicy(**options)
    return TablePolicy(attention="block_causal", block_size=size, **options)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("prompt_block", ["whole", "aligned"])
@pytest.mark.parametrize("truncation", [{}, {"temperature": 0.7, "top_p": 0.9, "top_k": 3}, {"temperature": 0.0}])
def test_cached_equals_cache_free(rule, prompt_block, truncation):
    settings = decoding("block", 12, 7, 4, unmasking=rule, **truncation)
    policy = policy_for("block", 4, prompt_block=prompt_block, eos_bias=-1.0)
    cached = sample(policy, settings, PROMPTS, 5, store_support=True)
    plain = sample(policy, settings, PROMPTS, 5, store_support=True, use_cache=False)
    assert_same(cached, plain)
    if truncation.get("top_p"):
        assert torch.equal(cached.support_ids_BLK, plain.support_ids_BLK)
    else:
        assert cached.support_ids_BLK is None


@pytest.mark.parametrize("kind", ["masked", "block"])
@pytest.mark.parametrize("rule", ["low_confidence", "random", "confidence_threshold"])
@pytest.mark.parametrize("prompt_block", ["whole", "aligned"])
def test_results_do_not_depend_on_the_batch(kind, rule, prompt_block):
    """One prompt alone, beside longer ones, with more padding, and with its group split, gives the same rollouts."""
    settings = decoding(kind, 8, 8, 4, unmasking=rule)
    policy = policy_for(kind, 4, prompt_block=prompt_block, eos_bias=-1.0)
    together = sample(policy, settings, PROMPTS, 6)
    for max_rows in (4, 13):
        assert_same(sample(policy, settings, PROMPTS, 6, max_rows=max_rows), together)
    assert_same(sample(policy, settings, PROMPTS, 6, width=9), together)
    for index, prompt in enumerate(PROMPTS):
        alone = sample(policy, settings, [prompt], 6, keys=make_keys(1, 6, first=index))
        assert_same(alone, together.rows(torch.arange(6 * index, 6 * index + 6)))


@pytest.mark.parametrize(("kind", "size"), [("masked", 8), ("masked", 4), ("block", 4)])
def test_every_row_sees_the_state_that_the_record_rebuilds(kind, size):
    """Many rows at once; full attention reads equal canvases once, the cache-free reference every row."""
    policy = policy_for(kind, size, eos_bias=NEVER)
    settings = decoding(kind, 8, 6, size)
    trajectory = sample(policy, settings, PROMPTS, 4, **({"use_cache": False} if kind == "block" else {}))
    context = trajectory.prompt_ids_BC.shape[1]
    assert len(policy.seen) == 6
    for step, ids in enumerate(policy.seen):
        canvas = ids[:, context:]
        expected = state_at(trajectory, step)[:, : canvas.shape[1]]
        if kind == "block":
            assert torch.equal(canvas, expected)
        else:
            whole = torch.cat([trajectory.prompt_ids_BC, expected], dim=1)
            assert torch.equal(ids.unique(dim=0), whole.unique(dim=0)) and len(ids) == len(ids.unique(dim=0))


@pytest.mark.parametrize("kind", ["masked", "block"])
@pytest.mark.parametrize("rule", ["max_probability", "random"])
def test_equal_canvases_of_a_group_are_read_once(kind, rule):
    """One forward a prompt for the first state, and one for each different canvas after it."""
    policy = policy_for(kind, 4, eos_bias=NEVER, sharpness=1.5)
    trajectory = sample(policy, decoding(kind, 8, 8, 4, unmasking=rule), PROMPTS, 8)
    prompt = torch.arange(3).repeat_interleave(8)[:, None]
    different = [torch.cat([prompt, state_at(trajectory, step)], dim=1).unique(dim=0) for step in range(8)]
    assert [ids.shape[0] for ids in policy.seen] == [len(rows) for rows in different]
    assert len(different[0]) == 3 < len(different[2]) < 24


def test_cached_forwards_read_new_tokens_only():
    """Prompt with the first state, then a block a step; a clean block rides with the first state of the next."""
    policy = policy_for("block", 4, eos_bias=NEVER)
    sample(policy, decoding("block", 12, 12, 4), PROMPTS, 2)
    assert [ids.shape[1] for ids in policy.seen] == [5 + 4, 4, 4, 4, 8, 4, 4, 4, 8, 4, 4, 4]


@pytest.mark.parametrize("steps", range(3, 13))
@pytest.mark.parametrize("kind", ["masked", "block"])
def test_number_revealed_each_step_is_the_schedule(kind, steps):
    """Case: steps that divide neither blocks nor positions; first blocks and steps take the remainder."""
    policy = policy_for(kind, 4, eos_bias=NEVER)
    trajectory = sample(policy, decoding(kind, 12, steps, 4), PROMPTS[:1], 3)
    assert trajectory.num_steps_B.tolist() == [steps] * 3
    base, rest = divmod(steps, 3)
    expected = []
    for block in range(3):
        count, extra = divmod(4, base + (block < rest))
        expected += [count + (step < extra) for step in range(base + (block < rest))]
    for row in trajectory.unmask_step_BL:
        assert torch.bincount(row, minlength=steps).tolist() == expected


@pytest.mark.parametrize("rule", ["entropy_bound", "confidence_threshold"])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("steps", [3, 5, 12])
def test_dynamic_rules_reveal_each_step_and_keep_within_the_steps(rule, threshold, steps):
    policy = policy_for("block", 4, eos_bias=NEVER)
    trajectory = sample(policy, decoding("block", 12, steps, 4, unmasking=rule, threshold=threshold), PROMPTS, 8)
    assert not trajectory.steps_fixed and trajectory.selection_exact
    for row, taken in zip(trajectory.unmask_step_BL, trajectory.num_steps_B.tolist(), strict=True):
        assert taken <= steps
        assert row.unique().tolist() == list(range(taken))
    if threshold == (1.0 if rule == "confidence_threshold" else 0.0) and steps == 12:
        assert trajectory.num_steps_B.tolist() == [12] * 24


def test_dynamic_rules_save_steps_where_the_model_is_sure():
    policy = policy_for("block", 4, eos_bias=NEVER, sharpness=6.0)
    eager = sample(policy, decoding("block", 12, 12, 4, unmasking="confidence_threshold"), PROMPTS, 8)
    assert len(set(eager.num_steps_B.tolist())) > 1 and int(eager.num_steps_B.min()) < 12


@pytest.mark.parametrize("kind", ["masked", "block"])
def test_decoding_stops_after_the_block_with_the_first_end_token(kind):
    """Cases: continuing after the end; never revealed is -1 and never 0; padding instead of mask tokens."""
    policy = policy_for(kind, 4, eos_bias=0.5)
    trajectory = sample(policy, decoding(kind, 16, 16, 4), PROMPTS, 16)
    early = 0
    for row in range(trajectory.completion_ids_BL.shape[0]):
        ids, steps = trajectory.completion_ids_BL[row].tolist(), trajectory.unmask_step_BL[row].tolist()
        end = ids.index(EOS) if EOS in ids else 15
        reached = (end // 4 + 1) * 4
        early += reached < 16
        assert sorted(steps[:reached]) == list(range(reached)) and steps[reached:] == [-1] * (16 - reached)
        assert ids[reached:] == [PAD] * (16 - reached)
        assert trajectory.num_steps_B[row] == reached
        assert trajectory.completion_mask_BL[row].tolist() == [place <= end for place in range(16)]
        assert not trajectory.sampling_logprobs_BL[row, reached:].any()
    assert early > 10


def test_rows_that_ended_leave_the_batch():
    policy = policy_for("block", 4, eos_bias=0.5)
    trajectory = sample(policy, decoding("block", 16, 16, 4), PROMPTS, 16)
    rows = [ids.shape[0] for ids in policy.seen][1:]
    prompt = torch.arange(3).repeat_interleave(16)[:, None]
    different = []
    for step in range(1, len(rows) + 1):
        alive = trajectory.num_steps_B > step
        different.append(len(torch.cat([prompt, state_at(trajectory, step)], dim=1)[alive].unique(dim=0)))
    assert rows == different and rows[-1] < max(rows) <= 48


@pytest.mark.parametrize("kind", ["masked", "block"])
def test_whole_canvas_is_decoded_when_it_is_one_block(kind):
    """No early stop inside a block: tokens behind the end are recorded, and masked out."""
    policy = policy_for(kind, 8, eos_bias=0.5)
    trajectory = sample(policy, decoding(kind, 8, 8, 8), PROMPTS, 8)
    assert bool((trajectory.unmask_step_BL >= 0).all())
    assert not bool(trajectory.completion_mask_BL.all())


@pytest.mark.parametrize("kind", ["masked", "block"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("temperature", [0.0, 0.5, 3.0])
def test_never_a_mask_or_padding_token_among_the_revealed(kind, rule, temperature):
    """The table policy likes both best, so only removing their logits can pass."""
    policy = policy_for(kind, 4)
    trajectory = sample(policy, decoding(kind, 8, 5, 4, unmasking=rule, temperature=temperature), PROMPTS, 8)
    revealed = trajectory.unmask_step_BL >= 0
    assert not bool((trajectory.completion_ids_BL == MASK).any())
    assert not bool((trajectory.completion_ids_BL[revealed] == PAD).any())


@pytest.mark.parametrize("kind", ["masked", "block"])
def test_padding_that_is_the_end_token_ends_nothing(kind):
    """Case: pad id == end id. The first end token is sampled, kept in the mask and scored; padding is not."""
    policy = policy_for(kind, 4, pad_is_eos=True, eos_bias=0.5)
    trajectory = sample(policy, decoding(kind, 12, 12, 4), PROMPTS, 16)
    ended = 0
    for row in range(trajectory.completion_ids_BL.shape[0]):
        mask, steps = trajectory.completion_mask_BL[row], trajectory.unmask_step_BL[row]
        revealed_ends = ((trajectory.completion_ids_BL[row] == EOS) & (steps >= 0)).nonzero().flatten().tolist()
        length = revealed_ends[0] + 1 if revealed_ends else 12
        assert mask.tolist() == [place < length for place in range(12)]
        if revealed_ends:
            ended += 1
            assert trajectory.sampling_logprobs_BL[row, revealed_ends[0]] < 0
    assert ended > 10


@pytest.mark.parametrize("kind", ["masked", "block"])
def test_a_complete_block_is_not_read_while_it_waits_for_others(kind):
    """Dynamic rules: after each step only rollouts with something left to reveal in the block cost a forward."""
    policy = policy_for(kind, 4, eos_bias=NEVER, sharpness=3.0)
    settings = decoding(kind, 8, 8, 4, unmasking="confidence_threshold", threshold=0.55)
    trajectory = sample(policy, settings, PROMPTS, 8)
    prompt = torch.arange(3).repeat_interleave(8)[:, None]
    first_B = trajectory.unmask_step_BL[:, :4].amax(1) + 1
    expected = []
    for start, begun_B in ((0, torch.zeros_like(first_B)), (4, first_B)):
        left_B = trajectory.unmask_step_BL[:, start : start + 4].amax(1) + 1 - begun_B
        for step in range(int(left_B.max())):
            state = torch.stack([state_at(trajectory.rows(torch.tensor([row])), int(begun_B[row]) + step)[0]
                                 for row in range(24)])  # fmt: skip
            expected.append(len(torch.cat([prompt, state], dim=1)[left_B > step].unique(dim=0)))
    assert [len(ids) for ids in policy.seen] == expected
    assert len(first_B.unique()) > 1, "some rows wait"


def test_prompts_that_end_anywhere_in_a_block_are_decoded_together():
    policy = policy_for("block", 4, prompt_block="aligned", eos_bias=NEVER)
    prompts = [[3] * count for count in range(1, 9)]
    trajectory = sample(policy, decoding("block", 12, 12, 4), prompts, 1)
    # A step a token: three windows of four for prompts that fill their block, and a last one of three tokens at most.
    assert len(policy.seen) == 3 * 4 + 3
    for index, prompt in enumerate(prompts):
        alone = sample(policy, decoding("block", 12, 12, 4), [prompt], 1, keys=make_keys(1, 1, first=index))
        assert_same(alone, trajectory.rows(torch.tensor([index])))


def test_aligned_blocks_finish_the_block_that_the_prompt_began():
    policy = policy_for("block", 4, prompt_block="aligned", eos_bias=NEVER)
    trajectory = sample(policy, decoding("block", 8, 4, 4), [[3, 4, 5, 6, 3, 4], [3, 4, 5, 6]], 1)
    assert trajectory.block_index_BL.tolist() == [[0, 0, 1, 1, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1, 1, 1]]
    # 4 steps for 8 positions: half a block takes one step, a whole one two.
    assert trajectory.num_steps_B.tolist() == [4, 4]
    assert sorted(trajectory.unmask_step_BL[0].tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_exactness_and_fixedness_are_recorded():
    for name, rule in RULES.items():
        trajectory = sample(policy_for("masked", 4), decoding("masked", 4, 4, 4, unmasking=name), PROMPTS[:1], 2)
        assert (trajectory.selection_exact, trajectory.steps_fixed) == (rule.exact, rule.fixed_steps)


def test_module_is_left_in_the_mode_it_was_in():
    policy = policy_for("masked", 4)
    for mode in (True, False):
        policy.module.train(mode)
        sample(policy, decoding("masked", 4, 4, 4), PROMPTS, 2)
        assert policy.module.training is mode


def test_the_wrong_policy_is_refused():
    with pytest.raises(SamplingError, match="needs a bidirectional policy"):
        sample(policy_for("block", 4), decoding("masked", 4, 4, 4), PROMPTS, 2)
    with pytest.raises(SamplingError, match="needs a block-causal policy"):
        sample(policy_for("masked", 4), decoding("block", 4, 4, 4), PROMPTS, 2)
    with pytest.raises(SamplingError, match="block_size 2 is not the policy's own, 4"):
        sample(policy_for("block", 4), decoding("block", 4, 4, 2), PROMPTS, 2)


def test_a_prompt_without_tokens_is_refused():
    ids, mask = padded([[3, 4], []])

    with pytest.raises(ArgumentError, match="no token"):
        make_sampler(decoding("masked", 4, 4, 4)).sample(
            policy_for("masked", 4), ids, mask, group_size=1, row_keys_B=make_keys(2, 1)
        )


@pytest.mark.parametrize("prompt_block", ["whole", "aligned"])
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("blocks", [1, 2])
def test_going_on_from_its_own_blocks_gives_an_argmax_rollout_again(prompt_block, use_cache, blocks):
    policy = policy_for("block", 4, prompt_block=prompt_block, eos_bias=NEVER)
    settings = decoding("block", 12, 7, 4, temperature=0.0)
    whole = sample(policy, settings, PROMPTS, 2)
    given = GivenBlocks(ids_BL=whole.completion_ids_BL, blocks=blocks)
    rest = sample(policy, settings, PROMPTS, 2, given=given, use_cache=use_cache)
    after_BL = whole.block_index_BL >= blocks
    assert torch.equal(rest.completion_ids_BL[after_BL], whole.completion_ids_BL[after_BL])
    assert torch.equal(rest.unmask_step_BL >= 0, after_BL), "what was given is not recorded as revealed"
    # Other blocks given, other completions after them: they are read.
    other = GivenBlocks(ids_BL=(whole.completion_ids_BL - 3 + 1) % 4 + 3, blocks=blocks)
    moved = sample(policy, settings, PROMPTS, 2, given=other, use_cache=use_cache)
    assert not torch.equal(moved.completion_ids_BL[after_BL], whole.completion_ids_BL[after_BL])


@pytest.mark.parametrize("kind", ["masked", "block"])
def test_no_prompt_is_no_rollout(kind):
    nothing_PC, keys_B = torch.zeros(0, 3, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    sampler = make_sampler(decoding(kind, 4, 4, 2))
    made = sampler.sample(policy_for(kind, 2), nothing_PC, nothing_PC.bool(), group_size=2, row_keys_B=keys_B)
    assert made.completion_ids_BL.shape == (0, 4)
