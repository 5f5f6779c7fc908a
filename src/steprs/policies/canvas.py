"""Driving a model that encodes clean text and denoises a canvas behind it: transformers' class of DiffusionGemma.

The encoder fills a key-value cache; the decoder reads it, and the canvas, which sees all of itself. What the decoder
said in one state conditions the next (self-conditioning): its distribution gives each position a mean embedding that
is mixed into its input. Here that mean embedding is part of a state: samplers record it and no gradient flows into it,
as none did when such models were trained (T. Chen et al., "Analog Bits", 2022, section 3.2).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from .attention import to_backend, windowed
from .base import PolicyModule, Reduce
from .canvas_states import CanvasStates


class CanvasModule(PolicyModule):
    """Encoder, states of the canvas one after the other, selection, head: the forward that DDP wraps."""

    def __init__(self, causal_lm: nn.Module):
        """The stock model; its decoder takes mean embeddings from here instead of logits."""
        super().__init__(causal_lm)
        self._expected: Tensor | None = None
        self._parts.decoder.self_conditioning.register_forward_pre_hook(self._put_expected)

    def forward(self, states: CanvasStates, reduce: Reduce | None = None) -> Tensor:  # type: ignore[override]
        """Logits of the selected positions, state after state, row-major inside a state: [N, V] in float32.

        Args:
            states: what to read.
            reduce: its result is returned for the head and the selected hidden states [N, H].
        """
        cache = self.encode(states)
        hidden = []
        for number in range(states.canvas_RSW.shape[1]):
            given = states.conditioning_RSWH
            conditioning_RWH = None if given is None else given[:, number]
            hidden_RWH = self.decode(states, states.canvas_RSW[:, number], cache, conditioning_RWH)
            hidden.append(hidden_RWH[states.select_RSW[:, number]])
        hidden_NH = torch.cat(hidden)
        return self.head(hidden_NH) if reduce is None else reduce(self.head, hidden_NH)

    def encode(self, states: CanvasStates) -> DynamicCache:
        """Keys and values of the clean text, uncut: what a window hides is left to the decoder's mask."""
        mask_R1CC, position_RC = states.clean_mask_R1CC, states.clean_position_RC
        first_RC = position_RC - (self._window - 1)
        outputs = self._parts.encoder.language_model(
            input_ids=states.clean_ids_RC,
            attention_mask=self._both(mask_R1CC, windowed(mask_R1CC, first_RC, position_RC)),
            position_ids=position_RC,
            cache=DynamicCache(),
        )
        cache: DynamicCache = outputs.cache
        return cache

    def decode(
        self, states: CanvasStates, canvas_RW: Tensor, cache: DynamicCache, conditioning_RWH: Tensor | None
    ) -> Tensor:
        """Hidden states [R, W, H] of one state of the canvas; the cache stays as it is."""
        mask_R1WK = states.canvas_mask_R1WK
        key_RK = torch.cat((states.clean_position_RC, states.position_RW), dim=1)
        # A window of n positions reaches n - 1 clean tokens back from where the canvas begins, and all of the canvas.
        first_RW = states.opening_RW - (self._window - 1)
        self._expected = conditioning_RWH
        try:
            outputs = self._parts.decoder(
                decoder_input_ids=canvas_RW,
                cache=cache,
                decoder_attention_mask=self._both(mask_R1WK, windowed(mask_R1WK, first_RW, key_RK)),
                decoder_position_ids=states.position_RW,
            )
        finally:
            self._expected = None
        hidden_RWH: Tensor = outputs.last_hidden_state
        return hidden_RWH

    @torch.no_grad()
    def conditioning(self, scaled_AWV: Tensor) -> Tensor:
        """Mean embeddings [A, W, H] under the softmax of logits that were divided by their temperature."""
        embedding = self._parts.decoder.embed_tokens
        rows = [
            scaled_WV.softmax(-1, dtype=torch.float32).to(embedding.weight.dtype) @ embedding.weight
            for scaled_WV in scaled_AWV
        ]
        return torch.stack(rows) * embedding.embed_scale.to(embedding.weight.dtype)

    def _put_expected(self, module: nn.Module, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """What is mixed into the canvas: the state's own, or what the stock forward made of logits it was given."""
        embedded, given = inputs
        return embedded, given if self._expected is None else self._expected.to(given.dtype)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states, softly capped, in float32."""
        cap = self.model.config.get_text_config().final_logit_softcapping
        logits = super().head(hidden)
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def _both(self, full_R1TS: Tensor, sliding_R1TS: Tensor) -> dict[str, Any]:
        """The masks of both kinds of layers, in the form of the backend."""
        implementation = str(self.model.config.get_text_config()._attn_implementation)
        kinds = {"full_attention": full_R1TS, "sliding_attention": sliding_R1TS}
        return {kind: to_backend(mask, implementation, torch.float32) for kind, mask in kinds.items()}

    @property
    def _parts(self) -> Any:
        return self.model.model

    @property
    def _window(self) -> int:
        return int(self.model.config.get_text_config().sliding_window)
