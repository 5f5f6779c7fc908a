"""Packed scoring of recorded states equals scoring one state of one rollout at a time."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steprs.errors import ArgumentError, ConfigError
from steprs.logprobs import check_scorable, plan_trace, score_batch, trajectory_logprobs
from steprs.states import merge_steps

KINDS = [("bidirectional", "whole"), ("block_causal", "whole"), ("block_causal", "aligned")]
few = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@few
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 3),
    length=st.integers(1, 6),
    block_size=st.integers(1, 4),
    budget=st.sampled_from([1, 16, 40, 10_000]),
    temperature=st.sampled_from([0.0, 0.7, 1.0]),
    support=st.sampled_from([None, 3]),
)
def test_packed_rows_equal_one_state_at_a_time(kit, kind, seed, rows, length, block_size, budget, temperature, support):
    policy = kit.policy(kind[0], prompt_block=kind[1], block_size=block_size)
    trajectory = kit.trajectory(policy, seed, rows=rows, length=length, temperature=temperature, support=support)
    fast = trajectory_logprobs(policy, trajectory, token_budget=budget)
    kit.assert_same(fast, kit.slow_trace(policy, trajectory), policy, tolerance=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_shrinkage_scores_the_merged_states(kit, kind):
    policy = kit.policy(*kind[:1], prompt_block=kind[1], block_size=4)
    trajectory = kit.trajectory(policy, 5, rows=4, length=8)
    fast = trajectory_logprobs(policy, trajectory, shrinkage=2)
    slow = kit.slow_trace(policy, merge_steps(trajectory, 2))
    kit.assert_same(fast, slow, policy, tolerance=1e-10)
    assert (fast - trajectory_logprobs(policy, trajectory)).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_stock_llama_in_float32(kit, kind):
    policy = kit.policy(kind[0], prompt_block=kind[1], double=False)
    trajectory = kit.trajectory(policy, 11, rows=4, length=7)
    fast = trajectory_logprobs(policy, trajectory, token_budget=60)
    kit.assert_same(fast, kit.slow_trace(policy, trajectory).float(), policy, tolerance=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_left_padding_changes_nothing(kit, kind):
    policy = kit.policy(kind[0], prompt_block=kind[1], double=False)
    trajectory = kit.trajectory(policy, 3, rows=4, context=5, length=6)
    together = trajectory_logprobs(policy, trajectory)
    for row in range(4):
        alone = trajectory.rows(torch.tensor([row]))
        prompt = alone.prompt_mask_BC[0]
        alone = dataclasses.replace(
            alone, prompt_ids_BC=alone.prompt_ids_BC[:, prompt], prompt_mask_BC=alone.prompt_mask_BC[:, prompt]
        )
        assert (trajectory_logprobs(policy, alone)[0] - together[row]).abs().max() <= 1e-5


def test_tokens_after_the_first_end_carry_no_loss(kit):
    policy = kit.policy("bidirectional")
    base = kit.trajectory(policy, 0, rows=1, length=5)
    end = policy.eos_token_id
    trajectory = dataclasses.replace(
        base,
        completion_ids_BL=torch.tensor([[4, 5, end, end, end]]),
        unmask_step_BL=torch.tensor([[0, 1, 2, 3, 1]]),
        completion_mask_BL=torch.tensor([[True, True, True, False, False]]),
    )
    logprobs = trajectory_logprobs(policy, trajectory)
    assert (logprobs[0, :3] < 0).all()
    assert (logprobs[0, 3:] == 0).all()
    rows = [batch.pack() for batch in plan_trace(trajectory, policy)]
    # State 3 reveals only what lies behind the end: it costs no forward.
    assert sum(len(packed.ids_RT) for packed in rows) == 3
    # The prompt's left padding is not computed either.
    assert {packed.ids_RT.shape[1] for packed in rows} == {int(trajectory.prompt_mask_BC.sum()) + 5}


def test_packed_block_row_holds_prompt_clean_blocks_but_the_last_and_every_state(kit):
    policy = kit.policy("block_causal", block_size=4)
    base = kit.trajectory(policy, 0, rows=1, context=5, length=12)
    trajectory = dataclasses.replace(
        base,
        prompt_ids_BC=torch.full((1, 5), 4),
        prompt_mask_BC=torch.ones(1, 5, dtype=torch.bool),
        completion_ids_BL=torch.arange(12)[None] % 9 + 3,
        unmask_step_BL=torch.arange(12)[None],
        completion_mask_BL=torch.ones(1, 12, dtype=torch.bool),
    )
    (batch,) = plan_trace(trajectory, policy)
    assert (batch.rows, batch.length) == (1, 61)
    packed = batch.pack()
    assert packed.ids_RT[0, :13].tolist() == [4] * 5 + list(range(3, 11))
    assert packed.select_RT.sum() == 12
    assert packed.pos_N.tolist() == list(range(12))


@pytest.mark.parametrize("kind", KINDS)
def test_budget_bounds_every_batch_that_can_be_cut(kit, kind):
    policy = kit.policy(kind[0], prompt_block=kind[1])
    trajectory = kit.trajectory(policy, 2, rows=6, length=8)
    plan = plan_trace(trajectory, policy, token_budget=30)
    assert len(plan) > 2
    assert all(batch.tokens <= 30 for batch in plan)
    pairs = [pair for batch in plan for pair in zip(*(x.tolist() for x in _at(batch)), strict=True)]
    assert len(pairs) == len(set(pairs)) == int(trajectory.completion_mask_BL.sum())


def _long_rollout(kit, length=24, context=5):
    policy = kit.policy("block_causal", block_size=4)
    base = kit.trajectory(policy, 0, rows=1, context=context, length=length)
    return policy, dataclasses.replace(
        base,
        prompt_ids_BC=torch.full((1, context), 4),
        prompt_mask_BC=torch.ones(1, context, dtype=torch.bool),
        completion_ids_BL=torch.arange(length)[None] % 9 + 3,
        unmask_step_BL=torch.arange(length)[None],
        completion_mask_BL=torch.ones(1, length, dtype=torch.bool),
    )


def test_early_blocks_take_rows_that_hold_little_before_them(kit):
    """Prompt of 5, six blocks of 4, a state a token; by hand for a budget of 33."""
    policy, trajectory = _long_rollout(kit)
    plan = plan_trace(trajectory, policy, token_budget=33)
    rows = [row for batch in plan for row in _rows(batch)]
    # States 0-5 reach block 1, whose prefix is 9, and 6 x 4 fit behind it; 6-10 reach block 2, whose prefix is 13; and
    # so on. State 20 is of block 5: with its prefix of 25 it does not fit behind 18 and 19.
    assert sorted(rows) == sorted([(9, 6), (13, 5), (17, 4), (21, 3), (21, 2), (25, 2), (25, 2)])
    assert all(batch.tokens <= 33 for batch in plan)
    kit.assert_same(
        trajectory_logprobs(policy, trajectory, token_budget=33), kit.slow_trace(policy, trajectory), policy,
        tolerance=1e-10,
    )  # fmt: skip


def _rows(batch):
    """(clean positions, noisy states) of each row."""
    segments = batch.segments
    for row in range(batch.rows):
        mine = segments.row_S == row
        yield int(segments.size_S[mine & (segments.state_S < 0)]), int((mine & (segments.state_S >= 0)).sum())


def test_what_cannot_be_cut_is_scored_and_said_once(kit, recwarn):
    policy, trajectory = _long_rollout(kit)
    for _ in range(2):
        plan = plan_trace(trajectory, policy, token_budget=27)
    said = [str(one.message) for one in recwarn if "token_budget is 27" in str(one.message)]
    assert len(said) == 1 and "take 29 positions" in said[0] and "train.token_budget to at least 29; with 58" in said[0]
    assert max(batch.tokens for batch in plan) == 29 and plan[0].rows == 1
    kit.assert_same(
        trajectory_logprobs(policy, trajectory, token_budget=27), kit.slow_trace(policy, trajectory), policy,
        tolerance=1e-10,
    )  # fmt: skip


def test_rows_that_agree_share_one_mask(kit):
    policy, one = _long_rollout(kit, length=8)
    many = one.rows(torch.zeros(3, dtype=torch.int64))
    (batch,) = plan_trace(many, policy)
    packed = batch.pack()
    assert packed.ids_RT.shape[0] == 3 and packed.mask_R1TT.shape[0] == 1
    (alone,) = plan_trace(one, policy)
    assert torch.equal(packed.mask_R1TT, alone.pack().mask_R1TT)
    (batch,) = plan_trace(dataclasses.replace(many, unmask_step_BL=torch.tensor([[0, 0, 1, 1, 2, 2, 3, 3],
        [0, 1, 2, 3, 4, 4, 4, 5], [0, 0, 1, 1, 2, 2, 3, 3]])), policy)  # fmt: skip
    assert batch.pack().mask_R1TT.shape[0] == 3


def _at(batch):
    packed = batch.pack()
    return packed.row_N, packed.pos_N


def test_rows_left_out_cost_nothing_and_others_keep_their_numbers(kit):
    policy = kit.policy("block_causal")
    trajectory = kit.trajectory(policy, 4, rows=5, length=6)
    whole = trajectory_logprobs(policy, trajectory)
    part = trajectory_logprobs(policy, trajectory, rows=torch.tensor([3, 1]))
    assert (part[[0, 2, 4]] == 0).all()
    assert (part[[1, 3]] - whole[[1, 3]]).abs().max() < 1e-10
    assert plan_trace(trajectory, policy, rows=torch.zeros(5, dtype=torch.bool)) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2])
def test_drawn_states_keep_every_sum(kit, kind, count):
    policy = kit.policy(kind[0], prompt_block=kind[1], block_size=2)
    trajectory = kit.trajectory(policy, 21, rows=1, length=5)
    step = trajectory.unmask_step_BL[0]
    states = sorted({int(s) for s, valid in zip(step, trajectory.completion_mask_BL[0], strict=True) if valid})
    assert len(states) >= 3
    token_value = torch.arange(1.0, 6.0) ** 2
    many = trajectory.rows(torch.zeros(300, dtype=torch.int64))
    plan = plan_trace(many, policy, states_per_rollout=count, keys_B=torch.arange(300))
    tokens: dict[int, list[tuple[int, float]]] = {row: [] for row in range(300)}
    for packed in [batch.pack() for batch in plan]:
        for row, place, weight in zip(packed.row_N, packed.pos_N, packed.weight_N, strict=True):
            tokens[int(row)].append((int(place), float(weight)))
    seen = {
        tuple(sorted({int(step[place]) for place, _ in row})): sum(w * float(token_value[place]) for place, w in row)
        for row in tokens.values()
    }
    assert set(seen) == set(itertools.combinations(states, count))
    full = float((token_value * trajectory.completion_mask_BL[0]).sum())
    assert sum(seen.values()) / len(seen) == pytest.approx(full, rel=1e-6)


def test_states_are_drawn_uniformly(kit):
    policy = kit.policy("block_causal", block_size=2)
    trajectory = kit.trajectory(policy, 21, rows=1, length=5)
    many = trajectory.rows(torch.zeros(4000, dtype=torch.int64))
    plan = plan_trace(many, policy, states_per_rollout=1, keys_B=torch.arange(4000))
    drawn = torch.cat([many.unmask_step_BL[_at(batch)[0], _at(batch)[1]] for batch in plan])
    first = [int((drawn == s).sum()) for s in drawn.unique()]
    tokens = [int(((trajectory.unmask_step_BL == s) & trajectory.completion_mask_BL).sum()) for s in drawn.unique()]
    share = torch.tensor(first) / torch.tensor(tokens) / 4000
    assert (share - 1 / len(first)).abs().max() < 0.03


def test_more_states_asked_for_than_there_are_scores_all_with_weight_one(kit):
    policy = kit.policy("block_causal")
    trajectory = kit.trajectory(policy, 8, rows=3)
    plan = plan_trace(trajectory, policy, states_per_rollout=99, keys_B=torch.arange(3))
    weights = torch.cat([batch.pack().weight_N for batch in plan])
    assert len(weights) == trajectory.completion_mask_BL.sum()
    assert (weights == 1).all()


def test_entropies_are_those_of_the_distribution_and_carry_no_gradient(kit):
    policy = kit.policy("bidirectional")
    trajectory = kit.trajectory(policy, 1, rows=1, length=3, support=2)
    (batch,) = plan_trace(trajectory, policy)
    scores = score_batch(policy, trajectory, batch)
    assert not scores.entropies_N.requires_grad
    packed = batch.pack()
    logits = policy.logits(
        packed.ids_RT, attention_mask=packed.mask_R1TT, position_ids=packed.position_ids_RT, select_BT=packed.select_RT
    )
    for token in range(len(scores.row_N)):
        ids = trajectory.support_ids_BLK[scores.row_N[token], scores.pos_N[token]]
        probs = logits[token, ids[ids >= 0]].softmax(-1)
        assert scores.entropies_N[token].item() == pytest.approx(float(-(probs * probs.log()).sum().detach()), abs=1e-9)


def test_support_without_the_sampled_token_is_refused(kit):
    policy = kit.policy("bidirectional")
    trajectory = kit.trajectory(policy, 1, rows=1, length=3, support=2)
    broken = dataclasses.replace(trajectory, support_ids_BLK=torch.full_like(trajectory.support_ids_BLK, -1))
    with pytest.raises(ArgumentError, match="support"):
        trajectory_logprobs(policy, broken)


def test_truncation_without_support_allows_one_inner_update_only(kit):
    policy = kit.policy("bidirectional")
    trajectory = kit.trajectory(policy, 1, support=2)
    bare = dataclasses.replace(trajectory, support_ids_BLK=None)
    check_scorable(trajectory, 3)
    check_scorable(bare, 1)
    with pytest.raises(ConfigError, match="inner_updates"):
        check_scorable(bare, 2)


def test_wrong_use_is_named(kit):
    full, block = kit.policy("bidirectional"), kit.policy("block_causal")
    trajectory = kit.trajectory(block, 0)
    with pytest.raises(ArgumentError, match="bidirectional"):
        plan_trace(trajectory, full)
    with pytest.raises(ArgumentError, match="blocks of 2"):
        plan_trace(
            dataclasses.replace(trajectory, decoding=dataclasses.replace(trajectory.decoding, block_size=2)), block
        )
    with pytest.raises(ArgumentError, match="token_budget"):
        plan_trace(trajectory, block, token_budget=0)
    with pytest.raises(ArgumentError, match="states_per_rollout"):
        plan_trace(trajectory, block, states_per_rollout=0)
    with pytest.raises(ArgumentError, match="keys_B"):
        plan_trace(trajectory, block, states_per_rollout=1)
