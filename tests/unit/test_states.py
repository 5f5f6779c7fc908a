"""Denoising progress and merged states, with values worked out by hand."""

from __future__ import annotations

import pytest
import torch

from steprs.errors import ArgumentError
from steprs.states import denoising_progress, merge_steps, progress_is_predictable, state_at
from steprs.types import Decoding, Trajectory

MASK = 99


def record(steps, *, valid=None, blocks=None, kind="masked", taken=None, fixed=True) -> Trajectory:
    step_BL = torch.tensor(steps)
    rows, length = step_BL.shape
    valid_BL = step_BL >= 0 if valid is None else torch.tensor(valid, dtype=torch.bool)
    block_BL = torch.zeros_like(step_BL) if blocks is None else torch.tensor(blocks).expand(rows, -1)
    return Trajectory(
        prompt_ids_BC=torch.zeros(rows, 1, dtype=torch.int64),
        prompt_mask_BC=torch.ones(rows, 1, dtype=torch.bool),
        completion_ids_BL=torch.arange(10, 10 + length).expand(rows, -1).clone(),
        unmask_step_BL=step_BL,
        block_index_BL=block_BL,
        completion_mask_BL=valid_BL,
        sampling_logprobs_BL=torch.zeros(rows, length),
        entropies_BL=torch.zeros(rows, length),
        num_steps_B=step_BL.amax(1) + 1 if taken is None else torch.tensor(taken),
        mask_token_id=MASK,
        decoding=Decoding(kind=kind, length=length, steps=length, block_size=length),
        group_size=1,
        selection_exact=True,
        steps_fixed=fixed,
    )


def progress(trajectory, coordinate="auto", scope="sequence"):
    return denoising_progress(trajectory, coordinate, scope)


def assert_progress(trajectory, coordinate, scope, expected):
    tau_BL = progress(trajectory, coordinate, scope)
    assert tau_BL.dtype == torch.float64
    torch.testing.assert_close(tau_BL, torch.tensor(expected, dtype=torch.float64), atol=1e-15, rtol=0)


def test_state_masks_what_was_revealed_at_or_after_it():
    trajectory = record([[1, 0, -1, 1]])
    assert state_at(trajectory, 0).tolist() == [[MASK, MASK, MASK, MASK]]
    assert state_at(trajectory, 1).tolist() == [[MASK, 11, MASK, MASK]]
    assert state_at(trajectory, 2).tolist() == [[10, 11, MASK, 13]]
    assert state_at(trajectory, 50).tolist() == [[10, 11, MASK, 13]]


def test_never_revealed_is_not_read_as_the_first_step():
    """Case: -1, never 0."""
    trajectory = record([[-1, 0, 1]], valid=[[0, 1, 1]])
    assert state_at(trajectory, 1).tolist() == [[MASK, 11, MASK]]
    assert_progress(trajectory, "mask", "sequence", [[0, 0, 1 / 2]])


def test_negative_states_are_refused():
    with pytest.raises(ArgumentError, match="counted from 0"):
        state_at(record([[0, 1]]), -1)


@pytest.mark.parametrize(
    ("coordinate", "expected"),
    [
        ("step", [[1 / 2, 0, 1, 0]]),
        ("mask", [[2 / 4, 0, 3 / 4, 0]]),
        # order of reveal: the two of step 0 share rank 1.5, then 3, then 4
        ("rank", [[2.5 / 4, 1 / 4, 3.5 / 4, 1 / 4]]),
    ],
)
def test_each_coordinate_on_one_complete_row(coordinate, expected):
    assert_progress(record([[1, 0, 2, 0]]), coordinate, "sequence", expected)


def test_one_state_is_at_zero():
    trajectory = record([[0, 0, 0]])
    assert_progress(trajectory, "step", "sequence", [[0, 0, 0]])
    assert_progress(trajectory, "mask", "sequence", [[0, 0, 0]])
    assert_progress(trajectory, "rank", "sequence", [[1 / 2, 1 / 2, 1 / 2]])


def test_rows_of_unequal_numbers_of_states():
    trajectory = record([[0, 1, 2, 3], [0, 0, 1, 1], [0, 0, 0, 0]], fixed=False)
    assert_progress(trajectory, "step", "sequence", [[0, 1 / 3, 2 / 3, 1], [0, 0, 1, 1], [0, 0, 0, 0]])
    assert_progress(trajectory, "auto", "sequence", [[0, 1 / 4, 2 / 4, 3 / 4], [0, 0, 1 / 2, 1 / 2], [0, 0, 0, 0]])


def test_auto_is_step_where_the_number_of_states_is_fixed():
    steps = [[0, 0, 1, 2]]
    assert torch.equal(progress(record(steps)), progress(record(steps), "step"))
    assert torch.equal(progress(record(steps, fixed=False)), progress(record(steps, fixed=False), "mask"))


@pytest.mark.parametrize("coordinate", ["step", "mask", "rank"])
def test_end_tokens_behind_the_end_do_not_squeeze_the_text(coordinate):
    """Case: completion "12<eos><eos>..."; whenever the tail was revealed, the text's tau is as if it were alone."""
    alone = progress(record([[0, 2, 1]]), coordinate)
    tail_first = record([[4, 6, 5, 3, 2, 1, 0]], valid=[[1, 1, 1, 0, 0, 0, 0]])
    tail_last = record([[0, 2, 1, 3, 4, 5, 6]], valid=[[1, 1, 1, 0, 0, 0, 0]])
    tail_between = record([[0, 6, 3, 1, 2, 4, 5]], valid=[[1, 1, 1, 0, 0, 0, 0]])
    never = record([[0, 2, 1, -1, -1, -1, -1]])
    for trajectory in (tail_first, tail_last, tail_between, never):
        tau_BL = progress(trajectory, coordinate)
        assert torch.equal(tau_BL[:, :3], alone)
        assert not tau_BL[:, 3:].any()


def test_a_state_shared_with_the_tail_still_counts():
    trajectory = record([[0, 1, 0, 1]], valid=[[1, 1, 0, 0]])
    assert_progress(trajectory, "step", "sequence", [[0, 1, 0, 0]])
    assert_progress(trajectory, "mask", "sequence", [[0, 1 / 2, 0, 0]])


BLOCKS = [0, 0, 0, 1, 1, 1, 2, 2, 2]
IN_BLOCKS = [[1, 0, 0, 2, 3, 4, 5, 5, 5]]


@pytest.mark.parametrize(
    ("coordinate", "scope", "expected"),
    [
        ("step", "sequence", [[1 / 5, 0, 0, 2 / 5, 3 / 5, 4 / 5, 1, 1, 1]]),
        ("mask", "sequence", [[2 / 9, 0, 0, 3 / 9, 4 / 9, 5 / 9, 6 / 9, 6 / 9, 6 / 9]]),
        ("step", "block", [[0, 0, 0, 1 / 2, 1 / 2, 1 / 2, 1, 1, 1]]),
        ("rank", "block", [[0, 0, 0, 1 / 2, 1 / 2, 1 / 2, 1, 1, 1]]),
        ("step", "within", [[1, 0, 0, 0, 1 / 2, 1, 0, 0, 0]]),
        ("mask", "within", [[2 / 3, 0, 0, 0, 1 / 3, 2 / 3, 0, 0, 0]]),
        ("rank", "within", [[2.5 / 3, 1 / 3, 1 / 3, 0.5 / 3, 1.5 / 3, 2.5 / 3, 1 / 2, 1 / 2, 1 / 2]]),
    ],
)
def test_scopes_of_a_block_model(coordinate, scope, expected):
    assert_progress(record(IN_BLOCKS, blocks=BLOCKS, kind="block"), coordinate, scope, expected)


def test_only_valid_blocks_count_after_an_early_end():
    steps = [[1, 0, 0, 2, 3, 4, -1, -1, -1]]
    trajectory = record(steps, valid=[[1, 1, 1, 1, 0, 0, 0, 0, 0]], blocks=BLOCKS, kind="block")
    assert_progress(trajectory, "step", "sequence", [[1 / 2, 0, 0, 1, 0, 0, 0, 0, 0]])
    assert_progress(trajectory, "step", "block", [[0, 0, 0, 1, 0, 0, 0, 0, 0]])
    assert_progress(trajectory, "mask", "within", [[2 / 3, 0, 0, 0, 0, 0, 0, 0, 0]])


def test_one_block_is_at_zero_in_scope_block():
    assert not progress(record([[0, 1, 2]]), "step", "block").any()


def test_a_complete_row_uses_the_states_it_took():
    """Hand-made records may hold states that revealed nothing; s / (S - 1) is meant literally there."""
    assert_progress(record([[0, 1, 3]], taken=[5]), "step", "sequence", [[0, 1 / 4, 3 / 4]])


def test_predictable_iff_tau_was_known_when_the_state_began():
    complete, early = record([[0, 1, 2]]), record([[0, 1, 2]], valid=[[1, 1, 0]])
    assert progress_is_predictable(complete, "step") and progress_is_predictable(complete, "auto")
    assert progress_is_predictable(complete, "mask")
    assert not progress_is_predictable(complete, "rank")
    assert progress_is_predictable(complete, "rank", "block")
    assert not progress_is_predictable(early, "step") and not progress_is_predictable(early, "mask")
    dynamic = record([[0, 1, 2]], fixed=False)
    assert not progress_is_predictable(dynamic, "step")
    assert progress_is_predictable(dynamic, "mask") and progress_is_predictable(dynamic, "auto")


def test_merging_joins_consecutive_reveal_steps():
    merged = merge_steps(record([[4, 0, 1, 2, 3, -1]]), 2)
    assert merged.unmask_step_BL.tolist() == [[2, 0, 0, 1, 1, -1]]
    assert merged.num_steps_B.tolist() == [3]


def test_merging_counts_the_distinct_steps_of_each_row():
    merged = merge_steps(record([[0, 0, 5, 9], [0, 1, 2, 3], [7, 7, 7, 7]]), 2)
    assert merged.unmask_step_BL.tolist() == [[0, 0, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0]]
    assert merged.num_steps_B.tolist() == [2, 2, 1]


def test_merging_stays_inside_a_block_for_block_models_only():
    steps = [[1, 0, 2, 3, 4, 5, 8, 7, 6]]
    inside = merge_steps(record(steps, blocks=BLOCKS, kind="block"), 2)
    assert inside.unmask_step_BL.tolist() == [[0, 0, 1, 2, 2, 3, 5, 4, 4]]
    across = merge_steps(record(steps, blocks=BLOCKS, kind="masked"), 2)
    assert across.unmask_step_BL.tolist() == [[0, 0, 1, 1, 2, 2, 4, 3, 3]]


def test_merging_by_one_changes_nothing_and_less_is_refused():
    trajectory = record([[2, 0, 1]])
    assert merge_steps(trajectory, 1) is trajectory
    with pytest.raises(ArgumentError, match="shrinkage is 0"):
        merge_steps(trajectory, 0)


@pytest.mark.parametrize(("coordinate", "scope"), [("mask", "sequense"), ("masks", "sequence")])
def test_unknown_names_come_with_a_suggestion(coordinate, scope):
    with pytest.raises(ArgumentError, match="Did you mean"):
        progress(record([[0, 1]]), coordinate, scope)
