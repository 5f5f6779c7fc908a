"""Decoding with full attention: every step reads prompt and canvas, masked positions included (LLaDA, Dream)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import SamplingError
from ..policies.base import Policy
from ..types import Decoding, Trajectory
from .distinct import distinct_rows, rows_asked
from .parts import Part, decoding_mode, split_parts
from .predictions import Predictions
from .record import Record, ended
from .sampling import forbidden_ids, is_truncated
from .steps import block_steps, check_decoding, spread
from .window import WindowSettings, denoise


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedDiffusionSampler:
    """Reveal a whole completion (`block_size == length`) or block after block, left to right (semi-autoregressive).

    In semi-autoregressive decoding a rollout ends after the block that holds its first end token: what could follow
    would carry neither reward nor loss.

    Attributes:
        decoding: of kind "masked". Steps that do not divide by blocks or positions are spread exactly, the first
            blocks and steps taking the remainder.
        store_predictions: record the greedy completion of every state, which whole-sequence decoding has the logits
            of anyway (`Trajectory.predictions_BSL`). Rules that look at nothing then compute logits at every open
            position, and their rollouts are the same up to float ties; those of other rules are the same bits.

    Raises:
        SamplingError: settings that cannot be carried out exactly.

    >>> MaskedDiffusionSampler(decoding=Decoding(kind="masked", length=8, steps=9, block_size=8))
    Traceback (most recent call last):
    steprs.errors.SamplingError: steps 9 cannot decode length 8 in 1 block(s): every block needs a step and every \
step reveals a token; give 1 to 8
    """

    decoding: Decoding
    store_predictions: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be decoded, or recorded."""
        check_decoding(self.decoding, "masked")
        if self.store_predictions and self.decoding.block_size != self.decoding.length:
            raise SamplingError(
                f"store_predictions needs whole-sequence decoding; in blocks of {self.decoding.block_size} of "
                f"{self.decoding.length} positions later blocks have no logits: use rollout.lookahead.complete_states"
            )

    def sample(
        self,
        policy: Policy,
        prompt_ids_PC: Tensor,
        prompt_mask_PC: Tensor,
        *,
        group_size: int,
        row_keys_B: Tensor,
        store_support: bool = False,
        max_rows: int = 1024,
    ) -> Trajectory:
        """Decode `group_size` rollouts of every prompt.

        Args:
            policy: with full attention.
            prompt_ids_PC: int64 [P, C], left-padded.
            prompt_mask_PC: bool [P, C], true on real tokens.
            group_size: G.
            row_keys_B: int64 [P * G], see `randomness.row_keys`; row p * G + g is rollout g of prompt p.
            store_support: record the ids a truncated distribution could give.
            max_rows: rollouts decoded at once; results do not depend on it beyond float ties.

        Raises:
            SamplingError: the policy is block-causal.
        """
        if policy.attention != "bidirectional":
            raise SamplingError(f"MaskedDiffusionSampler needs a bidirectional policy; this one is {policy.attention}")
        rule = check_decoding(self.decoding, "masked")
        store_support = store_support and is_truncated(self.decoding)
        settings = WindowSettings(
            decoding=self.decoding,
            rule=rule,
            forbidden=forbidden_ids(policy),
            mask_token_id=policy.mask_token_id,
            store_support=store_support,
        )
        record = Record(row_keys_B.shape[0], self.decoding, policy, store_support=store_support)
        with decoding_mode(policy):
            for part in split_parts(prompt_ids_PC, prompt_mask_PC, group_size=group_size, max_rows=max_rows):
                self._decode(policy, settings, part, row_keys_B, record)
        return record.finish(prompt_ids_PC, prompt_mask_PC, group_size=group_size, rule=rule)

    def _decode(self, policy: Policy, settings: WindowSettings, part: Part, row_keys_B: Tensor, record: Record) -> None:
        size = self.decoding.block_size
        positions_L = torch.arange(self.decoding.length, device=part.rows_R.device)
        record.number_blocks(part.rows_R, positions_L // size)
        canvas = _FullCanvas(policy, part, self.decoding.length)
        rows_R = part.rows_R
        for number, steps in enumerate(block_steps(self.decoding)):
            start = number * size
            canvas.open(start)
            asked = Predictions(canvas.logits, settings) if self.store_predictions else None
            positions_RW = positions_L[start : start + size].expand(rows_R.shape[0], size)
            window = denoise(
                canvas.logits if asked is None else asked,
                settings,
                keys_R=row_keys_B[rows_R],
                positions_RW=positions_RW,
                first_step_R=record.steps_taken(rows_R),
                counts_RK=positions_L.new_tensor(spread(size, steps)).expand(rows_R.shape[0], steps),
                start_RW=torch.full_like(positions_RW, settings.mask_token_id),
                open_RW=torch.ones_like(positions_RW, dtype=torch.bool),
            )
            record.write(rows_R, positions_RW, window)
            if asked is not None:
                record.write_predictions(rows_R, asked.of_states())
            keep_R = ~ended(window, policy.eos_token_id)
            if not bool(keep_R.any()):
                return
            canvas.commit(window.ids_RW, keep_R)
            rows_R = rows_R[keep_R]


class _FullCanvas:
    """Prompt and canvas of the rows still decoding."""

    def __init__(self, policy: Policy, part: Part, length: int):
        queries, self._context = part.prompt_ids_QC.shape
        masked_QL = part.prompt_ids_QC.new_full((queries, length), policy.mask_token_id)
        valid_QL = part.prompt_mask_QC.new_ones((queries, length))
        self._policy = policy
        self._prompt_R = torch.arange(queries, device=policy.device).repeat_interleave(part.group)
        self._ids_RT = torch.cat([part.prompt_ids_QC, masked_QL], dim=1)[self._prompt_R]
        self._valid_QT = torch.cat([part.prompt_mask_QC, valid_QL], dim=1)
        self._start = self._context

    def open(self, start: int) -> None:
        """The next window begins at completion position `start`."""
        self._start = self._context + start

    def logits(self, ids_RW: Tensor, select_RW: Tensor) -> Tensor:
        """Logits [N, V] at the selected positions of the window."""
        columns = slice(self._start, self._start + ids_RW.shape[1])
        self._ids_RT[:, columns] = ids_RW

        asked_A = rows_asked(select_RW)
        key_AK = torch.cat([self._prompt_R[:, None], self._ids_RT[:, self._context :]], dim=1)[asked_A]

        def forward(rows_U: Tensor, select_UW: Tensor) -> Tensor:
            read_U = asked_A[rows_U]
            valid_UT = self._valid_QT[self._prompt_R[read_U]]
            select_UT = torch.zeros_like(valid_UT)
            select_UT[:, columns] = select_UW
            return self._policy.logits(self._ids_RT[read_U], attention_mask=valid_UT, select_BT=select_UT)

        return distinct_rows(key_AK).logits(forward, select_RW[asked_A])

    def commit(self, ids_RW: Tensor, keep_R: Tensor) -> None:
        """Fix the window's tokens and drop the rows that are finished."""
        self._ids_RT[:, self._start : self._start + ids_RW.shape[1]] = ids_RW
        self._ids_RT, self._prompt_R = self._ids_RT[keep_R], self._prompt_R[keep_R]
