"""LLaDA2.0's published layout, small: tensor shapes and config.json, stated apart from the code under test."""

from __future__ import annotations

WIDTH, INNER, EXPERT, EXPERTS, CHOSEN, GROUPS, KEPT_GROUPS = 32, 48, 16, 4, 2, 2, 1
HEADS, KV_HEADS, HEAD, LAYERS, BLOCK = 4, 2, 8, 2, 4  # the first layer has no experts
SCALE, THETA = 2.5, 6e5

CONFIG = {
    "architectures": ["LLaDA2MoeModelLM"], "attention_dropout": 0.0,
    "auto_map": {"AutoModelForCausalLM": "modeling_llada2_moe.LLaDA2MoeModelLM"}, "block_size": BLOCK,
    "first_k_dense_replace": 1, "head_dim": HEAD, "hidden_act": "silu", "hidden_size": WIDTH, "initializer_range": 0.02,
    "intermediate_size": INNER, "max_position_embeddings": 4096, "model_type": "llada2_moe",
    "moe_intermediate_size": EXPERT, "moe_router_enable_expert_bias": True, "n_group": GROUPS, "norm_head": False,
    "norm_topk_prob": True, "num_attention_heads": HEADS, "num_experts": EXPERTS, "num_experts_per_tok": CHOSEN,
    "num_hidden_layers": LAYERS, "num_key_value_heads": KV_HEADS, "num_shared_experts": 1, "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 600000, "routed_scaling_factor": SCALE,
    "router_dtype": "fp32", "score_function": "sigmoid", "tie_word_embeddings": False, "topk_group": KEPT_GROUPS,
    "use_bias": False, "use_qk_norm": True, "use_qkv_bias": False,
}  # fmt: skip


def shapes(rows: int) -> dict[str, tuple[int, ...]]:
    """Tensor name -> shape."""
    found: dict[str, tuple[int, ...]] = {"model.word_embeddings.weight": (rows, WIDTH)}
    for layer in range(LAYERS):
        front = f"model.layers.{layer}."
        found |= {
            front + "input_layernorm.weight": (WIDTH,), front + "post_attention_layernorm.weight": (WIDTH,),
            front + "attention.query_key_value.weight": ((HEADS + 2 * KV_HEADS) * HEAD, WIDTH),
            front + "attention.dense.weight": (WIDTH, HEADS * HEAD),
            front + "attention.query_layernorm.weight": (HEAD,), front + "attention.key_layernorm.weight": (HEAD,),
        }  # fmt: skip
        parts = {"mlp.": INNER}
        if layer > 0:
            parts = {"mlp.shared_experts.": EXPERT} | {f"mlp.experts.{number}.": EXPERT for number in range(EXPERTS)}
            found |= {front + "mlp.gate.weight": (EXPERTS, WIDTH), front + "mlp.gate.expert_bias": (EXPERTS,)}
        for part, inner in parts.items():
            found |= {
                f"{front}{part}gate_proj.weight": (inner, WIDTH), f"{front}{part}up_proj.weight": (inner, WIDTH),
                f"{front}{part}down_proj.weight": (WIDTH, inner),
            }  # fmt: skip
    return found | {"model.norm.weight": (WIDTH,), "lm_head.weight": (rows, WIDTH)}
