"""What a policy that revises its canvas reads: clean text, and states of the canvas behind it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .attention import canvas_mask, causal_mask, count_before


@dataclass(frozen=True, kw_only=True, slots=True)
class CanvasStates:
    """R rows of C clean positions and W canvas positions in S denoising states, which do not see one another.

    A state is what the canvas shows and what it is conditioned on, the mean embeddings that the policy expected in the
    step before (self-conditioning).

    Attributes:
        clean_ids_RC: int64, what the encoder reads.
        clean_mask_R1CC: bool, who sees whom there.
        clean_position_RC: int64 position ids.
        canvas_RSW: int64, what the canvas showed in each state.
        canvas_mask_R1WK: bool, K = C + W: the clean and the canvas positions that each canvas position sees.
        position_RW: int64 position ids of the canvas.
        opening_RW: int64, position id at which the canvas of each position begins; windows are counted from it.
        conditioning_RSWH: mean embeddings; None where nothing was expected yet.
        select_RSW: bool, the positions whose hidden states reach the head.
    """

    clean_ids_RC: Tensor
    clean_mask_R1CC: Tensor
    clean_position_RC: Tensor
    canvas_RSW: Tensor
    canvas_mask_R1WK: Tensor
    position_RW: Tensor
    opening_RW: Tensor
    conditioning_RSWH: Tensor | None
    select_RSW: Tensor

    def rows(self, index_A: Tensor) -> CanvasStates:
        """Some of the rows."""
        return self._map(lambda tensor: tensor[index_A])

    def to(self, device: torch.device | str) -> CanvasStates:
        """The same states on another device."""
        return self._map(lambda tensor: tensor.to(device))

    def _map(self, function: Callable[[Tensor], Tensor]) -> CanvasStates:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        changed: dict[str, Any] = {name: function(v) for name, v in values.items() if isinstance(v, Tensor)}
        return dataclasses.replace(self, **changed)


def canvas_behind(
    clean_ids_RC: Tensor,
    clean_valid_RC: Tensor,
    canvas_RSW: Tensor,
    *,
    conditioning_RSWH: Tensor | None = None,
    select_RSW: Tensor,
) -> CanvasStates:
    """One canvas a row, behind all of its clean text.

    Args:
        clean_ids_RC: int64, left-padded.
        clean_valid_RC: bool, false on padding.
        canvas_RSW: see `CanvasStates`, as the rest.
        conditioning_RSWH: see `CanvasStates`.
        select_RSW: see `CanvasStates`.
    """
    rows, _, width = canvas_RSW.shape
    opening_R1 = clean_valid_RC.sum(1, keepdim=True)
    sees_R1WC = clean_valid_RC[:, None, None].expand(rows, 1, width, -1)
    return CanvasStates(
        clean_ids_RC=clean_ids_RC,
        clean_mask_R1CC=causal_mask(clean_valid_RC),
        clean_position_RC=count_before(clean_valid_RC),
        canvas_RSW=canvas_RSW,
        canvas_mask_R1WK=torch.cat((sees_R1WC, sees_R1WC.new_ones(rows, 1, width, width)), dim=-1),
        position_RW=opening_R1 + torch.arange(width, device=opening_R1.device),
        opening_RW=opening_R1.expand(rows, width),
        conditioning_RSWH=conditioning_RSWH,
        select_RSW=select_RSW,
    )


def canvas_of_blocks(
    ids_BT: Tensor, valid_BT: Tensor, block_BT: Tensor, *, position_BT: Tensor | None, select_BT: Tensor | None
) -> CanvasStates:
    """Every block in its first, unconditioned state behind the encoded blocks before it, all in one row.

    Args:
        ids_BT: int64 [B, T].
        valid_BT: bool [B, T], false on padding.
        block_BT: int64 [B, T], the canvas of each position.
        position_BT: int64 position ids; None = the number of real tokens before.
        select_BT: bool [B, T] positions that reach the head; None = all.
    """
    sees_B1TK = canvas_mask(block_BT, valid_BT)
    position_BT = count_before(valid_BT) if position_BT is None else position_BT
    select_BT = torch.ones_like(valid_BT) if select_BT is None else select_BT
    earlier_BTT = (block_BT[:, None, :] < block_BT[:, :, None]) & valid_BT[:, None, :]
    return CanvasStates(
        clean_ids_RC=ids_BT,
        clean_mask_R1CC=causal_mask(valid_BT),
        clean_position_RC=position_BT,
        canvas_RSW=ids_BT[:, None],
        canvas_mask_R1WK=sees_B1TK,
        position_RW=position_BT,
        opening_RW=earlier_BTT.sum(-1),
        conditioning_RSWH=None,
        select_RSW=select_BT[:, None],
    )
