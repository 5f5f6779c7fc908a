"""Which states a scoring method looks at, and the random numbers it needs for that.

Every random choice is a hash of the rollout's own key, so that neither batch position nor the split into
micro-batches or processes can change it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ArgumentError


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise:
    """The noisy states of a scoring method: what each hides, and which tokens it predicts.

    In state s a revealed completion token is hidden iff its own state is >= s (`cumulative`, a denoising trajectory)
    or == s (otherwise, independent masks). A token is predicted in its own state, where it is always hidden.

    Attributes:
        state_BL: int64, the state that predicts the token; -1 = never revealed, hidden in every state.
        cumulative: whether later states see what earlier ones predicted.
        scored_BL: bool, the tokens to score; states without one are not computed.
        weight_B: float32 importance weight of the rollout's scored tokens.
        hidden_prompt_BC: bool, prompt tokens replaced by the mask token; None = none.
    """

    state_BL: Tensor
    cumulative: bool
    scored_BL: Tensor
    weight_B: Tensor
    hidden_prompt_BC: Tensor | None = None


def check_keys(keys_B: Tensor | None, rows: int, method: str) -> Tensor:
    """The keys, if there is one int64 a rollout.

    Raises:
        ArgumentError: they are missing or have another shape or type.
    """
    if keys_B is None or keys_B.shape != (rows,) or keys_B.dtype != torch.int64:
        given = "none" if keys_B is None else f"{keys_B.dtype} of shape {tuple(keys_B.shape)}"
        raise ArgumentError(
            f"{method} draws its noise from keys_B, one int64 for each of the {rows} rollouts; got {given}. "
            "Hash what names the rollout (seed, update, prompt, rollout), never its position in a batch"
        )
    return keys_B
