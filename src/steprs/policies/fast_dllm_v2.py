"""Fast-dLLM v2 (C. Wu et al., 2025): Qwen2.5 with block-causal attention, whose head kept its shift."""

from __future__ import annotations

from .family import Family, stock_config

FAST_DLLM_V2 = Family(
    name="fast-dllm-v2",
    model_types=("Fast_dLLM_Qwen",),
    architectures=("Fast_dLLM_QwenForCausalLM",),
    stock_config=stock_config("qwen2"),
    attention="block_causal",
    shifted=True,
    prompt_block="aligned",
    block_size_fields=("bd_size",),
    default_block_size=32,
    mask_tokens=("|<MASK>|",),
    turn_ends=("<|im_end|>",),
    tokenizer_class="Qwen2Tokenizer",
    decoding={"length": 256, "steps": 256},
)
