"""A number for each denoising state, equal for equal canvases: which states of a group were shared."""

from __future__ import annotations

import torch
from torch import Tensor

from .randomness import row_keys
from .types import Trajectory


def state_keys(trajectory: Trajectory) -> Tensor:
    """The key of every state of every rollout.

    A key is the sum, modulo 2^64, of one hash for each revealed token's position and id (after A. Zobrist, 1970), so
    that two states of one prompt have one key iff the same ids stand at the same positions: whatever the order they
    were revealed in, and but for a collision, which 2^32 different states would make likely.

    Args:
        trajectory: B rollouts; prompts are not looked at.

    Returns:
        int64 [B, S + 1] with S the most steps of a rollout. Entry s is the key of state s, entry `num_steps` that of
        the finished rollout, which is repeated behind it; entry 0 is 0, the empty canvas.
    """
    ids_BL, step_BL = trajectory.completion_ids_BL, trajectory.unmask_step_BL
    position_BL = torch.arange(ids_BL.shape[1], device=ids_BL.device).expand_as(ids_BL)
    token_BL = row_keys(0, "canvas", 0, position_BL, ids_BL).masked_fill(step_BL < 0, 0)
    states = int(trajectory.num_steps_B.max()) if len(ids_BL) else 0
    added_BT = ids_BL.new_zeros(len(ids_BL), states + 1)
    # What state s reveals is seen from state s + 1 on.
    return added_BT.scatter_add_(1, (step_BL + 1).clamp(min=0), token_BL).cumsum(1)
