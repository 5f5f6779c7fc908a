"""Collecting decoded windows of many rows into one `Trajectory`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..policies.base import Policy
from ..types import Decoding, Trajectory
from .unmasking import UnmaskingRule
from .window import Window


class Record:
    """Buffers of B rows and L positions; nothing is revealed at first. Written to while decoding, then finished."""

    def __init__(self, rows: int, decoding: Decoding, policy: Policy, *, store_support: bool):
        """Empty buffers on the policy's device."""
        shape, device = (rows, decoding.length), policy.device
        self._policy = policy
        self._decoding = decoding
        self._fields: dict[str, Tensor] = {
            # Nothing is ever left masked: what was not reached holds padding.
            "completion_ids_BL": torch.full(shape, policy.pad_token_id, device=device),
            "unmask_step_BL": torch.full(shape, -1, device=device),
            "block_index_BL": torch.zeros(shape, dtype=torch.int64, device=device),
            "sampling_logprobs_BL": torch.zeros(shape, device=device),
            "entropies_BL": torch.zeros(shape, device=device),
            "num_steps_B": torch.zeros(rows, dtype=torch.int64, device=device),
        }
        self._support_BLK = torch.full((*shape, 0), -1, device=device) if store_support else None
        self._predictions_BSL: Tensor | None = None

    def steps_taken(self, rows_R: Tensor) -> Tensor:
        """Steps the rows have taken so far, int64 [R]."""
        return self._fields["num_steps_B"][rows_R]

    def number_blocks(self, rows_R: Tensor, block_index_RL: Tensor) -> None:
        """Set the decoding block of every position of these rows."""
        self._fields["block_index_BL"][rows_R] = block_index_RL

    def write(self, rows_R: Tensor, positions_RW: Tensor, window: Window) -> None:
        """Lay what a window revealed into these rows, at these positions of the completion."""
        revealed_RW = window.step_RW >= 0
        at = (rows_R[:, None].expand_as(positions_RW)[revealed_RW], positions_RW[revealed_RW])
        self._fields["completion_ids_BL"][at] = window.ids_RW[revealed_RW]
        self._fields["unmask_step_BL"][at] = window.step_RW[revealed_RW]
        self._fields["sampling_logprobs_BL"][at] = window.logprobs_RW[revealed_RW]
        self._fields["entropies_BL"][at] = window.entropies_RW[revealed_RW]
        self._fields["num_steps_B"][rows_R] += window.taken_R
        if self._support_BLK is None or window.support_RWK is None:
            return
        old, new = self._support_BLK.shape[-1], window.support_RWK.shape[-1]
        width = max(old, new)
        self._support_BLK = functional.pad(self._support_BLK, (0, width - old), value=-1)
        self._support_BLK[at] = functional.pad(window.support_RWK, (0, width - new), value=-1)[revealed_RW]

    def write_predictions(self, rows_R: Tensor, predictions_RSL: Tensor) -> None:
        """Lay the greedy completions of these rows' states in; -1 where a row has no such state."""
        if self._predictions_BSL is None:
            shape = (len(self._fields["num_steps_B"]), self._decoding.steps, self._decoding.length)
            self._predictions_BSL = torch.full(shape, -1, dtype=torch.int32, device=rows_R.device)
        self._predictions_BSL[rows_R, : predictions_RSL.shape[1]] = predictions_RSL.to(torch.int32)

    def finish(
        self, prompt_ids_PC: Tensor, prompt_mask_PC: Tensor, *, group_size: int, rule: UnmaskingRule
    ) -> Trajectory:
        """The record of all rows."""
        fields: dict[str, Any] = dict(self._fields)
        revealed_BL = fields["unmask_step_BL"] >= 0
        if self._predictions_BSL is not None:
            fields["predictions_BSL"] = self._predictions_BSL[:, : int(fields["num_steps_B"].max())]
        return Trajectory(
            prompt_ids_BC=prompt_ids_PC.repeat_interleave(group_size, dim=0),
            prompt_mask_BC=prompt_mask_PC.repeat_interleave(group_size, dim=0),
            completion_mask_BL=up_to_end(fields["completion_ids_BL"], revealed_BL, self._policy.eos_token_id),
            mask_token_id=self._policy.mask_token_id,
            decoding=self._decoding,
            group_size=group_size,
            selection_exact=rule.exact,
            steps_fixed=rule.fixed_steps,
            support_ids_BLK=self._support_BLK,
            **fields,
        )


def ended(window: Window, eos_token_id: int) -> Tensor:
    """Rows whose window revealed an end token, bool [R]."""
    return ((window.ids_RW == eos_token_id) & (window.step_RW >= 0)).any(1)


def up_to_end(ids_BL: Tensor, revealed_BL: Tensor, eos_token_id: int) -> Tensor:
    """Revealed positions up to and including the first revealed end token, bool [B, L].

    Only a revealed token ends a text, so that padding which doubles as the end token ends nothing.

    >>> ids, revealed = torch.tensor([[5, 1, 1, 1]]), torch.tensor([[True, True, True, False]])
    >>> up_to_end(ids, revealed, 1).tolist()
    [[True, True, False, False]]
    """
    end_BL = ((ids_BL == eos_token_id) & revealed_BL).long()
    return revealed_BL & (end_BL.cumsum(1) - end_BL == 0)
