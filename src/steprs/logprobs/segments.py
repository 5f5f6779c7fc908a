"""Rows of model input as segments of the canvas: a row is the clean prefix, then one segment for each noisy state.

Packing is one flat gather: no loop over rollouts, rows or states. `F` is the axis of flat tokens of a packed batch,
`S` here the axis of noisy states (or segments) of all rollouts together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .canvas import Canvas

CLEAN = -1
"""The state of a clean segment: everything that was ever revealed is visible."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Segments:
    """Runs of canvas positions, sorted by the row they go to; the clean one first.

    Attributes:
        row_S: int64 row of the packed batch.
        start_S, size_S: int64, the run's first flat canvas index and its number of positions (may be 0).
        state_S: int64 state the run is shown in, or CLEAN.
    """

    row_S: Tensor
    start_S: Tensor
    size_S: Tensor
    state_S: Tensor

    def take(self, index: Tensor | slice) -> Segments:
        """Some of the segments."""
        return Segments(
            row_S=self.row_S[index], start_S=self.start_S[index], size_S=self.size_S[index], state_S=self.state_S[index]
        )


def lay_out(canvas: Canvas, attention: Literal["bidirectional", "block_causal"], token_budget: int) -> Segments:
    """Segments of every state that predicts a scored token.

    Bidirectional attention: a row is one state of the whole canvas. Block-causal attention: a row is the clean
    prefix up to the last block that is needed, then every noisy state of the rollout, each only as long as its
    block. A rollout whose packed row would exceed the budget is cut into several rows, each with the prefix that its
    own states need.
    """
    owner_S, block_S, state_S = _scored_states(canvas)
    first_B, start_S, size_S = _runs(canvas, owner_S, block_S)
    if attention == "bidirectional":
        row_S = torch.arange(len(owner_S), device=owner_S.device)
    else:
        row_S = _packed_rows(owner_S, start_S - first_B[owner_S], size_S, token_budget)
    last_S = torch.ones_like(row_S, dtype=torch.bool)
    last_S[:-1] = row_S[1:] != row_S[:-1]
    prefix_start_R = first_B[owner_S[last_S]]
    clean = Segments(
        row_S=row_S[last_S],
        start_S=prefix_start_R,
        size_S=start_S[last_S] - prefix_start_R,
        state_S=torch.full_like(prefix_start_R, CLEAN),
    )
    noisy = Segments(row_S=row_S, start_S=start_S, size_S=size_S, state_S=state_S)
    return _by_length(clean, noisy)


def _scored_states(canvas: Canvas) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct (rollout, block, state) of the scored tokens, sorted."""
    owner_N, column_N = canvas.scored_BW.nonzero(as_tuple=True)
    block_N, state_N = canvas.block_BW[owner_N, column_N], canvas.reveal_BW[owner_N, column_N]
    blocks, states = int(canvas.block_BW.max()) + 1, int(canvas.reveal_BW.max()) + 1
    key_S = torch.unique((owner_N * blocks + block_N) * states + state_N)
    return key_S // (blocks * states), key_S // states % blocks, key_S % states


def _runs(canvas: Canvas, owner_S: Tensor, block_S: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Flat canvas index of each rollout's first real token, and start and size of each state's block."""
    batch, width = canvas.block_BW.shape
    blocks = int(canvas.block_BW.max()) + 2
    row_B = torch.arange(batch, device=owner_S.device)
    sorted_F = (row_B[:, None] * blocks + canvas.block_BW + 1).flatten()
    start_S = torch.searchsorted(sorted_F, owner_S * blocks + block_S + 1)
    end_S = torch.searchsorted(sorted_F, owner_S * blocks + block_S + 1, right=True)
    first_B = row_B * width + (canvas.block_BW < 0).sum(1)
    return first_B, start_S, end_S - start_S


def _packed_rows(owner_S: Tensor, prefix_S: Tensor, size_S: Tensor, token_budget: int) -> Tensor:
    """Row of each state: consecutive states of a rollout, as many as fit behind the prefix that the last one needs.

    Early blocks need little of the completion before them, so their rows hold many states; a state that fits into no
    row has one of its own.
    """
    states = torch.arange(len(owner_S), device=owner_S.device)
    _, index_S, count_B = torch.unique_consecutive(owner_S, return_inverse=True, return_counts=True)
    end_B = count_B.cumsum(0)
    through_S = size_S.cumsum(0)
    # The row from state i to state j is prefix_j + through_j - before_i long, which grows with j inside a rollout; a
    # stride keeps rollouts apart, so that one search finds every state's last companion.
    stride = int(prefix_S.max()) + int(through_S[-1]) + token_budget + 1
    length_S = index_S * stride + prefix_S + through_S
    next_S = torch.searchsorted(length_S, index_S * stride + token_budget + through_S - size_S, right=True)
    next_S = torch.minimum(torch.maximum(next_S, states + 1), end_B[index_S])
    opens_S = torch.zeros_like(states, dtype=torch.bool)
    at_B = end_B - count_B
    while len(at_B):
        opens_S[at_B] = True
        next_B = next_S[at_B]
        at_B = next_B[next_B < end_B[index_S[at_B]]]
    return opens_S.cumsum(0) - 1


def _by_length(clean: Segments, noisy: Segments) -> Segments:
    """All segments with rows renumbered from the longest to the shortest, so that neighbours need little padding."""
    row_S = torch.cat((clean.row_S, noisy.row_S))
    size_S = torch.cat((clean.size_S, noisy.size_S))
    length_R = torch.zeros(len(clean.row_S), dtype=torch.int64, device=row_S.device).index_add(0, row_S, size_S)
    rank_R = torch.argsort(torch.argsort(length_R, descending=True, stable=True))
    joined = Segments(
        row_S=rank_R[row_S],
        start_S=torch.cat((clean.start_S, noisy.start_S)),
        size_S=size_S,
        state_S=torch.cat((clean.state_S, noisy.state_S)),
    )
    return joined.take(torch.argsort(joined.row_S, stable=True))
