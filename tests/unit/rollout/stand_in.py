"""A policy whose logits are a fixed function of what each position may see: exact answers for sampler tests.

Position l's logits are W[position] . tanh(sum of E[position, id] over everything l may attend to), float64. So a wrong
mask, position, cache or canvas changes the numbers, and tiny vocabularies can be enumerated.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from steprs.policies import attention as masks
from steprs.policies.base import Policy, count_before
from steprs.rollout.prefix import PrefixCache

PAD, EOS, MASK = 0, 1, 2


class TablePolicy:
    """Duck type of `Policy`; records the ids of every forward in `seen`."""

    shifted = False

    def __init__(
        self,
        *,
        vocab_size: int = 7,
        attention: str = "bidirectional",
        block_size: int | None = None,
        prompt_block: str = "whole",
        eos_bias: float = 0.0,
        sharpness: float = 0.6,
        pad_is_eos: bool = False,
        seed: int = 0,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        width, places = 6, 96
        self._embed = torch.randn(places, vocab_size, width, generator=generator, dtype=torch.float64)
        self._head = sharpness * torch.randn(places, width, vocab_size, generator=generator, dtype=torch.float64)
        self._bias = torch.zeros(vocab_size, dtype=torch.float64)
        self._bias[EOS] = eos_bias
        # Special ids are the likeliest by far, so a sampler that does not remove them would pick them.
        self._bias[[MASK, PAD]] = 9.0
        if pad_is_eos:
            self._bias[PAD] = -float("inf")
        self.attention, self.block_size, self.prompt_block = attention, block_size, prompt_block
        self.mask_token_id, self.eos_token_id = MASK, EOS
        self.pad_token_id = EOS if pad_is_eos else PAD
        self.vocab_size = vocab_size
        self.device = torch.device("cpu")
        self.module = nn.Linear(1, 1)
        self.tokenizer: Any = None
        self.seen: list[Tensor] = []

    def block_layout(self, prompt_mask_BC: Tensor, length: int) -> Tensor:
        return Policy.block_layout(self, prompt_mask_BC, length)  # type: ignore[arg-type]

    def logits(
        self,
        ids_BT: Tensor,
        *,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        select_BT: Tensor | None = None,
        cache: PrefixCache | None = None,
    ) -> Tensor:
        assert not torch.is_grad_enabled() and not self.module.training
        self.seen.append(ids_BT.clone())
        if attention_mask is not None and attention_mask.dim() == 2:
            position_ids = count_before(attention_mask)
            attention_mask = masks.full_mask(attention_mask)
        assert attention_mask is not None and position_ids is not None
        position_ids = position_ids.expand_as(ids_BT)
        features = self._embed[position_ids, ids_BT]
        features = features if cache is None else cache.update(features[:, None], features[:, None], 0)[0][:, 0]
        seen_BTS = attention_mask[:, 0].expand(ids_BT.shape[0], -1, -1).double()
        hidden_BTH = torch.tanh(seen_BTS @ features)
        logits = torch.einsum("bth,bthv->btv", hidden_BTH, self._head[position_ids]) + self._bias
        return logits if select_BT is None else logits[select_BT]
