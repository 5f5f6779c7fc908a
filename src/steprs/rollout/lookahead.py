"""Greedy one-step completions of denoising states: what the policy would say if it had to finish at once.

Every masked position takes its likeliest token, all from one forward. Whole-sequence decoding with full attention has
these logits anyway and can record them (`recording`). Decoding in blocks computes logits of one block at a time, so
states are completed afterwards, at block borders alone: the finished blocks are given, all others are masked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..policies import attention as masks
from ..policies.base import Policy, count_before
from ..states import state_at
from ..types import Trajectory
from .collect import Sampler, decode_ids
from .distinct import distinct_rows
from .masked import MaskedDiffusionSampler
from .parts import decoding_mode
from .record import up_to_end
from .sampling import forbidden_ids, likeliest

_HEAD_ELEMENTS = 2**24


@dataclass(frozen=True, kw_only=True, slots=True)
class Lookahead:
    """Greedy completions at N moments of B rollouts.

    Attributes:
        ids_BNL: int64, every position filled; -1 where a rollout has no such moment.
        moment_BS: int64, the moment whose completion stands for each state: its own, or the beginning of its block.
            Means nothing from a rollout's `num_steps` on.
        forwards: rows that went through the model for it.
    """

    ids_BNL: Tensor
    moment_BS: Tensor
    forwards: int


def recording(sampler: Sampler) -> Sampler:
    """The same sampler, recording predictions where they cost nothing; any other as it is.

    >>> from steprs.types import Decoding
    >>> decoding = Decoding(kind="masked", length=8, steps=8, block_size=8)
    >>> recording(MaskedDiffusionSampler(decoding=decoding)).store_predictions
    True
    """
    whole = sampler.decoding.block_size == sampler.decoding.length
    if isinstance(sampler, MaskedDiffusionSampler) and whole:
        return dataclasses.replace(sampler, store_predictions=True)
    return sampler


def complete_states(policy: Policy, trajectory: Trajectory, *, max_rows: int = 1024) -> Lookahead:
    """The greedy one-step completions of all rollouts: recorded ones, or computed now.

    Args:
        policy: that made the rollouts.
        trajectory: B rollouts.
        max_rows: rows of one forward.

    Returns:
        Of whole-sequence decoding one moment a state; of decoding in blocks one moment a block.
    """
    predictions_BSL, decoding = trajectory.predictions_BSL, trajectory.decoding
    rows, last_B = len(trajectory.num_steps_B), (trajectory.num_steps_B - 1).clamp(min=0)
    states = int(last_B.max()) + 1 if predictions_BSL is None else predictions_BSL.shape[1]
    moment_BS = torch.arange(states, device=last_B.device).expand(rows, -1)
    if predictions_BSL is not None:
        return Lookahead(ids_BNL=predictions_BSL.long(), moment_BS=moment_BS, forwards=0)
    in_blocks = decoding.kind == "block" or decoding.block_size != decoding.length
    if in_blocks:
        moment_BS = _block_of_state(trajectory, states)
        last_B = moment_BS.gather(1, last_B[:, None])[:, 0]
    moments, forwards = int(last_B.max()) + 1, 0
    ids_BNL = trajectory.completion_ids_BL.new_full((rows, moments, decoding.length), -1)
    for moment in range(moments):
        index_R = (last_B >= moment).nonzero().squeeze(-1)
        part = trajectory.rows(index_R)
        canvas_RL = _at_block(part, moment) if in_blocks else state_at(part, moment)
        ids_BNL[index_R, moment], read = complete_canvas(policy, part, canvas_RL, max_rows=max_rows)
        forwards += read
    return Lookahead(ids_BNL=ids_BNL, moment_BS=moment_BS, forwards=forwards)


def complete_canvas(
    policy: Policy, trajectory: Trajectory, canvas_BL: Tensor, *, max_rows: int = 1024
) -> tuple[Tensor, int]:
    """Canvases whose masked positions all took their likeliest token, in one forward.

    Args:
        policy: full or block-causal attention, as it was trained.
        trajectory: gives the prompts.
        canvas_BL: int64, the mask token where nothing has been revealed.
        max_rows: rows of one forward; equal ones of a prompt are read once.

    Returns:
        Int64 [B, L], and the number of rows read.
    """
    masked_BL = canvas_BL == trajectory.mask_token_id
    context, length = trajectory.prompt_ids_BC.shape[1], canvas_BL.shape[1]
    ids_BT = torch.cat([trajectory.prompt_ids_BC, canvas_BL], dim=1)
    valid_BT = torch.cat([trajectory.prompt_mask_BC, torch.ones_like(masked_BL)], dim=1)

    def read(rows_U: Tensor, select_UL: Tensor) -> Tensor:
        select_UT = torch.cat([select_UL.new_zeros(len(rows_U), context), select_UL], dim=1)
        valid_UT = valid_BT[rows_U]
        extra: dict[str, Any] = {}
        if policy.attention == "block_causal":
            block_UT = policy.block_layout(trajectory.prompt_mask_BC[rows_U], length)
            extra = {"position_ids": count_before(valid_UT)}
            valid_UT = masks.block_causal_mask(block_UT, valid_UT)
        return policy.logits(
            ids_BT[rows_U], attention_mask=valid_UT, select_BT=select_UT, reduce=_head_of(policy), **extra
        )

    def forward(rows_U: Tensor, select_UL: Tensor) -> Tensor:
        chunks = zip(rows_U.split(max_rows), select_UL.split(max_rows), strict=True)
        return torch.cat([read(rows, select) for rows, select in chunks])

    kinds = distinct_rows(torch.cat([ids_BT, valid_BT.long()], dim=1))
    with decoding_mode(policy):
        found_N = kinds.logits(forward, masked_BL)
    return canvas_BL.masked_scatter(masked_BL, found_N), len(kinds.rows_U)


def completion_texts(policy: Policy, ids_BL: Tensor) -> list[str]:
    """Texts of completions without a masked position, each up to its first end token."""
    return decode_ids(policy, ids_BL, up_to_end(ids_BL, torch.ones_like(ids_BL, dtype=torch.bool), policy.eos_token_id))


def _head_of(policy: Policy) -> Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]:
    """Takes the head's place: the likeliest allowed token of each position, with few logits alive at once."""
    forbidden, rows = forbidden_ids(policy), max(1, _HEAD_ELEMENTS // policy.vocab_size)

    def reduce(head: Callable[[Tensor], Tensor], hidden_NH: Tensor) -> Tensor:
        return torch.cat([likeliest(head(hidden), forbidden) for hidden in hidden_NH.split(rows)])

    return reduce


def _block_of_state(trajectory: Trajectory, states: int) -> Tensor:
    """The block that each state reveals tokens of (the first, where merged states hold several): int64 [B, S]."""
    revealed_BL = trajectory.unmask_step_BL >= 0
    last = int(trajectory.block_index_BL.max())
    block_BL = trajectory.block_index_BL.masked_fill(~revealed_BL, last)
    first_BS = block_BL.new_full((len(block_BL), states), last)
    return first_BS.scatter_reduce(1, trajectory.unmask_step_BL.clamp(min=0), block_BL, "amin")


def _at_block(trajectory: Trajectory, block: int) -> Tensor:
    """The completion with the blocks before this one and nothing else."""
    given_BL = (trajectory.block_index_BL < block) & (trajectory.unmask_step_BL >= 0)
    return torch.where(given_BL, trajectory.completion_ids_BL, trajectory.mask_token_id)
