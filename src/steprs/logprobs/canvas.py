"""Prompt and completion of every rollout side by side, annotated with what packing needs to know of each position.

`W` is the canvas axis, `W = C + L`; a position is addressed by its flat index `b * W + w`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..policies.base import Policy, count_before
from ..types import Trajectory
from .noise import Noise

VISIBLE, HIDDEN = -2, -1
"""Reveal codes of positions that no state changes; a code >= 0 is the state that predicts the position."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Canvas:
    """B canvases and the noise over them.

    Attributes:
        ids_BW: int64 final ids.
        reveal_BW: int64, the state that predicts the position, or VISIBLE or HIDDEN.
        block_BW: int64, the policy's attention block, increasing along the row; -1 on the prompt's left padding.
        position_BW: int64, real tokens before the position.
        scored_BW: bool, completion tokens to score.
        weight_B: float32 importance weight.
        context: C, where completions start.
        mask_token_id: what hidden positions show.
        cumulative: see `Noise`.
    """

    ids_BW: Tensor
    reveal_BW: Tensor
    block_BW: Tensor
    position_BW: Tensor
    scored_BW: Tensor
    weight_B: Tensor
    context: int
    mask_token_id: int
    cumulative: bool


def make_canvas(trajectory: Trajectory, policy: Policy, noise: Noise) -> Canvas:
    """Lay out all rollouts.

    Raises:
        ArgumentError: the trajectory was not decoded with the attention this policy has.
    """
    _check_kind(trajectory, policy)
    batch, length = trajectory.completion_ids_BL.shape
    real_BW = torch.cat(
        (trajectory.prompt_mask_BC, trajectory.prompt_mask_BC.new_ones(batch, length, dtype=torch.bool)), dim=1
    )
    block_BW = policy.block_layout(trajectory.prompt_mask_BC, length)
    prompt_BC = torch.full_like(trajectory.prompt_ids_BC, VISIBLE)
    if noise.hidden_prompt_BC is not None:
        prompt_BC = prompt_BC.masked_fill(noise.hidden_prompt_BC, HIDDEN)
    return Canvas(
        ids_BW=torch.cat((trajectory.prompt_ids_BC, trajectory.completion_ids_BL), dim=1),
        reveal_BW=torch.cat((prompt_BC, noise.state_BL), dim=1),
        block_BW=block_BW.masked_fill(~real_BW, -1),
        position_BW=count_before(real_BW),
        scored_BW=torch.cat((torch.zeros_like(trajectory.prompt_mask_BC), noise.scored_BL), dim=1),
        weight_B=noise.weight_B,
        context=trajectory.prompt_ids_BC.shape[1],
        mask_token_id=trajectory.mask_token_id,
        cumulative=noise.cumulative,
    )


def _check_kind(trajectory: Trajectory, policy: Policy) -> None:
    decoding = trajectory.decoding
    if policy.attention == "canvas" or decoding.kind == "revise":
        raise ArgumentError(
            "rollouts that revise their tokens have no masked states to score, so loss.logprobs must be 'trace', which "
            "reads the recorded ones with the canvas policy that decoded them"
        )
    expected = "block" if policy.attention == "block_causal" else "masked"
    if decoding.kind != expected:
        raise ArgumentError(
            f"the rollouts were decoded as {decoding.kind!r} but a {policy.attention} policy scores {expected!r} ones: "
            "the distribution scored would not be the one sampled. Score with the policy that decoded them"
        )
    if expected == "block" and decoding.block_size != policy.block_size:
        raise ArgumentError(
            f"the rollouts were decoded in blocks of {decoding.block_size} but the policy attends in blocks of "
            f"{policy.block_size}; the two must be equal"
        )
