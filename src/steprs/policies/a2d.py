"""Causal Llama, Qwen2 and Qwen3 checkpoints made into diffusion models ("autoregressive to diffusion").

`steprs convert` makes one from any such checkpoint. Published ones are known by their `model_type`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedConfig

from ..errors import PolicyError
from .family import STOCK, Family, stock_config

CAUSAL = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
PUBLISHED = ("A2DLlamaLMHeadModel", "A2DQwen2LMHeadModel", "A2DQwen3LMHeadModel")


def _stock_config(config: Mapping[str, Any]) -> PreTrainedConfig:
    kind = str(config.get("model_type", "")).removeprefix("a2d-")
    if kind not in STOCK:
        raise PolicyError(
            f"config.json says model_type {config.get('model_type')!r}; converted checkpoints are {', '.join(STOCK)}"
        )
    return stock_config(kind)(config)


A2D = Family(
    name="a2d",
    model_types=("a2d-llama", "a2d-qwen2", "a2d-qwen3"),
    architectures=PUBLISHED + CAUSAL,
    stock_config=_stock_config,
    attention="by block size",
    mask_tokens=("<|mask|>",),
    turn_ends=("<|im_end|>", "<|eot_id|>"),
    tokenizer_class="Qwen2Tokenizer",
)
