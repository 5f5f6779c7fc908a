"""Decoding canvas after canvas by revision, as DiffusionGemma does: every step draws every token of the canvas again.

A canvas starts as tokens drawn uniformly from the vocabulary. Each step reads it, together with what the step before
said (self-conditioning), draws a token at every position, fixes the positions that the rule is sure of and fills the
others with fresh noise, also those that were fixed before. The last step fixes all. A finished canvas becomes clean
text that the next one reads through the encoder.

The published sampler (transformers' `DiffusionGemmaGenerationMixin.generate`) differs in one thing: it returns the
likeliest tokens of the last step. A policy gradient needs tokens that were drawn, so a rollout ends with those drawn;
at temperature 0 the two are the same.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import SamplingError
from ..policies.base import Policy
from ..policies.canvas import CanvasModule
from ..policies.canvas_states import CanvasStates, canvas_behind
from ..policies.distribution import canvas_temperatures
from ..randomness import uniforms
from ..types import Decoding, Revisions, Trajectory
from .distinct import distinct_rows
from .parts import Part, decoding_mode, split_parts
from .record import Record, ended
from .sampling import Draws, forbidden_ids, is_truncated, sample_tokens
from .steps import check_decoding, spread
from .unmasking import RULES, choose, confidences
from .window import Window, WindowSettings, first_window, write

_TOKEN_STREAM, _NOISE_STREAM = 0, 3


@dataclass(frozen=True, kw_only=True, slots=True)
class RevisingSampler:
    """Decode with a canvas policy.

    Rules with a threshold fix as many tokens as they are sure of, at least one; the others a share that grows by the
    same amount in every step. Random numbers belong to (rollout, step, position), noise included.

    A token of the rollout is scored in the step that last fixed it: since then no step fixed another token there or
    left the position to noise. That the token survived depends on later draws, so `selection_exact` is false.

    Memory: a step computes the logits of whole canvases, `block_size * vocabulary` floats a rollout (268 MB for 256
    positions of 262,144 tokens in float32); `max_rows` bounds the rollouts decoded at once. A rollout keeps the mean
    embeddings that conditioned each step which last fixed a token: `block_size * width` floats a step (2.9 MB for 256
    positions and a width of 2,816).

    Attributes:
        decoding: of kind "revise", with the policy's own canvas as block size.

    Raises:
        SamplingError: settings that cannot be carried out exactly.
    """

    decoding: Decoding

    def __post_init__(self) -> None:
        """Refuse what cannot be decoded."""
        check_decoding(self.decoding, "revise")

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
            policy: with canvas attention.
            prompt_ids_PC: int64 [P, C], left-padded.
            prompt_mask_PC: bool [P, C], true on real tokens.
            group_size: G.
            row_keys_B: int64 [P * G], see `randomness.row_keys`; row p * G + g is rollout g of prompt p.
            store_support: record the ids a truncated distribution could give.
            max_rows: rollouts decoded at once; results do not depend on it beyond float ties.

        Raises:
            SamplingError: the policy has another attention or canvas.
        """
        if policy.attention != "canvas":
            raise SamplingError(f"RevisingSampler needs a policy with canvas attention; this one is {policy.attention}")
        if policy.block_size != self.decoding.block_size:
            raise SamplingError(
                f"block_size {self.decoding.block_size} is not the policy's canvas, {policy.block_size}; a canvas is "
                "revised as a whole"
            )
        settings = WindowSettings(
            decoding=self.decoding,
            rule=check_decoding(self.decoding, "revise"),
            forbidden=forbidden_ids(policy),
            mask_token_id=policy.mask_token_id,
            store_support=store_support and is_truncated(self.decoding),
        )
        record = Record(row_keys_B.shape[0], self.decoding, policy, store_support=settings.store_support)
        events = _Events(row_keys_B.shape[0], self.decoding, policy)
        with decoding_mode(policy):
            for part in split_parts(prompt_ids_PC, prompt_mask_PC, group_size=group_size, max_rows=max_rows):
                self._decode(policy, settings, part, row_keys_B, record, events)
        trajectory = record.finish(prompt_ids_PC, prompt_mask_PC, group_size=group_size, rule=settings.rule)
        return dataclasses.replace(
            trajectory,
            selection_exact=False,
            steps_fixed=self.decoding.stop_entropy is None,
            revisions=events.finish(trajectory),
        )

    def _decode(
        self, policy: Policy, settings: WindowSettings, part: Part, row_keys_B: Tensor, record: Record, events: _Events
    ) -> None:
        width, length = self.decoding.block_size, self.decoding.length
        positions_L = torch.arange(length, device=part.rows_R.device)
        record.number_blocks(part.rows_R, positions_L // width)
        rows_R = part.rows_R
        clean_RC = part.prompt_ids_QC.repeat_interleave(part.group, dim=0)
        valid_RC = part.prompt_mask_QC.repeat_interleave(part.group, dim=0)
        for number in range(length // width):
            first_step_R = record.steps_taken(rows_R)
            positions_W = positions_L[number * width : (number + 1) * width]
            events.open(rows_R, number, first_step_R)
            window = _revise(
                _Reader(policy, clean_RC, valid_RC, width), settings,
                keys_R=row_keys_B[rows_R], positions_W=positions_W,
                first_step_R=first_step_R, vocabulary=policy.vocab_size, events=events, rows_R=rows_R,
            )  # fmt: skip
            record.write(rows_R, positions_W.expand_as(window.ids_RW), window)
            keep_R = ~ended(window, policy.eos_token_id)
            if not bool(keep_R.any()):
                return
            rows_R = rows_R[keep_R]
            clean_RC = torch.cat((clean_RC, window.ids_RW), dim=1)[keep_R]
            valid_RC = torch.cat((valid_RC, torch.ones_like(window.ids_RW, dtype=torch.bool)), dim=1)[keep_R]


def _revise(
    reader: _Reader,
    settings: WindowSettings,
    *,
    keys_R: Tensor,
    positions_W: Tensor,
    first_step_R: Tensor,
    vocabulary: int,
    events: _Events,
    rows_R: Tensor,
) -> Window:
    """Denoise one canvas of R rows; rows that stop early leave the batch.

    Args:
        reader: the model behind the rows' clean text.
        settings: rule and distribution.
        keys_R: int64 [R], see `randomness.row_keys`.
        positions_W: int64 [W], the canvas's positions in the completion.
        first_step_R: int64 [R], steps each row took before.
        vocabulary: noise is drawn from so many tokens.
        events: written to.
        rows_R: int64 [R], the rows' places in `events`.
    """
    masked_RW = torch.full((len(keys_R), len(positions_W)), settings.mask_token_id, device=keys_R.device)
    window = first_window(masked_RW, settings, first_step_R)
    standing_RW = torch.zeros_like(window.ids_RW, dtype=torch.bool)
    alive_A = torch.arange(len(keys_R), device=keys_R.device)
    canvas_AW = _noise(keys_R, first_step_R, positions_W, vocabulary)
    taken_R = torch.zeros_like(first_step_R)
    conditioning_AWH: Tensor | None = None
    kept = _Kept()
    likeliest_AW = torch.full_like(canvas_AW, -1)
    temperatures = canvas_temperatures(settings.decoding)
    counts = _counts(settings, len(positions_W), len(temperatures))
    for index, temperature in enumerate(temperatures):
        step_A = first_step_R[alive_A] + index
        scaled_AWV = reader.logits(canvas_AW, conditioning_AWH) / temperature
        uniforms_AW = uniforms(keys_R[alive_A], step_A, positions_W, _TOKEN_STREAM)
        draws = _draw(scaled_AWV, uniforms_AW, settings)
        ids_AW = draws.ids_N.view_as(canvas_AW)
        before_AW, likeliest_AW = likeliest_AW, scaled_AWV.argmax(-1)
        done_A = _finished(scaled_AWV, (likeliest_AW == before_AW).all(1), settings)
        done_A |= index + 1 == len(temperatures)
        fixed_AW = _sure(scaled_AWV, settings, counts[index]) | done_A[:, None]
        events.write(rows_R[alive_A], step_A, canvas_AW, fixed_AW)
        # What was fixed again with the same token stands since then, and keeps its state.
        changed_AW = fixed_AW & ~(standing_RW[alive_A] & (window.ids_RW[alive_A] == ids_AW))
        changed_RW = torch.zeros_like(standing_RW).index_copy(0, alive_A, changed_AW)
        window = write(window, changed_RW, draws.at(changed_AW.flatten().nonzero().squeeze(-1)), first_step_R + index)
        standing_RW[alive_A] = fixed_AW
        taken_R[alive_A] += 1
        last_fixed_RW = torch.where(standing_RW, window.step_RW - first_step_R[:, None], -1)
        kept.add(alive_A, index, conditioning_AWH, last_fixed_RW)
        if bool(done_A.all()):
            break
        keep = ~done_A
        canvas_AW = torch.where(fixed_AW, ids_AW, _noise(keys_R[alive_A], step_A + 1, positions_W, vocabulary))
        conditioning_AWH = reader.conditioning(scaled_AWV)
        if not bool(keep.all()):
            alive_A, canvas_AW, likeliest_AW = alive_A[keep], canvas_AW[keep], likeliest_AW[keep]
            conditioning_AWH = conditioning_AWH[keep]
            reader.keep(keep.nonzero().squeeze(-1))
    kept.hand_over(events, rows_R, first_step_R)
    return dataclasses.replace(window, taken_R=taken_R)


def _noise(keys_A: Tensor, step_A: Tensor, positions_W: Tensor, vocabulary: int) -> Tensor:
    """Tokens drawn uniformly from the whole vocabulary, as the published sampler does: int64 [A, W]."""
    return (uniforms(keys_A, step_A, positions_W, _NOISE_STREAM) * vocabulary).long().clamp_(max=vocabulary - 1)


def _counts(settings: WindowSettings, width: int, steps: int) -> list[int]:
    """Positions that each step fixes at least."""
    if not settings.rule.fixed_steps:
        return [1] * steps
    return torch.tensor(spread(width, steps)).cumsum(0).tolist()


def _draw(scaled_AWV: Tensor, uniforms_AW: Tensor, settings: WindowSettings) -> Draws:
    """A token at every position; the logits already have their temperature."""
    decoding = dataclasses.replace(settings.decoding, temperature=1.0 if settings.decoding.temperature > 0 else 0.0)
    return sample_tokens(
        scaled_AWV.flatten(0, 1), uniforms_AW.flatten(), decoding,
        forbidden=settings.forbidden, store_support=settings.store_support,
    )  # fmt: skip


def _sure(scaled_AWV: Tensor, settings: WindowSettings, count: int) -> Tensor:
    """Positions that the rule fixes, bool [A, W]; it looks at the distribution drawn from, untruncated."""
    shape = scaled_AWV.shape[:2]
    confidence_N = confidences(settings.rule, scaled_AWV.flatten(0, 1), None, settings.forbidden)
    everywhere_AW = torch.ones(shape, dtype=torch.bool, device=scaled_AWV.device)
    return choose(confidence_N.view(shape), everywhere_AW, count, settings.rule, settings.decoding.threshold)


def _finished(scaled_AWV: Tensor, stable_A: Tensor, settings: WindowSettings) -> Tensor:
    """Rows whose canvas is stable and sure of itself, bool [A]."""
    bound = settings.decoding.stop_entropy
    if bound is None:
        return torch.zeros_like(stable_A)
    entropy_N = -confidences(RULES["entropy"], scaled_AWV.flatten(0, 1), None, settings.forbidden)
    return stable_A & (entropy_N.view(scaled_AWV.shape[:2]).mean(1) < bound)


class _Reader:
    """The model behind the clean text of some rows; equal texts are encoded once."""

    def __init__(self, policy: Policy, clean_RC: Tensor, valid_RC: Tensor, width: int):
        empty_R0W = clean_RC.new_zeros(clean_RC.shape[0], 0, width)
        self._policy = policy
        module = policy.unwrapped
        assert isinstance(module, CanvasModule), "the sampler refuses other policies"
        self._module = module
        self._states: CanvasStates = canvas_behind(clean_RC, valid_RC, empty_R0W, select_RSW=empty_R0W.bool())
        kinds = distinct_rows(torch.cat((clean_RC, valid_RC.long()), dim=1))
        with policy.autocast():
            self._cache = self._module.encode(self._states.rows(kinds.rows_U))
        if kinds.rows_U.shape != kinds.kind_R.shape:
            self._cache.batch_select_indices(kinds.kind_R)

    def logits(self, canvas_AW: Tensor, conditioning_AWH: Tensor | None) -> Tensor:
        """Logits [A, W, V] of a state."""
        with self._policy.autocast():
            hidden_AWH = self._module.decode(self._states, canvas_AW, self._cache, conditioning_AWH)
            return self._module.head(hidden_AWH)

    def conditioning(self, scaled_AWV: Tensor) -> Tensor:
        """What the next state is conditioned on, [A, W, H]."""
        return self._module.conditioning(scaled_AWV)

    def keep(self, index_A: Tensor) -> None:
        """Go on with these rows only."""
        self._states = self._states.rows(index_A)
        self._cache.batch_select_indices(index_A)


class _Kept:
    """Conditioning of the steps that last fixed a token of one canvas; what later steps undid is dropped."""

    def __init__(self) -> None:
        self._entries: list[tuple[Tensor, int, Tensor | None]] = []

    def add(self, alive_A: Tensor, step: int, conditioning_AWH: Tensor | None, last_fixed_RW: Tensor) -> None:
        """One step of the rows still alive, and which step last fixed each position now (-1 = noise)."""
        entries = [*self._entries, (alive_A, step, conditioning_AWH)]
        self._entries = []
        for rows_M, at, conditioning_MWH in entries:
            needed_M = (last_fixed_RW[rows_M] == at).any(1)
            if bool(needed_M.any()):
                rest = None if conditioning_MWH is None else conditioning_MWH[needed_M]
                self._entries.append((rows_M[needed_M], at, rest))

    def hand_over(self, events: _Events, rows_R: Tensor, first_step_R: Tensor) -> None:
        """Put what is left under the rows' own numbers and steps."""
        for rows_M, step, conditioning_MWH in self._entries:
            events.keep(rows_R[rows_M], first_step_R[rows_M] + step, conditioning_MWH)


class _Events:
    """Buffers of `Revisions`, written to while decoding."""

    def __init__(self, rows: int, decoding: Decoding, policy: Policy):
        shape, device = (rows, decoding.steps, decoding.block_size), policy.device
        self._canvas_BSW = torch.full(shape, -1, dtype=torch.int32, device=device)
        self._fixed_BSW = torch.zeros(shape, dtype=torch.bool, device=device)
        self._first_step_BN = torch.full((rows, decoding.length // decoding.block_size), -1, device=device)
        self._kept: list[tuple[Tensor, Tensor, Tensor | None]] = []
        self._like: Tensor = policy.model.get_input_embeddings().weight  # type: ignore[assignment]

    def open(self, rows_R: Tensor, number: int, first_step_R: Tensor) -> None:
        """The rows begin a canvas."""
        self._first_step_BN[rows_R, number] = first_step_R

    def write(self, rows_A: Tensor, step_A: Tensor, canvas_AW: Tensor, fixed_AW: Tensor) -> None:
        """One step of some rows."""
        self._canvas_BSW[rows_A, step_A] = canvas_AW.int()
        self._fixed_BSW[rows_A, step_A] = fixed_AW

    def keep(self, rows_M: Tensor, step_M: Tensor, conditioning_MWH: Tensor | None) -> None:
        """What conditioned these rows' steps; None = nothing."""
        self._kept.append((rows_M, step_M, conditioning_MWH))

    def finish(self, trajectory: Trajectory) -> Revisions:
        """The record, without steps that no row took and conditioning that scores no token up to the end."""
        steps = int(trajectory.num_steps_B.max())
        step_BL = trajectory.unmask_step_BL.masked_fill(~trajectory.completion_mask_BL, -1)
        needed_BS = torch.zeros(len(step_BL), steps + 1, dtype=torch.bool, device=step_BL.device)
        needed_BS = needed_BS.scatter(1, step_BL + 1, True)[:, 1:]
        place_BS = needed_BS.long().cumsum(1) - 1
        most = max(1, int(needed_BS.sum(1).max()))
        kept_step_BK = torch.full((len(step_BL), most), -1, device=step_BL.device)
        row_M, step_M = needed_BS.nonzero(as_tuple=True)
        kept_step_BK[row_M, place_BS[row_M, step_M]] = step_M
        shape = (len(step_BL), most, self._canvas_BSW.shape[2], self._like.shape[1])
        conditioning_BKWH = torch.zeros(shape, dtype=self._like.dtype, device=step_BL.device)
        for rows_M, at_M, conditioning_MWH in self._kept:
            needed_M = needed_BS[rows_M, at_M]
            if conditioning_MWH is not None:
                rows, at = rows_M[needed_M], at_M[needed_M]
                conditioning_BKWH[rows, place_BS[rows, at]] = conditioning_MWH[needed_M]
        return Revisions(
            canvas_BSW=self._canvas_BSW[:, :steps].clone(),
            fixed_BSW=self._fixed_BSW[:, :steps].clone(),
            first_step_BN=self._first_step_BN,
            kept_step_BK=kept_step_BK,
            conditioning_BKWH=conditioning_BKWH,
        )
