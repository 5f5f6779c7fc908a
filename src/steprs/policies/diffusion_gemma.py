"""DiffusionGemma (Google, 2026): an encoder for clean text and a decoder that denoises a canvas of random tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import DiffusionGemmaConfig, PreTrainedConfig

from ..errors import PolicyError
from .family import Family, refuse_values


def _stock_config(config: Mapping[str, Any]) -> PreTrainedConfig:
    lacking = [name for name in ("text_config", "vision_config", "canvas_length") if not config.get(name)]
    if lacking:
        raise PolicyError(f"config.json lacks {', '.join(lacking)}")
    refuse_values(config, {"tie_word_embeddings": True})
    text = dict(config["text_config"])
    # Dropout would make a scoring forward another one than the rollout's, in which every state follows from the last.
    refuse_values(text, {"attention_dropout": 0.0})
    if text.get("use_bidirectional_attention") == "all":
        raise PolicyError("config.json asks for an encoder that looks ahead; here clean text is encoded causally")
    # A padding token in the stock configuration would freeze its embedding.
    text |= {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    return DiffusionGemmaConfig(
        text_config=text, vision_config=dict(config["vision_config"]), canvas_length=config["canvas_length"]
    )


DIFFUSION_GEMMA = Family(
    name="diffusion-gemma",
    model_types=("diffusion_gemma",),
    architectures=("DiffusionGemmaForBlockDiffusion",),
    stock_config=_stock_config,
    attention="canvas",
    frozen=("model.encoder.vision_tower", "model.encoder.embed_vision"),
    block_size_fields=("canvas_length",),
    mask_tokens=("<mask>",),
    turn_ends=("<turn|>", "<end_of_turn>"),
    decoding={"length": 256, "steps": 48},
)
