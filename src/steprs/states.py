"""Denoising states of a recorded rollout: the canvas in each state, and how far denoising had progressed.

A rollout is final ids plus the step that revealed each position (`unmask_step`). As long as no committed token is
masked again, that one integer a position rebuilds every state.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

import torch
from torch import Tensor

from .errors import ArgumentError, unknown_name
from .types import Revisions, Trajectory

Coordinate = Literal["auto", "step", "mask", "rank"]
Scope = Literal["sequence", "block", "within"]


def state_at(trajectory: Trajectory, step: int) -> Tensor:
    """The completion as the policy saw it before step `step`.

    Position l is masked in state s iff `unmask_step[l] == -1` or `unmask_step[l] >= s`; state 0 is all masked, and
    any state from a row's `num_steps` on is its final canvas. In block decoding, the blocks that had not begun are
    masked too, whether or not the sampler had them in its input. Of rollouts that revise their tokens the canvas that
    was being denoised is what the record says, noise included; canvases after it are masked.

    Args:
        trajectory: B rollouts of L completion positions.
        step: 0-based denoising step, numbered over the whole completion.

    Returns:
        int64 [B, L], the mask token where nothing had been revealed.

    Raises:
        ArgumentError: `step` is negative.
    """
    if step < 0:
        raise ArgumentError(f"state {step} does not exist; states are counted from 0 (everything masked)")
    if trajectory.revisions is not None:
        return _revised_state(trajectory, trajectory.revisions, step)
    revealed_BL = (trajectory.unmask_step_BL >= 0) & (trajectory.unmask_step_BL < step)
    return torch.where(revealed_BL, trajectory.completion_ids_BL, trajectory.mask_token_id)


def _revised_state(trajectory: Trajectory, revisions: Revisions, step: int) -> Tensor:
    """Finished canvases, the recorded one, masks."""
    begun_BN = (revisions.first_step_BN >= 0) & (revisions.first_step_BN <= step)
    # A row that took all its steps has finished the canvas it began last, too.
    over_B = step >= trajectory.num_steps_B
    current_B1 = (begun_BN.sum(1) - (~over_B).long())[:, None]
    shown_BW = revisions.canvas_BSW[:, min(step, revisions.canvas_BSW.shape[1] - 1)].long()
    shown_BL = shown_BW.repeat(1, trajectory.block_index_BL.shape[1] // shown_BW.shape[1])
    canvas_BL = torch.where(trajectory.block_index_BL == current_B1, shown_BL, trajectory.mask_token_id)
    canvas_BL = torch.where(trajectory.block_index_BL < current_B1, trajectory.completion_ids_BL, canvas_BL)
    kept_BL = torch.where(trajectory.unmask_step_BL >= 0, trajectory.completion_ids_BL, trajectory.mask_token_id)
    return torch.where(over_B[:, None], kept_BL, canvas_BL)


def denoising_progress(trajectory: Trajectory, coordinate: Coordinate = "auto", scope: Scope = "sequence") -> Tensor:
    """The coordinate tau in [0, 1] of the state that revealed each token; 0 means that nothing had been revealed.

    | `coordinate` | tau of a token revealed in state s |
    |---|---|
    | `step` | s / (S - 1), and 0 if S = 1 |
    | `mask` | share of the tokens revealed before s |
    | `rank` | (midrank - 1/2) / n in the order of reveal; tokens of one state share their mean rank |
    | `auto` | `step` where the number of states is known beforehand, else `mask` |

    Only valid tokens count (`completion_mask_BL`: up to and including the first end token). A state that revealed
    nothing but tokens behind the end is no state here, so that a canvas filled with end tokens does not squeeze the
    text into a corner of [0, 1].

    Args:
        trajectory: B rollouts of L completion positions.
        coordinate: what progress is measured in.
        scope: `sequence`, over all states of the completion; `block`, index of the token's block over the number of
            blocks less one, whatever the coordinate; `within`, the coordinate inside the token's own block.

    Returns:
        float64 [B, L], 0 outside the completion mask.

    Raises:
        ArgumentError: a name is not in the tables above.
    """
    coordinate = _resolve(trajectory, coordinate, scope)
    valid_BL = trajectory.completion_mask_BL & (trajectory.unmask_step_BL >= 0)
    if scope == "block":
        progress_BL = _span(trajectory.block_index_BL, torch.zeros_like(valid_BL, dtype=torch.int64), valid_BL)
    else:
        part_BL = trajectory.block_index_BL if scope == "within" else torch.zeros_like(trajectory.block_index_BL)
        if coordinate == "step":
            progress_BL = _step_progress(trajectory, part_BL, valid_BL, whole=scope == "sequence")
        else:
            progress_BL = _count_progress(trajectory, part_BL, valid_BL, middle=coordinate == "rank")
    return progress_BL.masked_fill(~valid_BL, 0.0)


def progress_is_predictable(trajectory: Trajectory, coordinate: Coordinate = "auto", scope: Scope = "sequence") -> bool:
    """Whether tau of a state was known before its tokens were drawn (logged as `tau_predictable`).

    It was not with `rank`, with `step` where the number of states depends on the data, with `mask` where tokens are
    revised (later steps decide which of them count), and, whatever the coordinate, once a rollout ended early: the
    number of valid tokens, states and blocks is then part of the future. The per-state weighting of the policy
    gradient is exact only for a predictable tau.
    """
    coordinate = _resolve(trajectory, coordinate, scope)
    if not bool(trajectory.completion_mask_BL.all()):
        return False
    if trajectory.decoding.kind == "revise" and coordinate != "step" and scope != "block":
        return False
    return scope == "block" or coordinate == "mask" or (coordinate == "step" and trajectory.steps_fixed)


def merge_steps(trajectory: Trajectory, shrinkage: int) -> Trajectory:
    """Merge every `shrinkage` consecutive reveal steps of a row into one state (TraceRL's shrinkage).

    A merged state shows the canvas before the first of its steps, and its tokens are scored together. Merging stays
    inside a block for block-causal decoding, where a state belongs to one block. States are renumbered from 0.

    Args:
        trajectory: B rollouts of L completion positions.
        shrinkage: number of steps that become one; 1 changes nothing.

    Raises:
        ArgumentError: `shrinkage` is below 1, or the rollouts revised tokens: their states condition each other.
    """
    if shrinkage < 1:
        raise ArgumentError(f"shrinkage is {shrinkage}; it counts the steps that become one state, so give 1 or more")
    if shrinkage == 1:
        return trajectory
    if trajectory.decoding.kind == "revise":
        raise ArgumentError(
            f"loss.shrinkage is {shrinkage}, but each state of a revised canvas is conditioned on the one before, so "
            "none can be left out; set loss.shrinkage=1"
        )
    step_BL, revealed_BL = trajectory.unmask_step_BL, trajectory.unmask_step_BL >= 0
    blocks_apart = trajectory.decoding.kind == "block"
    block_BL = trajectory.block_index_BL if blocks_apart else torch.zeros_like(trajectory.block_index_BL)
    stride = int(step_BL.max().clamp(min=0)) + 1
    last = (int(block_BL.max()) + 1) * stride
    key_BL, order_BL = torch.where(revealed_BL, block_BL * stride + step_BL, last).sort(dim=1)
    opens_BL = _changes(key_BL)
    state_BL = opens_BL.cumsum(1)
    before_BL = torch.where(_changes(key_BL // stride), state_BL, 0).cummax(1).values
    merged_BL = (opens_BL & ((state_BL - before_BL) % shrinkage == 0)).cumsum(1) - 1
    merged_BL = torch.empty_like(step_BL).scatter_(1, order_BL, merged_BL).masked_fill(~revealed_BL, -1)
    return dataclasses.replace(
        trajectory,
        unmask_step_BL=merged_BL,
        num_steps_B=merged_BL.amax(1) + 1,
        predictions_BSL=_first_predictions(trajectory, merged_BL),
    )


def _first_predictions(trajectory: Trajectory, merged_BL: Tensor) -> Tensor | None:
    """The predictions of each merged state's first step, whose canvas it shows."""
    if trajectory.predictions_BSL is None:
        return None
    none = trajectory.predictions_BSL.shape[1]
    step_BL = trajectory.unmask_step_BL.masked_fill(merged_BL < 0, none)
    first_BS = step_BL.new_full((len(step_BL), int(merged_BL.max()) + 1), none)
    first_BS = first_BS.scatter_reduce(1, merged_BL.clamp(min=0), step_BL, "amin")
    at_BSL = first_BS.clamp(max=none - 1)[..., None].expand(-1, -1, step_BL.shape[1])
    return trajectory.predictions_BSL.gather(1, at_BSL).masked_fill(first_BS[..., None] == none, -1)


def _resolve(trajectory: Trajectory, coordinate: Coordinate, scope: Scope) -> Literal["step", "mask", "rank"]:
    if scope not in get_args(Scope):
        raise ArgumentError(unknown_name("scope of progress", scope, get_args(Scope)))
    if coordinate == "auto":
        return "step" if trajectory.steps_fixed else "mask"
    if coordinate == "step" or coordinate == "mask" or coordinate == "rank":
        return coordinate
    raise ArgumentError(unknown_name("coordinate of progress", coordinate, get_args(Coordinate)))


def _step_progress(trajectory: Trajectory, part_BL: Tensor, valid_BL: Tensor, *, whole: bool) -> Tensor:
    """Index of the state over the last index; states of tokens behind the end are taken out of the numbering."""
    step_BL = trajectory.unmask_step_BL
    states = int(step_BL.max().clamp(min=0)) + 1
    seen_BS = _present(step_BL, step_BL >= 0, states)
    skipped_BS = seen_BS & ~_present(step_BL, valid_BL, states)
    index_BL = step_BL - skipped_BS.long().cumsum(1).gather(1, step_BL.clamp(min=0))
    if not whole:
        return _span(index_BL, part_BL, valid_BL)
    last_B = index_BL.masked_fill(~valid_BL, 0).amax(1)
    # A complete row took the steps it says it took, also if the last of them revealed nothing.
    last_B = torch.where(
        trajectory.completion_mask_BL.all(1), torch.maximum(last_B, trajectory.num_steps_B - 1), last_B
    )
    return index_BL.double() / last_B.clamp(min=1).double()[:, None]


def _count_progress(trajectory: Trajectory, part_BL: Tensor, valid_BL: Tensor, *, middle: bool) -> Tensor:
    """Share of the part's valid tokens before the state; with `middle`, before the middle of its own tokens."""
    stride = int(trajectory.unmask_step_BL.max().clamp(min=0)) + 1
    key_BL = part_BL * stride + trajectory.unmask_step_BL.clamp(min=0)
    last = (int(part_BL.max()) + 1) * stride
    sorted_BL = torch.where(valid_BL, key_BL, last).sort(dim=1).values

    def below(bound_BL: Tensor) -> Tensor:
        return torch.searchsorted(sorted_BL, bound_BL.contiguous())

    first_BL = below(part_BL * stride)
    size_BL = (below((part_BL + 1) * stride) - first_BL).clamp(min=1).double()
    before_BL = (below(key_BL) - first_BL).double()
    if not middle:
        return before_BL / size_BL
    through_BL = (below(key_BL + 1) - first_BL).double()
    return (before_BL + through_BL) / 2 / size_BL


def _span(value_BL: Tensor, part_BL: Tensor, valid_BL: Tensor) -> Tensor:
    """Where the value lies between the smallest and the largest valid one of its part; 0 if they are the same."""
    parts = int(part_BL.max()) + 1
    huge = torch.iinfo(torch.int64).max
    empty_BK = value_BL.new_zeros(value_BL.shape[0], parts)
    low_BL = (
        empty_BK.fill_(huge)
        .scatter_reduce(1, part_BL, value_BL.masked_fill(~valid_BL, huge), "amin")
        .gather(1, part_BL)
    )
    high_BL = (
        empty_BK.fill_(-1).scatter_reduce(1, part_BL, value_BL.masked_fill(~valid_BL, -1), "amax").gather(1, part_BL)
    )
    return (value_BL - low_BL).double() / (high_BL - low_BL).clamp(min=1).double()


def _present(step_BL: Tensor, where_BL: Tensor, states: int) -> Tensor:
    """True [B, S] where some position of `where` was revealed in the state."""
    counts_BS = torch.zeros(step_BL.shape[0], states, dtype=torch.int64, device=step_BL.device)
    return counts_BS.scatter_add_(1, step_BL.clamp(min=0), where_BL.long()) > 0


def _changes(key_BL: Tensor) -> Tensor:
    """True where a sorted key differs from the one before it; true at the first."""
    first_B1 = torch.ones_like(key_BL[:, :1], dtype=torch.bool)
    return torch.cat([first_B1, key_BL[:, 1:] != key_BL[:, :-1]], dim=1)
