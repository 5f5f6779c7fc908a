"""Small random checkpoints in the layouts that families are published in, written from what their files look like.

Names, shapes and configuration fields are stated here once more, apart from the code under test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import published_gemma
import published_llada2
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from steprs.policies.tiny import word_tokenizer
from steprs.tasks import get_task

WIDTH, INNER, LAYERS, HEADS, KV_HEADS, HEAD = 32, 48, 2, 4, 2, 8
EXPERTS = 4
ROWS = 64  # of the embedding: more than the tokenizer has words, as in the published models
PAD, EOS, MASK = "<pad>", "<eos>", "<mask>"
TEMPLATE = (
    "{% for message in messages %}<|im_start|> {{ message.content }} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)

QWEN_NAMES = {
    "embed": "model.embed_tokens.weight",
    "final": "model.norm.weight",
    "head": "lm_head.weight",
    "norm1": "model.layers.{}.input_layernorm.weight",
    "norm2": "model.layers.{}.post_attention_layernorm.weight",
    "q": "model.layers.{}.self_attn.q_proj.weight",
    "k": "model.layers.{}.self_attn.k_proj.weight",
    "v": "model.layers.{}.self_attn.v_proj.weight",
    "o": "model.layers.{}.self_attn.o_proj.weight",
    "gate": "model.layers.{}.mlp.gate_proj.weight",
    "up": "model.layers.{}.mlp.up_proj.weight",
    "down": "model.layers.{}.mlp.down_proj.weight",
}
QWEN2_NAMES = QWEN_NAMES | {f"{x}_bias": f"model.layers.{{}}.self_attn.{x}_proj.bias" for x in "qkv"}
QWEN3_NAMES = QWEN_NAMES | {f"{x}_norm": f"model.layers.{{}}.self_attn.{x}_norm.weight" for x in "qk"}
LLADA_NAMES = {
    "embed": "model.transformer.wte.weight",
    "final": "model.transformer.ln_f.weight",
    "head": "model.transformer.ff_out.weight",
    "norm1": "model.transformer.blocks.{}.attn_norm.weight",
    "norm2": "model.transformer.blocks.{}.ff_norm.weight",
    "q": "model.transformer.blocks.{}.q_proj.weight",
    "k": "model.transformer.blocks.{}.k_proj.weight",
    "v": "model.transformer.blocks.{}.v_proj.weight",
    "o": "model.transformer.blocks.{}.attn_out.weight",
    "gate": "model.transformer.blocks.{}.ff_proj.weight",
    "up": "model.transformer.blocks.{}.up_proj.weight",
    "down": "model.transformer.blocks.{}.ff_out.weight",
}

# With experts a name has a second place, the expert's number.
MOE_NAMES = {role: name for role, name in QWEN3_NAMES.items() if role not in ("gate", "up", "down")} | {
    "router": "model.layers.{}.mlp.gate.weight",
    "gate": "model.layers.{}.mlp.experts.{}.gate_proj.weight",
    "up": "model.layers.{}.mlp.experts.{}.up_proj.weight",
    "down": "model.layers.{}.mlp.experts.{}.down_proj.weight",
}

LLADA_CONFIG = {
    "activation_type": "silu", "alibi": False, "alibi_bias_max": 8.0, "architectures": ["LLaDAModelLM"],
    "attention_dropout": 0.0, "attention_layer_norm": False, "attention_layer_norm_with_affine": True,
    "auto_map": {"AutoConfig": "configuration_llada.LLaDAConfig", "AutoModel": "modeling_llada.LLaDAModelLM"},
    "bias_for_layer_norm": False, "block_group_size": 1, "block_type": "llama", "d_model": WIDTH,
    "embedding_dropout": 0.0, "embedding_size": ROWS, "flash_attention": False, "include_bias": False,
    "include_qkv_bias": False, "init_cutoff_factor": None, "init_device": "meta", "init_fn": "mitchell",
    "init_std": 0.02, "input_emb_norm": False, "layer_norm_type": "rms", "layer_norm_with_affine": True,
    "max_sequence_length": 4096, "mlp_hidden_size": INNER, "mlp_ratio": 4, "model_type": "llada",
    "multi_query_attention": None, "n_heads": HEADS, "n_kv_heads": HEADS, "n_layers": LAYERS, "precision": "amp_bf16",
    "residual_dropout": 0.0, "rms_norm_eps": 1e-05, "rope": True, "rope_full_precision": True, "rope_theta": 500000.0,
    "scale_logits": False, "transformers_version": "4.46.3", "use_cache": False, "weight_tying": False,
}  # fmt: skip
LLADA_MOE_CONFIG = {
    "architectures": ["LLaDAMoEModelLM"], "attention_bias": False, "attention_dropout": 0.0,
    "auto_map": {"AutoModel": "modeling_lladamoe.LLaDAMoEModelLM"},
    "clip_qkv": None, "dense_intermediate_size": 96, "expert_intermediate_size": INNER, "hidden_act": "silu",
    "hidden_size": WIDTH, "initializer_range": 0.02, "max_position_embeddings": 8192, "model_type": "llada",
    "moe_layer_freq": [1] * LAYERS, "moe_router_enable_expert_bias": False, "moe_router_score_function": "softmax",
    "norm_topk_prob": None, "num_attention_heads": HEADS, "num_experts": EXPERTS, "num_experts_per_tok": 2,
    "num_hidden_layers": LAYERS, "num_key_value_heads": HEADS, "partial_rotary_factor": 1, "qk_layernorm": True,
    "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 50000, "routed_scaling_factor": 1,
    "router_aux_loss_coef": 0.01, "router_num_group": None, "router_topk_group": None,
    "shared_expert_intermediate_size": None, "tie_word_embeddings": False, "use_cache": False, "vocab_size": ROWS,
}  # fmt: skip
QWEN_CONFIG = {
    "attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": WIDTH, "initializer_range": 0.02,
    "intermediate_size": INNER, "max_position_embeddings": 32768, "max_window_layers": LAYERS,
    "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "num_key_value_heads": KV_HEADS, "rms_norm_eps": 1e-06,
    "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": None, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "use_cache": False, "use_sliding_window": False, "vocab_size": ROWS,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One published layout.

    Attributes:
        names: role -> tensor name, `{}` for the layer.
        config: config.json without token ids.
        kv_heads, theta, eps: of attention, RoPE and RMSNorm.
        block_size: None = full attention.
        shifted: the head predicts the next token.
        mask: what the mask token is called.
        template: chat template, whose last closing token ends an answer.
        states_ids: config.json names the special tokens.
        chosen: experts that each token goes to; None = no experts.
        shapes: (rows of the embedding) -> tensor shapes by name, for layouts that are unlike the others.
    """

    names: Mapping[str, str]
    config: Mapping[str, Any]
    kv_heads: int = KV_HEADS
    theta: float = 1e6
    eps: float = 1e-6
    block_size: int | None = None
    shifted: bool = False
    mask: str = MASK
    template: str | None = None
    states_ids: bool = True
    chosen: int | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    shapes: Callable[[int], Mapping[str, tuple[int, ...]]] | None = None


def qwen(model_type: str, architecture: str, **more: Any) -> dict[str, Any]:
    return QWEN_CONFIG | {"model_type": model_type, "architectures": [architecture]} | more


LAYOUTS = {
    "llada": Layout(
        names=LLADA_NAMES, config=LLADA_CONFIG, kv_heads=HEADS, theta=5e5, eps=1e-5, mask="<|mdm_mask|>",
        extra={"modeling_llada.py": "raise SystemExit('this file must not run')\n"},
    ),
    "llada-moe": Layout(
        names=MOE_NAMES, config=LLADA_MOE_CONFIG, kv_heads=HEADS, theta=5e4, eps=1e-5, mask="<|mask|>", chosen=2,
        extra={"modeling_lladamoe.py": "raise SystemExit('this file must not run')\n"},
    ),
    "dream": Layout(
        names=QWEN2_NAMES, shifted=True, mask="<|mask|>",
        config=qwen("Dream", "DreamModel", use_mrope=False, auto_map={"AutoModel": "modeling_dream.DreamModel"}),
        extra={"modeling_dream.py": "raise SystemExit('this file must not run')\n"},
    ),
    "sdar": Layout(
        names=QWEN3_NAMES, block_size=4, mask="<|MASK|>", template=TEMPLATE, states_ids=False,
        config=qwen("sdar", "SDARForCausalLM", head_dim=HEAD, attention_bias=False, block_size=4, debug=False),
    ),
    "fast-dllm-v2": Layout(
        names=QWEN2_NAMES, block_size=4, shifted=True, mask="|<MASK>|",
        config=qwen("Fast_dLLM_Qwen", "Fast_dLLM_QwenForCausalLM", bd_size=4, layer_types=["full_attention"] * LAYERS),
    ),
    "a2d": Layout(
        names=QWEN3_NAMES, mask="<|mask|>", template=TEMPLATE,
        config=qwen("a2d-qwen3", "A2DQwen3LMHeadModel", head_dim=HEAD, attention_bias=False),
    ),
    "llada2": Layout(
        names={}, shapes=published_llada2.shapes, config=published_llada2.CONFIG, block_size=published_llada2.BLOCK,
        mask="<|mask|>", extra={"modeling_llada2_moe.py": "raise SystemExit('this file must not run')\n"},
    ),
    "diffusion-gemma": Layout(
        names={}, shapes=published_gemma.shapes, config=published_gemma.CONFIG, block_size=published_gemma.CANVAS,
        mask="<mask>", states_ids=False,
    ),
}  # fmt: skip
ALL_NAMES = tuple(LAYOUTS)
FAMILY_NAMES = tuple(name for name, layout in LAYOUTS.items() if layout.shapes is None)
"""Layouts that are one stack of layers, whose network is written out in `reference.py`."""


def words() -> list[str]:
    return ["<|im_start|>", "<|im_end|>", *get_task("countdown").vocabulary()]


def tokenizer_of(layout: Layout) -> PreTrainedTokenizerFast:
    """Words of the countdown task; id 0 pads, 1 ends a document, 2 is the mask."""
    tokenizer = word_tokenizer([word for word in words() if word not in (PAD, EOS, MASK)])
    text = tokenizer.backend_tokenizer.to_str().replace(json.dumps(MASK), json.dumps(layout.mask))
    renamed = PreTrainedTokenizerFast(
        tokenizer_object=type(tokenizer.backend_tokenizer).from_str(text),
        pad_token=PAD, eos_token=EOS, additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        clean_up_tokenization_spaces=False, model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip
    renamed.chat_template = layout.template
    return renamed


def random_tensors(layout: Layout, *, seed: int = 0, rows: int = ROWS) -> dict[str, Tensor]:
    """Weights large enough that every part of the network moves the logits."""
    generator = torch.Generator().manual_seed(seed)
    kv = layout.kv_heads * HEAD
    shapes = {
        "embed": (rows, WIDTH), "final": (WIDTH,), "head": (rows, WIDTH), "norm1": (WIDTH,), "norm2": (WIDTH,),
        "q": (WIDTH, WIDTH), "k": (kv, WIDTH), "v": (kv, WIDTH), "o": (WIDTH, WIDTH), "q_bias": (WIDTH,),
        "k_bias": (kv,), "v_bias": (kv,), "q_norm": (HEAD,), "k_norm": (HEAD,), "gate": (INNER, WIDTH),
        "up": (INNER, WIDTH), "down": (WIDTH, INNER), "router": (EXPERTS, WIDTH),
    }  # fmt: skip
    tensors = {}
    for name, shape in layout.shapes(rows).items() if layout.shapes is not None else ():
        noise = torch.randn(shape, generator=generator)
        tensors[name] = 1 + 0.2 * noise if "norm" in name or "scal" in name else noise * 0.25
    for role, name in layout.names.items():
        shape = shapes[role]
        for number in range(LAYERS * EXPERTS if ".experts." in name else LAYERS if "{}" in name else 1):
            noise = torch.randn(shape, generator=generator)
            place = (number // EXPERTS, number % EXPERTS) if ".experts." in name else (number,)
            tensors[name.format(*place)] = 1 + 0.2 * noise if "norm" in role or role == "final" else noise * 0.25
    return tensors


def write_checkpoint(
    folder: Path,
    family: str,
    *,
    tensors: Mapping[str, Tensor] | None = None,
    shards: int = 1,
    edit: Callable[[dict[str, Any]], None] | None = None,
) -> Path:
    """A folder as it would come from the Hub."""
    layout = LAYOUTS[family]
    folder.mkdir(parents=True)
    tensors = random_tensors(layout) if tensors is None else tensors
    tokenizer_of(layout).save_pretrained(folder)
    ids = {"mask_token_id": 2, "eos_token_id": 1, "pad_token_id": 1} if layout.states_ids else {"eos_token_id": 1}
    config = dict(layout.config) | ids
    rows = next(iter(tensors.values())).shape[0]
    config |= {"vocab_size": rows} | ({"embedding_size": rows} if family == "llada" else {})
    if "text_config" in config:
        config["text_config"] = {**config["text_config"], "vocab_size": rows}
    if edit is not None:
        edit(config)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "generation_config.json").write_text('{"eos_token_id": 1}')
    for name, text in layout.extra.items():
        (folder / name).write_text(text)
    write_shards(folder, tensors, shards)
    return folder


def write_shards(folder: Path, tensors: Mapping[str, Tensor], shards: int) -> None:
    for old in folder.glob("model*.safetensors*"):
        old.unlink()
    if shards == 1:
        save_file(dict(tensors), folder / "model.safetensors", metadata={"format": "pt"})
        return
    where = {name: f"model-{1 + i % shards:05d}-of-{shards:05d}.safetensors" for i, name in enumerate(tensors)}
    for file in set(where.values()):
        part = {name: tensor for name, tensor in tensors.items() if where[name] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
