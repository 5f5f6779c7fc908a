"""LLaDA2.0 (inclusionAI, "LLaDA2.0", 2025): block diffusion over GLM-4-MoE's network under other tensor names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import Glm4MoeConfig, PreTrainedConfig

from ..errors import PolicyError
from .family import Family, KeyMap, refuse_values

_LAYER = "model.layers.*."
_SAME = (
    "model.norm", "lm_head", _LAYER + "input_layernorm", _LAYER + "post_attention_layernorm", _LAYER + "mlp.gate",
    *(_LAYER + f"mlp.{part}_proj" for part in ("gate", "up", "down")),
    *(_LAYER + f"mlp.shared_experts.{part}_proj" for part in ("gate", "up", "down")),
)  # fmt: skip
KEYS = KeyMap(
    modules={name: name for name in _SAME}
    | {
        "model.word_embeddings": "model.embed_tokens",
        _LAYER + "attention.dense": _LAYER + "self_attn.o_proj",
        _LAYER + "attention.query_layernorm": _LAYER + "self_attn.q_norm",
        _LAYER + "attention.key_layernorm": _LAYER + "self_attn.k_norm",
        _LAYER + "mlp.gate.expert_bias": _LAYER + "mlp.gate.e_score_correction_bias",
    },
    joined={_LAYER + "attention.query_key_value": tuple(_LAYER + f"self_attn.{part}_proj" for part in "qkv")},
    experts=True,
)

# Published name -> the stock configuration's.
_FIELDS = {
    name: name
    for name in (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "hidden_act", "max_position_embeddings", "initializer_range", "rms_norm_eps",
        "attention_dropout", "tie_word_embeddings", "moe_intermediate_size", "num_experts_per_tok", "n_group",
        "topk_group", "first_k_dense_replace", "routed_scaling_factor",
    )
} | {"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"}  # fmt: skip
_NEEDED = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim",
    "moe_intermediate_size", "num_experts", "num_experts_per_tok", "num_shared_experts", "first_k_dense_replace",
    "n_group", "topk_group", "routed_scaling_factor", "rope_theta",
)  # fmt: skip
_EXPECTED = {
    "moe_router_enable_expert_bias": True,
    "norm_head": False,
    "norm_topk_prob": True,
    "rope_scaling": None,
    "score_function": "sigmoid",
    "sliding_window": None,
    "tie_word_embeddings": False,
    "use_bias": False,
    "use_linear_attention": False,
    "use_qk_norm": True,
    "use_qkv_bias": False,
    "use_sliding_window": False,
}


def _stock_config(config: Mapping[str, Any]) -> PreTrainedConfig:
    lacking = [name for name in _NEEDED if config.get(name) is None]
    if lacking:
        raise PolicyError(f"config.json lacks {', '.join(lacking)}")
    refuse_values(config, _EXPECTED)
    if config["num_shared_experts"] < 1 or config["num_experts_per_tok"] < 2:
        raise PolicyError("config.json has no shared expert or sends a token to a single one, which are not read")
    fields = {stock: config[name] for name, stock in _FIELDS.items() if config.get(name) is not None}
    return Glm4MoeConfig(
        **fields,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": config["rope_theta"],
            "partial_rotary_factor": config.get("partial_rotary_factor", 1.0),
        },
        use_qk_norm=True,
        norm_topk_prob=True,
        num_mtp_layers=0,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )


LLADA2 = Family(
    name="llada2",
    model_types=("llada2_moe",),
    architectures=("LLaDA2MoeModelLM",),
    stock_config=_stock_config,
    keys=KEYS,
    attention="block_causal",
    prompt_block="aligned",
    block_size_fields=("block_size", "block_length"),
    default_block_size=32,
    mask_tokens=("<|mask|>",),
    turn_ends=("<|role_end|>",),
    decoding={"length": 256, "steps": 256},
)
