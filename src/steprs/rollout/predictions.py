"""Recording what a sampler's own logits say about every position that is still open."""

from __future__ import annotations

import torch
from torch import Tensor

from .sampling import likeliest
from .window import LogitsOfWindow, WindowSettings


class Predictions:
    """A sampler's forward that notes the greedy completion of every canvas it is shown.

    The window is the whole completion, so a canvas with every open position filled is a completion.
    """

    def __init__(self, logits_of: LogitsOfWindow, settings: WindowSettings):
        """Nothing has been noted yet."""
        self._logits_of, self._settings = logits_of, settings
        self._steps: list[Tensor] = []

    def __call__(self, ids_RW: Tensor, select_RW: Tensor) -> Tensor:
        """Logits [N, V] as asked for; those of all open positions are computed."""
        open_RW = ids_RW == self._settings.mask_token_id
        logits_NV = self._logits_of(ids_RW, open_RW)
        filled_RW = ids_RW.masked_scatter(open_RW, likeliest(logits_NV, self._settings.forbidden))
        self._steps.append(filled_RW.masked_fill(~open_RW.any(1, keepdim=True), -1))
        return logits_NV if torch.equal(open_RW, select_RW) else logits_NV[select_RW[open_RW]]

    def of_states(self) -> Tensor:
        """Int64 [R, S, W], the greedy completion of each state; -1 in states that a row did not have."""
        return torch.stack(self._steps, dim=1)
