"""DiffusionGemma's published layout, small: tensor shapes and config.json, stated apart from the code under test."""

from __future__ import annotations

WIDTH, INNER, EXPERT, EXPERTS, CHOSEN = 32, 48, 16, 4, 2
HEADS, KV_HEADS, HEAD = 4, 2, 8  # of sliding layers
GLOBAL_KV_HEADS, GLOBAL_HEAD = 1, 16  # of full layers, whose values are their keys
WINDOW, CANVAS, VISION = 6, 4, 16
KINDS = ("sliding_attention", "full_attention")
PREFIX = "model.decoder."

CONFIG = {
    "architectures": ["DiffusionGemmaForBlockDiffusion"], "boi_token_id": 255999, "canvas_length": CANVAS,
    "dtype": "bfloat16", "eoi_token_id": 258882, "image_token_id": 258880, "initializer_range": 0.02,
    "model_type": "diffusion_gemma", "tie_word_embeddings": True, "transformers_version": "5.10.0",
    "use_bidirectional_attention": "vision",
    "text_config": {
        "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 2, "eos_token_id": 1,
        "final_logit_softcapping": 30.0, "global_head_dim": GLOBAL_HEAD, "head_dim": HEAD,
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size": WIDTH, "intermediate_size": INNER,
        "layer_types": list(KINDS), "max_position_embeddings": 4096, "model_type": "diffusion_gemma_text",
        "moe_intermediate_size": EXPERT, "num_attention_heads": HEADS, "num_experts": EXPERTS,
        "num_global_key_value_heads": GLOBAL_KV_HEADS, "num_hidden_layers": len(KINDS),
        "num_key_value_heads": KV_HEADS, "pad_token_id": 0, "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
            "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
        },
        "sliding_window": WINDOW, "tie_word_embeddings": True, "top_k_experts": CHOSEN,
        "use_bidirectional_attention": "vision", "vocab_size": 64,
    },
    "vision_config": {
        "attention_dropout": 0.0, "head_dim": 8, "hidden_size": VISION, "intermediate_size": VISION,
        "model_type": "gemma4_vision", "num_attention_heads": 2, "num_hidden_layers": 1, "num_key_value_heads": 2,
        "patch_size": 4, "position_embedding_size": 16,
    },
}  # fmt: skip


def shapes(rows: int) -> dict[str, tuple[int, ...]]:
    """Tensor name -> shape: the decoder's tensors, which the encoder shares, and what only the encoder has."""
    found: dict[str, tuple[int, ...]] = {PREFIX + "embed_tokens.weight": (rows, WIDTH)}
    for layer, kind in enumerate(KINDS):
        full = kind == "full_attention"
        head, kv = (GLOBAL_HEAD, GLOBAL_KV_HEADS) if full else (HEAD, KV_HEADS)
        parts: dict[str, tuple[int, ...]] = {
            "self_attn.q_proj.weight": (HEADS * head, WIDTH), "self_attn.k_proj.weight": (kv * head, WIDTH),
            "self_attn.o_proj.weight": (WIDTH, HEADS * head), "self_attn.q_norm.weight": (head,),
            "self_attn.k_norm.weight": (head,), "mlp.gate_proj.weight": (INNER, WIDTH),
            "mlp.up_proj.weight": (INNER, WIDTH), "mlp.down_proj.weight": (WIDTH, INNER),
            "router.proj.weight": (EXPERTS, WIDTH), "router.scale": (WIDTH,), "router.per_expert_scale": (EXPERTS,),
            "experts.gate_up_proj": (EXPERTS, 2 * EXPERT, WIDTH), "experts.down_proj": (EXPERTS, WIDTH, EXPERT),
            "layer_scalar": (1,),
        }  # fmt: skip
        if not full:
            parts["self_attn.v_proj.weight"] = (kv * head, WIDTH)
        for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            parts[f"{norm}_layernorm.weight"] = (WIDTH,)
        for norm in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"):
            parts[f"{norm}.weight"] = (WIDTH,)
        found |= {f"{PREFIX}layers.{layer}.{name}": shape for name, shape in parts.items()}
        found[f"model.encoder.language_model.layers.{layer}.layer_scalar"] = (1,)
    found |= {
        PREFIX + "norm.weight": (WIDTH,), PREFIX + "self_conditioning.pre_norm.weight": (WIDTH,),
        PREFIX + "self_conditioning.gate_proj.weight": (INNER, WIDTH),
        PREFIX + "self_conditioning.up_proj.weight": (INNER, WIDTH),
        PREFIX + "self_conditioning.down_proj.weight": (WIDTH, INNER),
    }  # fmt: skip
    return found | _vision()


def is_frozen(name: str) -> bool:
    """What is carried along and never trained."""
    return name.startswith(("model.encoder.vision_tower.", "model.encoder.embed_vision.")) or "layer_scalar" in name


def _vision() -> dict[str, tuple[int, ...]]:
    layer = "model.encoder.vision_tower.encoder.layers.0."
    found: dict[str, tuple[int, ...]] = {
        "model.encoder.embed_vision.embedding_projection.weight": (WIDTH, VISION),
        "model.encoder.vision_tower.patch_embedder.input_proj.weight": (VISION, 48),
        "model.encoder.vision_tower.patch_embedder.position_embedding_table": (2, 16, VISION),
        layer + "self_attn.q_norm.weight": (8,),
        layer + "self_attn.k_norm.weight": (8,),
    }
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"):
        found[f"{layer}{name}.linear.weight"] = (VISION, VISION)
    for name in ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
        found[f"{layer}{name}.linear.weight"] = (VISION, VISION)
    for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
        found[f"{layer}{norm}_layernorm.weight"] = (VISION,)
    return found
