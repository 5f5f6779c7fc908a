"""LLaDA-MoE (F. Zhu et al., "LLaDA-MoE", 2025): LLaDA with experts, which is Qwen3-MoE with full attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedConfig, Qwen3MoeConfig

from ..errors import PolicyError
from .family import Family, KeyMap, refuse_values

_NEEDED = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_experts", "num_experts_per_tok",
    "expert_intermediate_size",
)  # fmt: skip
_COPIED = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_act",
    "max_position_embeddings", "initializer_range", "rms_norm_eps", "rope_theta", "rope_scaling", "attention_dropout",
    "tie_word_embeddings", "num_experts", "num_experts_per_tok",
)  # fmt: skip
# Switches of the published code that the published checkpoints leave as here.
_EXPECTED = {
    "attention_bias": False,
    "clip_qkv": None,
    "moe_router_enable_expert_bias": False,
    "moe_router_score_function": "softmax",
    "partial_rotary_factor": 1,
    "qk_layernorm": True,
    "routed_scaling_factor": 1,
    "router_num_group": None,
    "router_topk_group": None,
    "shared_expert_intermediate_size": None,
}


def _stock_config(config: Mapping[str, Any]) -> PreTrainedConfig:
    lacking = [name for name in _NEEDED if config.get(name) is None]
    if lacking:
        raise PolicyError(f"config.json lacks {', '.join(lacking)}")
    refuse_values(config, _EXPECTED)
    frequency = config.get("moe_layer_freq")
    if frequency is not None and not all(every == 1 for every in frequency):
        raise PolicyError(f"config.json has layers without experts (moe_layer_freq {frequency}), which are not read")
    fields = {name: config[name] for name in _COPIED if config.get(name) is not None}
    return Qwen3MoeConfig(
        **fields,
        moe_intermediate_size=config["expert_intermediate_size"],
        # The published code never makes the chosen experts' shares sum to one, whatever its configuration says.
        norm_topk_prob=False,
        sliding_window=None,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )


LLADA_MOE = Family(
    name="llada-moe",
    # The published folders call themselves "llada" as the dense ones do; the architecture tells them apart.
    model_types=("llada", "llada_moe", "lladamoe"),
    architectures=("LLaDAMoEModelLM", "LLaDAMoEModel"),
    stock_config=_stock_config,
    keys=KeyMap(experts=True),
    mask_tokens=("<|mask|>", "<|mdm_mask|>"),
    turn_ends=("<|role_end|>",),
    decoding={"length": 128, "steps": 128, "block_size": 32},
)
