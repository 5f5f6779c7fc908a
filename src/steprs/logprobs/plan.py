"""Micro-batches of scoring work: which rows go through the model together, and what is read off them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..policies.attention import packed_mask
from ..policies.base import Policy
from ..types import Trajectory
from .canvas import Canvas, make_canvas
from .noise import Noise
from .revised import RevisedBatch, empty_revised
from .segments import CLEAN, Segments, lay_out

DEFAULT_TOKEN_BUDGET = 4096
"""On CPUs activations of 1,000 to 4,000 tokens of a small model stay in cache and are fastest (`bench/scoring.py`)."""

_warned_budgets: set[int] = set()


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedRows:
    """One model input, and the tokens whose log-probabilities are read off it, in row-major order.

    Attributes:
        ids_RT: int64, the mask token where a position is hidden.
        mask_R1TT: bool, true = may attend; one row of it where all rows have the same.
        position_ids_RT: int64, as in the unpacked sequence.
        select_RT: bool, the N positions that reach the head.
        row_N, pos_N: int64, rollout and completion position of each.
        weight_N: float32 importance weight (1 unless states were sampled).
    """

    ids_RT: Tensor
    mask_R1TT: Tensor
    position_ids_RT: Tensor
    select_RT: Tensor
    row_N: Tensor
    pos_N: Tensor
    weight_N: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoringBatch:
    """One forward's worth of rows, kept as segments until `pack` builds them.

    Attributes:
        rows: R.
        length: T, positions of the longest row.
        segments: rows counted from 0.
        canvas: shared by all batches of a plan.
    """

    rows: int
    length: int
    segments: Segments
    canvas: Canvas

    @property
    def tokens(self) -> int:
        """Positions the model computes, padding included."""
        return self.rows * self.length

    def pack(self) -> PackedRows:
        """Gather the rows from the canvas."""
        canvas, segments = self.canvas, self.segments
        segment_F = torch.arange(len(segments.row_S), device=segments.row_S.device).repeat_interleave(segments.size_S)
        source_F = segments.start_S[segment_F] + _ramp(segments.size_S)
        state_F, row_F = segments.state_S[segment_F], segments.row_S[segment_F]
        slot_F = row_F * self.length + _ramp(torch.bincount(row_F, minlength=self.rows))

        def place(value_F: Tensor, empty: int) -> Tensor:
            flat = value_F.new_full((self.tokens,), empty)
            flat[slot_F] = value_F
            return flat.view(self.rows, self.length)

        reveal_F = canvas.reveal_BW.take(source_F)
        scored_F = canvas.scored_BW.take(source_F) & (reveal_F == state_F)
        width = canvas.ids_BW.shape[1]
        scored_N = source_F[scored_F]
        first_R = torch.searchsorted(segments.row_S, torch.arange(self.rows, device=row_F.device))
        # A clean segment is stream 0; every noisy one is a stream of its own.
        stream_F = torch.where(state_F == CLEAN, 0, segment_F - first_R[row_F] + 1)
        return PackedRows(
            ids_RT=place(_shown(canvas, source_F, reveal_F, state_F), canvas.mask_token_id),
            mask_R1TT=_mask(
                place(canvas.block_BW.take(source_F), 0),
                place(stream_F, 0),
                place(torch.ones_like(source_F, dtype=torch.bool), False),
            ),
            position_ids_RT=place(canvas.position_BW.take(source_F), 0),
            select_RT=place(scored_F, False),
            row_N=scored_N // width,
            pos_N=scored_N % width - canvas.context,
            weight_N=canvas.weight_B[scored_N // width],
        )


def make_plan(trajectory: Trajectory, policy: Policy, noise: Noise, token_budget: int) -> list[ScoringBatch]:
    """Micro-batches that score every token of `noise.scored_BL` exactly once, longest rows first.

    Args:
        trajectory: the rollouts.
        policy: decides attention and block layout; no forward is run.
        noise: from one of the scoring methods.
        token_budget: most positions (padding included) of one forward. A row that cannot be cut (one state behind its
            prefix) and is longer is a batch of its own, and is warned of once.

    Raises:
        ArgumentError: the budget is below 1, or the trajectory was not decoded with this policy's attention.
    """
    if token_budget < 1:
        raise ArgumentError(f"token_budget is {token_budget}; give the number of positions one forward may hold, >= 1")
    canvas = make_canvas(trajectory, policy, noise)
    if not bool(canvas.scored_BW.any()):
        return []
    assert policy.attention != "canvas", "make_canvas refuses it"
    segments = lay_out(canvas, policy.attention, token_budget)
    length_R = torch.zeros(int(segments.row_S[-1]) + 1, dtype=torch.int64, device=segments.row_S.device)
    length_R = length_R.index_add(0, segments.row_S, segments.size_S)
    _warn_long(int(length_R[0]), token_budget)
    bounds = _bounds(length_R.tolist(), token_budget)
    edges = torch.searchsorted(segments.row_S, torch.tensor(bounds, device=segments.row_S.device)).tolist()
    batches = []
    for first, last, begin, end in zip(bounds, bounds[1:], edges, edges[1:], strict=False):
        part = segments.take(slice(begin, end))
        local = Segments(row_S=part.row_S - first, start_S=part.start_S, size_S=part.size_S, state_S=part.state_S)
        batches.append(ScoringBatch(rows=last - first, length=int(length_R[first]), segments=local, canvas=canvas))
    return batches


def pad_plan(
    plan: Sequence[ScoringBatch | RevisedBatch], count: int, trajectory: Trajectory
) -> list[ScoringBatch | RevisedBatch]:
    """The plan, lengthened to `count` batches by ones that score nothing.

    Processes of a distributed run must call the model equally often; a padding batch is one forward of one token
    whose loss is an empty sum: a zero that is still connected to every weight.

    Args:
        plan: this process's micro-batches, possibly none.
        count: the largest number over all processes.
        trajectory: this process's rollouts, for device and mask token.

    Raises:
        ArgumentError: the plan is already longer.
    """
    if len(plan) > count:
        raise ArgumentError(f"the plan holds {len(plan)} batches, more than the {count} asked for")
    empty = _empty_batch(trajectory) if trajectory.revisions is None else empty_revised(trajectory)
    return [*plan, *[empty] * (count - len(plan))]


def _warn_long(longest: int, token_budget: int) -> None:
    """Once for a budget: memory then follows from the longest row, and every state behind it costs a forward."""
    if longest <= token_budget or token_budget in _warned_budgets:
        return
    _warned_budgets.add(token_budget)
    warnings.warn(
        f"token_budget is {token_budget}, but one denoising state and what it sees take {longest} positions, which no "
        f"row can do without: such states are scored one a row, in memory for {longest}. Set train.token_budget to at "
        f"least {longest}; with {2 * longest} a block-causal row holds many states",
        stacklevel=4,
    )


def _empty_batch(trajectory: Trajectory) -> ScoringBatch:
    device = trajectory.completion_ids_BL.device
    one = torch.ones(1, 1, dtype=torch.int64, device=device)
    canvas = Canvas(
        ids_BW=one * trajectory.mask_token_id,
        reveal_BW=one * CLEAN,
        block_BW=one * 0,
        position_BW=one * 0,
        scored_BW=one < 0,
        weight_B=torch.zeros(1, device=device),
        context=0,
        mask_token_id=trajectory.mask_token_id,
        cumulative=True,
    )
    flat = one[0]
    segments = Segments(row_S=flat * 0, start_S=flat * 0, size_S=flat, state_S=flat * CLEAN)
    return ScoringBatch(rows=1, length=1, segments=segments, canvas=canvas)


def _mask(block_RT: Tensor, stream_RT: Tensor, valid_RT: Tensor) -> Tensor:
    """The packed mask; of one row where all agree, as rollouts of a prompt with a fixed number of steps do."""
    parts = (block_RT, stream_RT, valid_RT)
    if all(bool((part_RT == part_RT[:1]).all()) for part_RT in parts):
        parts = (block_RT[:1], stream_RT[:1], valid_RT[:1])
    return packed_mask(*parts)


def _shown(canvas: Canvas, source_F: Tensor, reveal_F: Tensor, state_F: Tensor) -> Tensor:
    """Ids as the model sees them in the state of their segment."""
    noisy_F = (reveal_F >= state_F) if canvas.cumulative else (reveal_F == state_F)
    hidden_F = (reveal_F == CLEAN) | (noisy_F & (state_F != CLEAN))
    return canvas.ids_BW.take(source_F).masked_fill(hidden_F, canvas.mask_token_id)


def _ramp(size_S: Tensor) -> Tensor:
    """0, 1, .. size - 1 for each size, joined.

    >>> _ramp(torch.tensor([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    start_S = size_S.cumsum(0) - size_S
    return torch.arange(int(size_S.sum()), device=size_S.device) - start_S.repeat_interleave(size_S)


def _bounds(lengths: list[int], token_budget: int) -> list[int]:
    """Edges of the micro-batches over rows sorted from long to short; each is padded to its first row.

    >>> _bounds([4, 4, 2, 2, 2], token_budget=8)
    [0, 2, 5]
    """
    bounds = [0]
    while bounds[-1] < len(lengths):
        bounds.append(min(len(lengths), bounds[-1] + max(1, token_budget // lengths[bounds[-1]])))
    return bounds
