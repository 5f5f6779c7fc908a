"""SDAR (S. Cheng et al., "SDAR", 2025) and TraDo, made from it: Qwen3 with block-causal attention."""

from __future__ import annotations

from .family import Family, stock_config

SDAR = Family(
    name="sdar",
    model_types=("sdar",),
    architectures=("SDARForCausalLM",),
    stock_config=stock_config("qwen3"),
    attention="block_causal",
    prompt_block="aligned",
    block_size_fields=("block_size", "block_length"),
    default_block_size=4,
    mask_tokens=("<|MASK|>",),
    turn_ends=("<|im_end|>",),
    tokenizer_class="Qwen2Tokenizer",
    decoding={"length": 256, "steps": 256},
)
