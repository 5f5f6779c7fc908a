"""LLaDA (S. Nie et al., "Large Language Diffusion Models", 2025): Llama computed under other tensor names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedConfig

from ..errors import PolicyError
from .family import STOCK, Family, KeyMap, refuse_values

KEYS = KeyMap(
    modules={
        "model.transformer.wte": "model.embed_tokens",
        "model.transformer.ln_f": "model.norm",
        "model.transformer.ff_out": "lm_head",
        "model.transformer.blocks.*.attn_norm": "model.layers.*.input_layernorm",
        "model.transformer.blocks.*.q_proj": "model.layers.*.self_attn.q_proj",
        "model.transformer.blocks.*.k_proj": "model.layers.*.self_attn.k_proj",
        "model.transformer.blocks.*.v_proj": "model.layers.*.self_attn.v_proj",
        "model.transformer.blocks.*.attn_out": "model.layers.*.self_attn.o_proj",
        "model.transformer.blocks.*.ff_norm": "model.layers.*.post_attention_layernorm",
        "model.transformer.blocks.*.ff_proj": "model.layers.*.mlp.gate_proj",
        "model.transformer.blocks.*.up_proj": "model.layers.*.mlp.up_proj",
        "model.transformer.blocks.*.ff_out": "model.layers.*.mlp.down_proj",
    }
)

# The published code has switches that no published checkpoint uses; Llama expresses these values only.
_EXPECTED = {
    "activation_type": "silu",
    "alibi": False,
    "attention_layer_norm": False,
    "bias_for_layer_norm": False,
    "block_group_size": 1,
    "block_type": "llama",
    "include_bias": False,
    "include_qkv_bias": False,
    "input_emb_norm": False,
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "multi_query_attention": False,
    "rope": True,
    "scale_logits": False,
}


def _stock_config(config: Mapping[str, Any]) -> PreTrainedConfig:
    refuse_values(config, _EXPECTED)
    lacking = [name for name in ("d_model", "n_heads", "n_layers", "vocab_size") if name not in config]
    if lacking:
        raise PolicyError(f"config.json lacks {', '.join(lacking)}")
    return STOCK["llama"](
        # Rows of the embedding beyond the vocabulary are there in the logits, too.
        vocab_size=config.get("embedding_size") or config["vocab_size"],
        hidden_size=config["d_model"],
        intermediate_size=config.get("mlp_hidden_size") or config.get("mlp_ratio", 4) * config["d_model"],
        num_hidden_layers=config["n_layers"],
        num_attention_heads=config["n_heads"],
        num_key_value_heads=config.get("n_kv_heads") or config["n_heads"],
        max_position_embeddings=config.get("max_sequence_length", 4096),
        rms_norm_eps=config.get("rms_norm_eps", 1e-5),
        rope_theta=config.get("rope_theta", 10000.0),
        attention_dropout=config.get("attention_dropout", 0.0),
        tie_word_embeddings=bool(config.get("weight_tying", False)),
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )


LLADA = Family(
    name="llada",
    model_types=("llada",),
    architectures=("LLaDAModelLM",),
    stock_config=_stock_config,
    keys=KEYS,
    mask_tokens=("<|mdm_mask|>",),
    decoding={"length": 128, "steps": 128, "block_size": 32},
)
