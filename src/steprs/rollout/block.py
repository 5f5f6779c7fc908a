"""Decoding block after block under block-causal attention, with an exact prefix cache (SDAR, TraDo, the tiny policy).

A finished block never sees what comes after it, so its keys and values are final and are computed once. Three things
save work and change nothing: rollouts of a group that are still the same are read once (their prompt and first masked
block always are); a finished block enters the cache in the same forward as the first state of the next; and rollouts
leave the batch after the block that holds their first end token.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache

from ..errors import SamplingError
from ..policies import attention as masks
from ..policies.base import Policy, count_before
from ..types import Decoding, Trajectory
from .distinct import branch, distinct_rows, every_row
from .parts import Part, decoding_mode, split_parts
from .record import Record
from .sampling import forbidden_ids, is_truncated
from .steps import block_steps, check_decoding, spread
from .window import WindowSettings, denoise


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenBlocks:
    """Finished blocks that a rollout goes on from.

    Attributes:
        ids_BL: int64, a completion for each rollout; only its first blocks are read, and no end token is in them.
        blocks: how many.
    """

    ids_BL: Tensor
    blocks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockDiffusionSampler:
    """Decode with a block-causal policy; each block is denoised in its own steps, given the clean blocks before it.

    Where the policy counts blocks from the first token (`prompt_block == "aligned"`), the prompt's last, incomplete
    block is completed first, and a block of n positions takes its share of the steps, rounded up.

    Attributes:
        decoding: of kind "block", with the policy's own block size.
        use_cache: False computes every state from the whole row, each rollout on its own: slow, the reference.

    Raises:
        SamplingError: settings that cannot be carried out exactly.
    """

    decoding: Decoding
    use_cache: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be decoded."""
        check_decoding(self.decoding, "block")

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
        given: GivenBlocks | None = None,
    ) -> Trajectory:
        """Decode `group_size` rollouts of every prompt.

        Args:
            policy: block-causal.
            prompt_ids_PC: int64 [P, C], left-padded.
            prompt_mask_PC: bool [P, C], true on real tokens.
            group_size: G.
            row_keys_B: int64 [P * G], see `randomness.row_keys`; row p * G + g is rollout g of prompt p.
            store_support: record the ids a truncated distribution could give.
            max_rows: rollouts decoded at once; results do not depend on it beyond float ties.
            given: first blocks to go on from; only what comes after them is decoded and recorded.

        Raises:
            SamplingError: the policy has full attention or another block size.
        """
        if policy.attention != "block_causal":
            raise SamplingError(f"BlockDiffusionSampler needs a block-causal policy; this one is {policy.attention}")
        if policy.block_size != self.decoding.block_size:
            raise SamplingError(
                f"block_size {self.decoding.block_size} is not the policy's own, {policy.block_size}; a block-causal "
                "policy is decoded in the blocks of its attention mask"
            )
        rule = check_decoding(self.decoding, "block")
        store_support = store_support and is_truncated(self.decoding)
        settings = WindowSettings(
            decoding=self.decoding,
            rule=rule,
            forbidden=forbidden_ids(policy),
            mask_token_id=policy.mask_token_id,
            store_support=store_support,
        )
        # Prompts that end at different places of a block have their block borders at different positions.
        lead_P = prompt_mask_PC.sum(1) % self.decoding.block_size if policy.prompt_block == "aligned" else None
        record = Record(row_keys_B.shape[0], self.decoding, policy, store_support=store_support)
        with decoding_mode(policy):
            for part in split_parts(
                prompt_ids_PC, prompt_mask_PC, group_size=group_size, max_rows=max_rows, kinds_P=lead_P
            ):
                self._decode(policy, settings, part, row_keys_B, record, given)
        return record.finish(prompt_ids_PC, prompt_mask_PC, group_size=group_size, rule=rule)

    def _decode(
        self,
        policy: Policy,
        settings: WindowSettings,
        part: Part,
        row_keys_B: Tensor,
        record: Record,
        given: GivenBlocks | None,
    ) -> None:
        positions_L = torch.arange(self.decoding.length, device=part.rows_R.device)
        canvas = _BlockCanvas(policy, part, self.decoding.length, use_cache=self.use_cache)
        record.number_blocks(part.rows_R, (positions_L + canvas.lead) // self.decoding.block_size)
        rows_R = part.rows_R
        for number, (start, stop, steps) in enumerate(self._windows(canvas.lead)):
            canvas.open(start, stop)
            if given is not None and number < given.blocks:
                canvas.commit(given.ids_BL[rows_R, start:stop], torch.ones_like(rows_R, dtype=torch.bool))
                continue
            window = denoise(
                canvas.logits,
                settings,
                keys_R=row_keys_B[rows_R],
                positions_W=positions_L[start:stop],
                first_step_R=record.steps_taken(rows_R),
                counts=spread(stop - start, steps),
            )
            record.write(rows_R, start, window)
            keep_R = (window.ids_RW != policy.eos_token_id).all(1)
            if stop == self.decoding.length or not bool(keep_R.any()):
                return
            canvas.commit(window.ids_RW, keep_R)
            rows_R = rows_R[keep_R]

    def _windows(self, lead: int) -> list[tuple[int, int, int]]:
        """(start, stop, steps) of every block's completion positions when the first holds `lead` prompt tokens."""
        size, length = self.decoding.block_size, self.decoding.length
        if lead == 0:
            return [(k * size, (k + 1) * size, steps) for k, steps in enumerate(block_steps(self.decoding))]
        borders = [0, *range(size - lead, length, size), length]
        return [
            (start, stop, -(-(stop - start) * self.decoding.steps // length))
            for start, stop in itertools.pairwise(borders)
        ]


class _BlockCanvas:
    """Rows of prompt and completion, of which the columns before `_cached` are in the cache.

    The cache holds one row for each different prefix; `_prefix_R` says which of them a rollout continues.
    """

    def __init__(self, policy: Policy, part: Part, length: int, *, use_cache: bool):
        queries, self._context = part.prompt_ids_QC.shape
        masked_QL = part.prompt_ids_QC.new_full((queries, length), policy.mask_token_id)
        self._policy = policy
        self._padded = not bool(part.prompt_mask_QC.all())
        self._valid_QT = torch.cat([part.prompt_mask_QC, part.prompt_mask_QC.new_ones((queries, length))], dim=1)
        self._position_QT = count_before(self._valid_QT)
        self._block_QT = policy.block_layout(part.prompt_mask_QC, length)
        self._prompt_R = torch.arange(queries, device=policy.device).repeat_interleave(part.group)
        self._ids_RT = torch.cat([part.prompt_ids_QC, masked_QL], dim=1)[self._prompt_R]
        self._cache = policy.new_cache() if use_cache else None
        self._prefix_R, self._cache_rows = self._prompt_R, self._prompt_R[:0]
        self._cached = self._begin = self._stop = 0
        self.lead = 0
        if policy.prompt_block == "aligned" and policy.block_size is not None:
            self.lead = int(part.prompt_mask_QC[0].sum()) % policy.block_size

    def open(self, start: int, stop: int) -> None:
        """The next window is completion positions `start` to `stop`."""
        self._begin, self._stop = self._context + start, self._context + stop

    def logits(self, ids_RW: Tensor, select_RW: Tensor) -> Tensor:
        """Logits [N, V] at the selected positions of the window."""
        self._ids_RT[:, self._begin : self._stop] = ids_RW
        if self._cache is None:
            rows = every_row(ids_RW.shape[0], ids_RW.device)
            return rows.logits(lambda rows_U, select_UW: self._read(rows_U, select_UW, None), select_RW)
        unread_RK = self._ids_RT[:, max(self._cached, self._context) : self._stop]
        distinct = distinct_rows(torch.cat([self._prefix_R[:, None], unread_RK], dim=1))
        # The first block of an aligned prompt begins inside the prompt.
        first = self._begin - (self.lead if self._begin == self._context else 0)
        # A shifted head scores a block's first position at the token before it, which therefore is read every time.
        final = max(first - int(self._policy.shifted), 0)
        cache = self._cache if self._cached < final else branch(self._cache)
        source_U = self._prefix_R[distinct.rows_U]
        if self._cached and not torch.equal(source_U, self._cache_rows):
            cache.batch_select_indices(source_U)
        logits_NV = distinct.logits(lambda rows_U, select_UW: self._read(rows_U, select_UW, cache), select_RW)
        if self._cached < final:
            # The window was all masked, so rows that differ now differ in their prefix.
            cache.crop(final - self._stop)
            self._cached, self._prefix_R = final, distinct.kind_R
            self._cache_rows = torch.arange(distinct.rows_U.shape[0], device=ids_RW.device)
        return logits_NV

    def commit(self, ids_RW: Tensor, keep_R: Tensor) -> None:
        """Fix the window's tokens and drop the rows that are finished; their cache goes with the next block's first."""
        self._ids_RT[:, self._begin : self._stop] = ids_RW
        self._ids_RT, self._prompt_R = self._ids_RT[keep_R], self._prompt_R[keep_R]
        self._prefix_R = self._prefix_R[keep_R]

    def _read(self, rows_U: Tensor, select_UW: Tensor, cache: DynamicCache | None) -> Tensor:
        """A forward of everything that is not cached yet, up to the end of the window."""
        columns, prompt_U = slice(self._cached, self._stop), self._prompt_R[rows_U]
        select_UT = select_UW.new_zeros((select_UW.shape[0], self._stop - self._cached))
        select_UT[:, self._begin - self._cached :] = select_UW
        return self._policy.logits(
            self._ids_RT[rows_U, columns],
            attention_mask=self._mask(prompt_U if self._padded else prompt_U[:1]),
            position_ids=self._position_QT[prompt_U, columns],
            select_BT=select_UT,
            cache=cache,
        )

    def _mask(self, prompt_U: Tensor) -> Tensor:
        """Bool [U, 1, T, S]; one row stands for all where no prompt is padded."""
        valid_US = self._valid_QT[prompt_U, : self._stop]
        new_UT = valid_US[:, self._cached :]
        past_U1TS = valid_US[:, None, None, : self._cached].expand(-1, 1, new_UT.shape[1], -1)
        block_UT = self._block_QT[prompt_U, self._cached : self._stop]
        return torch.cat([past_U1TS, masks.block_causal_mask(block_UT, new_UT)], dim=-1)
