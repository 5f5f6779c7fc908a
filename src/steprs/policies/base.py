"""What the rest of the project knows about a model: ids and a mask in, logits out.

A policy is a `transformers` causal language model driven with explicit attention masks, its tokenizer, and the
few facts that decide how it is decoded (who sees whom, block size, special tokens). Rows of logits score the
token AT their position; a family whose head predicts the next token shifts inside its own module.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from ..errors import ArgumentError, PolicyError
from . import attention as masks
from .attention import count_before
from .canvas_states import CanvasStates, canvas_of_blocks
from .saving import MANIFEST, Published, save_policy
from .shift import rows_before

__all__ = ["MANIFEST", "Policy", "PolicyModule", "Published", "Reduce", "count_before"]

Reduce = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]
"""`reduce(head, hidden_NH)`: takes the head's place inside the forward, so that logits can be used up in chunks."""


class PolicyModule(nn.Module):
    """Backbone, then selection, then head: the forward that DDP and FSDP wrap.

    Hidden states are gathered before the head, so that the [B, T, V] tensor never exists when few positions count.
    """

    def __init__(self, causal_lm: nn.Module, *, whole: bool = False):
        """`whole`: code of another shape; its forward gives logits, and no head can be told apart."""
        super().__init__()
        self.causal_lm = causal_lm
        self.whole = whole

    @property
    def model(self) -> PreTrainedModel:
        """The transformers model, inside its adapters if it has any."""
        inner: Any = self.causal_lm
        return inner.get_base_model() if hasattr(inner, "get_base_model") else inner

    def forward(
        self,
        ids_BT: Tensor,
        mask: Any,
        position_ids_BT: Tensor,
        select: Tensor | None,
        cache: DynamicCache | None,
        reduce: Reduce | None = None,
    ) -> Tensor:
        """Logits in at least float32 of all rows [B, T, V], or of those that `select` names.

        Args:
            ids_BT: int64.
            mask: in the form of the backend.
            position_ids_BT: int64.
            select: bool [B, T], giving [N, V] in row-major order; or int64 of any shape, flat indices `b * T + t`.
            cache: of a block-causal prefix.
            reduce: its result is returned for the head and those hidden rows.
        """
        model: Any = self.model
        inputs = {"input_ids": ids_BT, "attention_mask": mask, "position_ids": position_ids_BT}
        if self.whole:
            hidden_BTH = model(**inputs).logits
        else:
            hidden_BTH = model.get_decoder()(**inputs, cache=cache, use_cache=cache is not None).last_hidden_state
        hidden = hidden_BTH
        if select is not None:
            hidden = hidden_BTH[select] if select.dtype == torch.bool else hidden_BTH.flatten(0, 1)[select]
        return self.head(hidden) if reduce is None else reduce(self.head, hidden)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states, in at least float32."""
        logits: Tensor = hidden if self.whole else self.model.get_output_embeddings()(hidden)
        return logits if logits.dtype == torch.float64 else logits.float()


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """A diffusion language model and how it wants to be driven.

    Attributes:
        module: holds the weights (float32 masters); possibly wrapped by a parallel engine.
        tokenizer: pads on the left.
        family: the key of `loading.FAMILIES` that made it.
        attention: "bidirectional" (everybody sees everybody), "block_causal", or "canvas": every block is a canvas
            that sees all of itself and the encoded text before it, and whose tokens are revised.
        block_size: positions decoded together; None when the family fixes none.
        prompt_block: "whole": the prompt is block 0 and completion blocks start after it; "aligned": blocks are
            counted from the first real token.
        shifted: the head predicts the next token, so a position is scored by the row before it (`shift`).
        decoding_defaults: what the checkpoint was made for (`length`, `steps`, ...).
        compute_dtype: float32, or bfloat16 for autocast forwards over float32 weights.
        published: of the folder it was loaded from; None for one made from nothing.
    """

    module: nn.Module
    tokenizer: PreTrainedTokenizerBase
    family: str
    attention: Literal["bidirectional", "block_causal", "canvas"]
    mask_token_id: int
    eos_token_id: int
    pad_token_id: int
    vocab_size: int
    block_size: int | None = None
    prompt_block: Literal["whole", "aligned"] = "whole"
    shifted: bool = False
    decoding_defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    compute_dtype: torch.dtype = torch.float32
    published: Published | None = None

    def logits(
        self,
        ids_BT: Tensor,
        *,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        select_BT: Tensor | None = None,
        cache: DynamicCache | None = None,
        block_BT: Tensor | None = None,
        reduce: Reduce | None = None,
    ) -> Tensor:
        """Scores of every token of the vocabulary AT each position (or each selected one).

        Args:
            ids_BT: int64 [B, T]. With a cache these are appended to it.
            attention_mask: None: the family's own mask over all tokens. Bool [B, T], true on real tokens: the
                family's own mask without the rest. Bool [B, 1, T, S], true = may attend: used as given. With a
                cache only None (everything cached and everything new is seen) or 4-D with S = cached + T.
            position_ids: int64 [B, T]; by default the number of real tokens before the position.
            select_BT: bool [B, T]; only these positions reach the head.
            cache: from `new_cache`.
            block_BT: from `block_layout`, for the family's own mask of a block-causal policy. Without it the
                last `decoding_defaults["length"]` positions are taken for the completion. With "canvas" attention
                each block is taken as a canvas in its first state, behind the encoded blocks before it; neither a
                4-D mask nor a cache is understood then.
            reduce: called as `reduce(head, hidden_NH)` in the head's place; its result is returned as it is.

        Returns:
            [B, T, V], or [N, V] for the N true entries of `select_BT` in row-major order; float32, or float64 for a
            float64 model.

        Raises:
            ArgumentError: a mask that is not boolean or has a shape that fits nothing above.
        """
        if self.attention == "canvas":
            if cache is not None or (attention_mask is not None and attention_mask.dim() != 2):
                raise ArgumentError("a canvas policy takes attention_mask as None or bool [B, T], and no cache")
            valid_BT = torch.ones_like(ids_BT, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
            block_BT = self._last_blocks(valid_BT) if block_BT is None else block_BT
            states = canvas_of_blocks(ids_BT, valid_BT, block_BT, position_BT=position_ids, select_BT=select_BT)
            logits_NV = self.read_canvas(states, reduce)
            return logits_NV if select_BT is not None else logits_NV.unflatten(0, ids_BT.shape)
        mask_B1TS, default_positions_BT = self._mask_and_positions(ids_BT, attention_mask, block_BT, cache)
        positions_BT = default_positions_BT if position_ids is None else position_ids
        implementation = self.model.config._attn_implementation
        if implementation == "flex_attention" and ids_BT.device.type != "cuda":
            raise PolicyError("flex_attention runs on CUDA only here; use attention='eager' or 'sdpa' on this device")
        select = rows_before(mask_B1TS, positions_BT, select_BT) if self.shifted else select_BT
        with self.autocast():
            mask = masks.to_backend(mask_B1TS, implementation, self.compute_dtype)
            return self.module(ids_BT, mask, positions_BT, select, cache, reduce)

    def read_canvas(self, states: CanvasStates, reduce: Reduce | None = None) -> Tensor:
        """Logits [N, V] of a canvas policy at the selected positions of canvas states, see `CanvasModule`."""
        implementation = self.model.config.get_text_config()._attn_implementation
        if implementation == "flex_attention":
            raise PolicyError("a canvas policy runs with attention='eager' or 'sdpa'")
        with self.autocast():
            logits: Tensor = self.module(states, reduce)
            return logits

    def _mask_and_positions(
        self, ids_BT: Tensor, attention_mask: Tensor | None, block_BT: Tensor | None, cache: DynamicCache | None
    ) -> tuple[Tensor, Tensor]:
        """Bool [B, 1, T, S] and the default position ids [B, T]."""
        batch, length = ids_BT.shape
        past = 0 if cache is None else cache.get_seq_length()
        ramp_BT = torch.arange(past, past + length, device=ids_BT.device).expand(batch, length)
        if attention_mask is not None and attention_mask.dim() == 4:
            if attention_mask.shape[-2:] != (length, past + length):
                raise ArgumentError(
                    f"attention_mask has shape {tuple(attention_mask.shape)}; {length} new and {past} cached positions "
                    f"need [B, 1, {length}, {past + length}]"
                )
            return attention_mask, ramp_BT
        if cache is not None:
            if attention_mask is not None:
                raise ArgumentError("with a cache give attention_mask as None or bool [B, 1, T, cached + T]")
            return torch.ones(batch, 1, length, past + length, dtype=torch.bool, device=ids_BT.device), ramp_BT
        valid_BT = torch.ones_like(ids_BT, dtype=torch.bool) if attention_mask is None else attention_mask
        if valid_BT.shape != ids_BT.shape:
            raise ArgumentError(f"attention_mask has shape {tuple(valid_BT.shape)} for ids {tuple(ids_BT.shape)}")
        valid_BT = valid_BT.bool()
        return self.own_mask(valid_BT, block_BT), count_before(valid_BT)

    def own_mask(self, valid_BT: Tensor, block_BT: Tensor | None = None) -> Tensor:
        """Who sees whom when nothing else is asked for: bool [B, 1, T, T]."""
        if self.attention == "bidirectional":
            return masks.full_mask(valid_BT)
        return masks.block_causal_mask(self._last_blocks(valid_BT) if block_BT is None else block_BT, valid_BT)

    def _last_blocks(self, valid_BT: Tensor) -> Tensor:
        """Blocks of rows whose last positions are a completion of the checkpoint's own length."""
        length = min(self._completion_length(), valid_BT.shape[1])
        return self.block_layout(valid_BT[:, : valid_BT.shape[1] - length], length)

    def _completion_length(self) -> int:
        if self.prompt_block == "aligned":
            return 0
        length = self.decoding_defaults.get("length")
        if length is None:
            raise ArgumentError(
                "this policy's blocks start after the prompt, and its checkpoint names no completion length: pass "
                "block_BT=policy.block_layout(prompt_mask, length) or a 4-D attention_mask"
            )
        return int(length)

    def block_layout(self, prompt_mask_BC: Tensor, length: int) -> Tensor:
        """Block index of every position of prompt and completion.

        Args:
            prompt_mask_BC: bool [B, C], false on padding.
            length: L, completion positions.

        Returns:
            int64 [B, C + L]; the value on padding means nothing. A bidirectional policy is one block, 0.
        """
        batch, context = prompt_mask_BC.shape
        device = prompt_mask_BC.device
        if self.attention == "bidirectional" or self.block_size is None:
            return torch.zeros(batch, context + length, dtype=torch.int64, device=device)
        valid_BT = torch.cat((prompt_mask_BC.bool(), prompt_mask_BC.new_ones(batch, length, dtype=torch.bool)), dim=1)
        if self.prompt_block == "aligned":
            return count_before(valid_BT) // self.block_size
        completion_L = 1 + torch.arange(length, device=device) // self.block_size
        prompt_BC = torch.zeros(batch, context, dtype=torch.int64, device=device)
        return torch.cat((prompt_BC, completion_L.expand(batch, length)), dim=1)

    def new_cache(self) -> DynamicCache:
        """An empty key-value cache; `crop` takes negative counts, `batch_repeat_interleave` copies rows."""
        return DynamicCache(config=self.model.config)

    @property
    def unwrapped(self) -> PolicyModule:
        """`module` without the wrappers of a parallel engine."""
        module: Any = self.module
        while not isinstance(module, PolicyModule):
            module = module.module
        return module

    @property
    def model(self) -> PreTrainedModel:
        """The transformers model with its head."""
        return self.unwrapped.model

    @property
    def backbone(self) -> nn.Module:
        """The transformers model without its head."""
        decoder: nn.Module = self.model.get_decoder()
        return decoder

    @property
    def has_adapters(self) -> bool:
        """Only low-rank adapters are trained; the weights around them are frozen."""
        return hasattr(self.unwrapped.causal_lm, "disable_adapter")

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.module.parameters()).device

    def with_module(self, module: nn.Module) -> Policy:
        """The same policy around a wrapped (or other) module."""
        return dataclasses.replace(self, module=module)

    def train(self, mode: bool = True) -> Policy:
        """Switch dropout and gradient checkpointing on or off, in place."""
        self.module.train(mode)
        return self

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Parameters that training moves, with names that do not depend on a parallel engine's wrapper."""
        return [(name, weight) for name, weight in self.unwrapped.named_parameters() if weight.requires_grad]

    def parameters(self) -> list[nn.Parameter]:
        """Parameters that training moves: all of them, or the adapters' only."""
        return [weight for _, weight in self.named_parameters()]

    @contextlib.contextmanager
    def no_adapter(self) -> Iterator[None]:
        """The reference policy of an adapted model: the same weights with the adapters switched off.

        Raises:
            PolicyError: there are no adapters, so the weights inside would be the trained ones.
        """
        inner: Any = self.unwrapped.causal_lm
        if not hasattr(inner, "disable_adapter"):
            raise PolicyError("this policy has no adapters to switch off; load a second copy as the reference")
        with inner.disable_adapter():
            yield

    def save(self, folder: str | Path, *, merge: bool = False, dtype: torch.dtype | None = None) -> Path:
        """Write the family's published layout, with `steprs.json` beside it; see `saving.save_policy`."""
        return save_policy(self, folder, merge=merge, dtype=dtype)

    def manifest(self) -> dict[str, Any]:
        """What `steprs.json` says: everything about the policy that weights and tokenizer do not."""
        return {
            "format": 1,
            "family": self.family,
            "attention": self.attention,
            "block_size": self.block_size,
            "prompt_block": self.prompt_block,
            "shifted": self.shifted,
            "mask_token_id": self.mask_token_id,
            "eos_token_id": self.eos_token_id,
            "pad_token_id": self.pad_token_id,
            "decoding": dict(self.decoding_defaults),
        }

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The number format that forwards compute in."""
        if self.compute_dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.compute_dtype)
