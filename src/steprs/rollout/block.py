"""Decoding block after block under block-causal attention, with an exact prefix cache (SDAR, TraDo, the tiny policy).

A finished block never sees what comes after it, so its keys and values are final and are computed once. What saves work
and changes nothing: rollouts of a group that are still the same are read once (their prompt and first masked block
always are); a finished block enters the cache in the same forward as the first state of the next; rollouts leave the
batch after the block that holds their first end token; and a rollout whose block is complete before that of others,
as dynamic rules make them, is not read while it waits for theirs. They wait at every block's end and nowhere else:
blocks begin together, so that one forward serves all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import SamplingError
from ..policies import attention as masks
from ..policies.base import Policy, count_before
from ..types import Decoding, Trajectory
from .distinct import distinct_rows, every_row, rows_asked
from .parts import Part, decoding_mode, split_parts
from .prefix import PrefixCache
from .record import Record, ended
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
        record = Record(row_keys_B.shape[0], self.decoding, policy, store_support=store_support)
        with decoding_mode(policy):
            for part in split_parts(prompt_ids_PC, prompt_mask_PC, group_size=group_size, max_rows=max_rows):
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
        canvas = _BlockCanvas(policy, part, self.decoding.length, use_cache=self.use_cache)
        rows_R = part.rows_R
        record.number_blocks(rows_R, canvas.block_index())
        for block in range(canvas.blocks):
            canvas.open(block)
            positions_RW, open_RW = canvas.positions()
            if given is not None and block < given.blocks:
                last = self.decoding.length - 1
                given_RW = given.ids_BL[rows_R].gather(1, positions_RW.clamp(0, last))
                canvas.write(torch.where(open_RW, given_RW, canvas.window()))
                ended_R = torch.zeros_like(rows_R, dtype=torch.bool)
            else:
                window = denoise(
                    canvas.logits,
                    settings,
                    keys_R=row_keys_B[rows_R],
                    positions_RW=positions_RW,
                    first_step_R=record.steps_taken(rows_R),
                    counts_RK=self._counts(block, open_RW.sum(1), canvas.leads()),
                    start_RW=canvas.window(),
                    open_RW=open_RW,
                )
                record.write(rows_R, positions_RW, window)
                canvas.write(window.ids_RW)
                ended_R = ended(window, policy.eos_token_id)
            keep_R = ~ended_R & (positions_RW[:, -1] < self.decoding.length - 1)
            if not bool(keep_R.any()):
                return
            canvas.keep(keep_R)
            rows_R = rows_R[keep_R]

    def _counts(self, block: int, open_R: Tensor, lead_R: Tensor) -> Tensor:
        """Positions that each row reveals in each step of this block, int64 [R, K], 0 behind its last step."""
        kinds_S2, kind_R = torch.stack([open_R, lead_R], dim=1).unique(dim=0, return_inverse=True)
        rows = []
        for size, lead in kinds_S2.tolist():
            share = -(-size * self.decoding.steps // self.decoding.length)
            rows.append(spread(size, share if lead else block_steps(self.decoding)[block]))
        longest = max(map(len, rows))
        return open_R.new_tensor([[*row, *[0] * (longest - len(row))] for row in rows])[kind_R]


class _BlockCanvas:
    """Rows of prompt and completion in columns such that blocks have the same borders in every row.

    Where blocks are counted from the first token, prompts are shifted against one another by less than a block, so
    that prompts of every length are decoded together: the first window then begins with the last tokens of a prompt,
    and a completion may end inside the last. Columns before `_cached` are in the cache, which holds one row for each
    different prefix; `_prefix_R` says which of them a rollout continues.
    """

    def __init__(self, policy: Policy, part: Part, length: int, *, use_cache: bool):
        size = policy.block_size
        assert size is not None
        count_Q = part.prompt_mask_QC.sum(1)
        lead_Q = count_Q % size if policy.prompt_block == "aligned" else torch.zeros_like(count_Q)
        self._policy, self._size, self._length = policy, size, length
        self._base = int((count_Q - lead_Q).max())
        self.blocks = -(-(int(lead_Q.max()) + length) // size)
        columns_T = torch.arange(self._base + self.blocks * size, device=policy.device)
        self._start_Q = self._base + lead_Q
        from_start_QT = columns_T - self._start_Q[:, None]
        in_prompt_QT = (from_start_QT < 0) & (from_start_QT >= -count_Q[:, None])
        context = part.prompt_ids_QC.shape[1]
        prompt_QT = part.prompt_ids_QC.gather(1, (from_start_QT + context).clamp(0, context - 1))
        self._valid_QT = in_prompt_QT | ((from_start_QT >= 0) & (from_start_QT < length))
        self._same = bool(self._valid_QT.all())
        self._position_QT = count_before(self._valid_QT)
        # Blocks counted from the first token are counted from a column that is a block's first.
        self._block_T = torch.where(columns_T < self._base, -1, (columns_T - self._base) // size)
        if policy.prompt_block == "aligned":
            self._block_T = columns_T // size
        self._prompt_R = torch.arange(lead_Q.shape[0], device=policy.device).repeat_interleave(part.group)
        self._ids_RT = torch.where(in_prompt_QT, prompt_QT, policy.mask_token_id)[self._prompt_R]
        self._cache = PrefixCache() if use_cache else None
        self._prefix_R, self._cache_rows = self._prompt_R, 0
        self._cached = self._begin = self._stop = 0
        self._mask_Q1TS: Tensor | None = None

    def block_index(self) -> Tensor:
        """Decoding block of every completion position, int64 [R, L]."""
        positions_L = torch.arange(self._length, device=self._prompt_R.device)
        return (positions_L + self.leads()[:, None]) // self._size

    def leads(self) -> Tensor:
        """Prompt tokens in the block that the completion begins in, int64 [R]."""
        return self._start_Q[self._prompt_R] - self._base

    def open(self, block: int) -> None:
        """The next window is this block."""
        self._begin = self._base + block * self._size
        self._stop = self._begin + self._size

    def window(self) -> Tensor:
        """Ids in the window, int64 [R, W]; the mask token where nothing has been revealed."""
        return self._ids_RT[:, self._begin : self._stop]

    def positions(self) -> tuple[Tensor, Tensor]:
        """Completion positions of the window, int64 [R, W], and which of them there are: bool [R, W]."""
        columns_W = torch.arange(self._begin, self._stop, device=self._prompt_R.device)
        positions_RW = columns_W - self._start_Q[self._prompt_R][:, None]
        return positions_RW, (positions_RW >= 0) & (positions_RW < self._length)

    def write(self, ids_RW: Tensor) -> None:
        """Set the window's ids; a finished block goes to the cache with the next block's first state."""
        self._ids_RT[:, self._begin : self._stop] = ids_RW

    def keep(self, keep_R: Tensor) -> None:
        """Drop the other rows; their keys go with the next block's first state."""
        self._ids_RT, self._prompt_R = self._ids_RT[keep_R], self._prompt_R[keep_R]
        self._prefix_R = self._prefix_R[keep_R]

    def logits(self, ids_RW: Tensor, select_RW: Tensor) -> Tensor:
        """Logits [N, V] at the selected positions of the window."""
        self.write(ids_RW)
        asked_A = rows_asked(select_RW)
        if self._cache is None:
            every = every_row(asked_A.shape[0], asked_A.device)
            return every.logits(lambda rows_U, select_UW: self._read(asked_A[rows_U], select_UW), select_RW[asked_A])
        unread_RK = self._ids_RT[:, max(self._cached, self._base) : self._stop]
        kinds = distinct_rows(torch.cat([self._prefix_R[:, None], unread_RK], dim=1)[asked_A])
        source_U = self._prefix_R[asked_A][kinds.rows_U]
        # A shifted head scores a block's first position at the token before it, which therefore is read every time.
        final = max(self._begin - int(self._policy.shifted), 0)
        appends = self._cached < final
        same = source_U.shape[0] == self._cache_rows and bool((source_U.diff() == 1).all())
        read_only = not (same or appends) and self._cached > 0
        if appends and not same and self._cached:
            self._cache.batch_select_indices(source_U)
        self._cache.read_rows(source_U if read_only else None)
        logits_NV = kinds.logits(lambda rows_U, select_UW: self._read(asked_A[rows_U], select_UW), select_RW[asked_A])
        if not read_only:
            self._cache.crop(final - self._stop)
        if appends:
            # Every row is asked for its first state, which is all masked: rows that differ now differ in their prefix.
            self._cached, self._prefix_R, self._cache_rows = final, kinds.kind_R, kinds.rows_U.shape[0]
        return logits_NV

    def _read(self, rows_U: Tensor, select_UW: Tensor) -> Tensor:
        """A forward of everything that is not cached yet, up to the end of the window."""
        columns, prompt_U = slice(self._cached, self._stop), self._prompt_R[rows_U]
        select_UT = select_UW.new_zeros((select_UW.shape[0], self._stop - self._cached))
        select_UT[:, self._begin - self._cached :] = select_UW
        mask_Q1TS = self._mask()
        return self._policy.logits(
            self._ids_RT[rows_U, columns],
            attention_mask=mask_Q1TS if self._same else mask_Q1TS[prompt_U],
            position_ids=self._position_QT[prompt_U, columns],
            select_BT=select_UT,
            cache=self._cache,
        )

    def _mask(self) -> Tensor:
        """Bool [Q, 1, T, S], one for all prompts where none is padded; made once for all steps of a block."""
        shape = (self._stop - self._cached, self._stop)
        if self._mask_Q1TS is None or self._mask_Q1TS.shape[2:] != shape:
            valid_QS = self._valid_QT[: 1 if self._same else None, : self._stop]
            new_QT = valid_QS[:, self._cached :]
            past_Q1TS = valid_QS[:, None, None, : self._cached].expand(-1, 1, shape[0], -1)
            block_QT = self._block_T[self._cached : self._stop].expand_as(new_QT)
            self._mask_Q1TS = torch.cat([past_Q1TS, masks.block_causal_mask(block_QT, new_QT)], dim=-1)
        return self._mask_Q1TS
