"""Dream (J. Ye et al., "Dream 7B", 2025) and DiffuCoder: Qwen2 with full attention, whose head kept its shift."""

from __future__ import annotations

from .family import Family, stock_config

DREAM = Family(
    name="dream",
    model_types=("Dream",),
    architectures=("DreamModel",),
    stock_config=stock_config("qwen2"),
    shifted=True,
    mask_tokens=("<|mask|>",),
    tokenizer_class="Qwen2Tokenizer",
    decoding={"length": 512, "steps": 512},
)
