"""Driving a model that encodes clean text and denoises a canvas behind it: transformers' class of DiffusionGemma.

The encoder fills a key-value cache; the decoder reads it, and the canvas, which sees all of itself. What the decoder
said in one state conditions the next (self-conditioning): its logits, divided by the state's temperature, give each
position a mean embedding that is mixed into its input. No gradient flows through that conditioning, as none did when
such models were trained (T. Chen et al., "Analog Bits", 2022, section 3.2).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from .attention import to_backend, windowed
from .base import PolicyModule, Reduce
from .chain import Chain


class CanvasModule(PolicyModule):
    """Encoder, states of the canvas in order, selection, head: the forward that DDP wraps.

    A whole chain is one call, so that processes of a run which have chains of other lengths still meet in it.
    """

    def forward(self, chain: Chain, reduce: Reduce | None = None) -> Tensor:  # type: ignore[override] - other inputs
        """Logits of the selected positions, state after state, row-major inside a state: [N, V] in float32.

        Args:
            chain: what to read. States without a selected position are read without a graph.
            reduce: its result is returned for the head and the selected hidden states [N, H].
        """
        cache = self.encode(chain.clean_ids_RC, chain.clean_mask_R1CC, chain.clean_position_RC)
        wanted_S = chain.select_RSW.any(-1).any(0).tolist()
        conditioning_RWV: Tensor | None = None
        hidden: list[Tensor] = []
        for state, temperature in enumerate(chain.temperature_S):
            # The last state is read with a graph even if it scores nothing: its empty sum must reach every weight.
            last = state + 1 == len(chain.temperature_S)
            with torch.set_grad_enabled(torch.is_grad_enabled() and (wanted_S[state] or last)):
                hidden_RWH = self.decode(chain, chain.canvas_RSW[:, state], cache, conditioning_RWV)
            hidden.append(hidden_RWH[chain.select_RSW[:, state]])
            if not last:
                conditioning_RWV = self.conditioning(hidden_RWH, temperature)
        hidden_NH = torch.cat(hidden)
        return self.head(hidden_NH) if reduce is None else reduce(self.head, hidden_NH)

    def encode(self, ids_RC: Tensor, mask_R1CC: Tensor, position_RC: Tensor) -> DynamicCache:
        """Keys and values of clean text, uncut: what a window hides is left to the decoder's mask."""
        first_RC = position_RC - (self._window - 1)
        outputs = self._parts.encoder.language_model(
            input_ids=ids_RC,
            attention_mask=self._both(mask_R1CC, windowed(mask_R1CC, first_RC, position_RC)),
            position_ids=position_RC,
            cache=DynamicCache(),
        )
        cache: DynamicCache = outputs.cache
        return cache

    def decode(
        self, chain: Chain, canvas_RW: Tensor, cache: DynamicCache, conditioning_RWV: Tensor | None
    ) -> Tensor:
        """Hidden states [R, W, H] of one state of the canvas; the cache stays as it is."""
        mask_R1WK = chain.canvas_mask_R1WK
        key_RK = torch.cat((chain.clean_position_RC, chain.position_RW), dim=1)
        # A window of n positions reaches n - 1 clean tokens back from where the canvas begins, and all of the canvas.
        first_RW = chain.opening_RW - (self._window - 1)
        outputs = self._parts.decoder(
            decoder_input_ids=canvas_RW,
            cache=cache,
            self_conditioning_logits=conditioning_RWV,
            decoder_attention_mask=self._both(mask_R1WK, windowed(mask_R1WK, first_RW, key_RK)),
            decoder_position_ids=chain.position_RW,
        )
        hidden_RWH: Tensor = outputs.last_hidden_state
        return hidden_RWH

    @torch.no_grad()
    def conditioning(self, hidden_RWH: Tensor, temperature: float) -> Tensor:
        """What a state's hidden states say to the next one: [R, W, V] in the weights' format."""
        return (self.head(hidden_RWH) / temperature).to(self.model.get_output_embeddings().weight.dtype)

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
