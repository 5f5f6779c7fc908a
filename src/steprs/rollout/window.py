"""Denoising one window of positions, the part that every sampler shares.

A window is what is decoded together: a block, or the whole completion. The sampler says how logits are computed;
everything that decides and draws happens here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from ..randomness import uniforms
from ..types import Decoding
from .sampling import Draws, pad_support, sample_tokens
from .unmasking import UnmaskingRule, choose, confidences

_TOKEN_STREAM, _ORDER_STREAM = 0, 1


class LogitsOfWindow(Protocol):
    """The sampler's forward."""

    def __call__(self, ids_RW: Tensor, select_RW: Tensor) -> Tensor:
        """Logits [N, V] at the true entries of `select_RW`, row-major, given the window's canvas."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowSettings:
    """What stays the same over all windows of a rollout."""

    decoding: Decoding
    rule: UnmaskingRule
    forbidden: tuple[int, ...]
    mask_token_id: int
    store_support: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """R rows of W positions, every open one revealed.

    Attributes:
        ids_RW: int64.
        step_RW: int64 step that revealed the position, numbered from the `first_step_R` given; -1 where the position
            was not open.
        logprobs_RW, entropies_RW: float32, see `Draws`.
        taken_R: int64, steps the row took.
        support_RWK: int64 padded with -1, or None.
    """

    ids_RW: Tensor
    step_RW: Tensor
    logprobs_RW: Tensor
    entropies_RW: Tensor
    taken_R: Tensor
    support_RWK: Tensor | None


def denoise(
    logits_of: LogitsOfWindow,
    settings: WindowSettings,
    *,
    keys_R: Tensor,
    positions_RW: Tensor,
    first_step_R: Tensor,
    counts_RK: Tensor,
    start_RW: Tensor,
    open_RW: Tensor,
) -> Window:
    """Reveal the masked positions of a window.

    Rows take their steps side by side; one that is complete waits for the others of its window, and nothing more is
    asked of `logits_of` for it.

    Args:
        logits_of: the forward.
        settings: rule and distribution.
        keys_R: int64 [R], see `randomness.row_keys`.
        positions_RW: int64, the window's positions in the completion (they key the random numbers).
        first_step_R: int64 [R], steps each row took before this window.
        counts_RK: int64, positions to reveal in each of at most K steps, 0 behind the row's last step; a dynamic rule
            takes at most as many steps as are not 0.
        start_RW: int64 ids that the window starts from, the mask token where it is open.
        open_RW: bool, the positions to reveal.
    """
    window = first_window(start_RW, settings, first_step_R)
    for index in range(counts_RK.shape[1]):
        step_R = first_step_R + index
        minimum_R = counts_RK[:, index]
        if not settings.rule.fixed_steps:
            left_R = (counts_RK[:, index:] > 0).sum(1).clamp(min=1)
            minimum_R = (open_RW.sum(1) + left_R - 1) // left_R
        reveal_RW, draws = _one_step(logits_of, settings, window, open_RW, keys_R, positions_RW, step_R, minimum_R)
        window = write(window, reveal_RW, draws, step_R)
        open_RW = open_RW & ~reveal_RW
        if not settings.rule.fixed_steps and not bool(open_RW.any()):
            break
    return window


def first_window(start_RW: Tensor, settings: WindowSettings, like_R: Tensor) -> Window:
    """Nothing revealed yet: a window of the ids that it starts from."""
    shape = start_RW.shape
    return Window(
        ids_RW=start_RW,
        step_RW=like_R.new_full(shape, -1),
        logprobs_RW=torch.zeros(shape, device=like_R.device),
        entropies_RW=torch.zeros(shape, device=like_R.device),
        taken_R=torch.zeros_like(like_R),
        support_RWK=like_R.new_full((*shape, 0), -1) if settings.store_support else None,
    )


def _one_step(
    logits_of: LogitsOfWindow,
    settings: WindowSettings,
    window: Window,
    open_RW: Tensor,
    keys_R: Tensor,
    positions_RW: Tensor,
    step_R: Tensor,
    minimum_R: Tensor,
) -> tuple[Tensor, Draws]:
    """Bool [R, W] of the positions revealed, and their draws in row-major order."""
    rule, threshold = settings.rule, settings.decoding.threshold
    uniforms_RW = uniforms(keys_R, step_R, positions_RW, _TOKEN_STREAM)

    def sample(logits_NV: Tensor, uniforms_N: Tensor) -> Draws:
        return sample_tokens(
            logits_NV,
            uniforms_N,
            settings.decoding,
            forbidden=settings.forbidden,
            store_support=settings.store_support,
        )

    if rule.order is not None:
        noise_RW = uniforms(keys_R, step_R, positions_RW, _ORDER_STREAM)
        reveal_RW = choose(rule.order(noise_RW, positions_RW), open_RW, minimum_R, rule, threshold)
        return reveal_RW, sample(logits_of(window.ids_RW, reveal_RW), uniforms_RW[reveal_RW])
    logits_NV = logits_of(window.ids_RW, open_RW)
    draws = sample(logits_NV, uniforms_RW[open_RW]) if rule.looks_at == "draws" else None
    confidence_N = confidences(rule, logits_NV, draws.ids_N if draws else None, settings.forbidden)
    confidence_RW = confidence_N.new_full(open_RW.shape, float("-inf")).masked_scatter(open_RW, confidence_N)
    reveal_RW = choose(confidence_RW, open_RW, minimum_R, rule, threshold)
    revealed_M = reveal_RW[open_RW].nonzero().squeeze(-1)
    if draws is not None:
        return reveal_RW, draws.at(revealed_M)
    return reveal_RW, sample(logits_NV[revealed_M], uniforms_RW[reveal_RW])


def write(window: Window, reveal_RW: Tensor, draws: Draws, step_R: Tensor) -> Window:
    """The window with the draws laid into it."""
    support_RWK = window.support_RWK
    if support_RWK is not None and draws.support_NK is not None:
        width = max(support_RWK.shape[-1], draws.support_NK.shape[-1])
        support_RWK = functional.pad(support_RWK, (0, width - support_RWK.shape[-1]), value=-1)
        support_RWK[reveal_RW] = pad_support(draws.support_NK, width)
    return Window(
        ids_RW=window.ids_RW.masked_scatter(reveal_RW, draws.ids_N),
        step_RW=torch.where(reveal_RW, step_R[:, None], window.step_RW),
        logprobs_RW=window.logprobs_RW.masked_scatter(reveal_RW, draws.logprobs_N),
        entropies_RW=window.entropies_RW.masked_scatter(reveal_RW, draws.entropies_N),
        taken_R=window.taken_R + reveal_RW.any(1).long(),
        support_RWK=support_RWK,
    )
