"""What a family of checkpoints is: how its folder is read, who sees whom, and how it wants to be decoded.

One file a family makes one `Family`; `loading.FAMILIES` lists them. Published folders say what they are by
`model_type` in config.json. The tensors are read onto a stock transformers class under its own names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from transformers import LlamaConfig, PreTrainedConfig, Qwen2Config, Qwen3Config

from ..errors import PolicyError

_LAYER = re.compile(r"\.(\d+)\.")

StockConfig = Callable[[Mapping[str, Any]], PreTrainedConfig]
"""From a published config.json to the configuration of the stock class; refuses what that class cannot express."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyMap:
    """Tensor names of a published layout beside those of the stock class.

    Attributes:
        modules: published module name -> stock module name, `*` for the layer's number. Empty: the names are the same.
        joined: published module -> stock modules whose rows it holds one below the other, in the stock order.
        experts: the files hold a tensor for each expert and projection (`experts.7.up_proj.weight`), the stock class
            one for all of them (`experts.gate_up_proj`, gate above up, and `experts.down_proj`).

    >>> keys = KeyMap(modules={"transformer.blocks.*.attn_out": "model.layers.*.self_attn.o_proj"})
    >>> keys.stock("transformer.blocks.7.attn_out.weight")
    'model.layers.7.self_attn.o_proj.weight'
    >>> keys.published("model.layers.7.self_attn.o_proj.weight")
    'transformer.blocks.7.attn_out.weight'
    """

    modules: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    experts: bool = False

    def pieces(self, name: str, shape: Sequence[int]) -> dict[str, tuple[int | slice, ...]]:
        """The published tensors that make up a stock one, each with the place it has there.

        >>> KeyMap(experts=True).pieces("model.layers.0.mlp.experts.gate_up_proj", (1, 8, 4))
        {'model.layers.0.mlp.experts.0.gate_proj.weight': (0, slice(0, 4, None)), \
'model.layers.0.mlp.experts.0.up_proj.weight': (0, slice(4, 8, None))}
        >>> KeyMap(experts=True).pieces("lm_head.weight", (8, 4))
        {'lm_head.weight': ()}
        """
        front, _, leaf = name.rpartition(".experts.")
        if not self.experts or leaf not in ("gate_up_proj", "down_proj"):
            return {self.published(name): ()}
        half = shape[1] // 2
        places: dict[str, tuple[int | slice, ...]] = {"down_proj": ()}
        if leaf == "gate_up_proj":
            places = {"gate_proj": (slice(0, half),), "up_proj": (slice(half, 2 * half),)}
        return {
            f"{front}.experts.{expert}.{projection}.weight": (expert, *place)
            for expert in range(shape[0])
            for projection, place in places.items()
        }

    def stock(self, name: str) -> str | None:
        """The stock name of a published tensor; None for one that the layout does not have."""
        return _renamed(name, self.modules) if self.modules else name

    def published(self, name: str) -> str:
        """The published name of a stock tensor, or of the one that it is joined into."""
        if not self.modules:
            return name
        table = {stock: published for published, stock in self.modules.items()}
        table |= {stock: published for published, parts in self.joined.items() for stock in parts}
        found = _renamed(name, table)
        assert found is not None, f"the key map lacks {name}"
        return found


def _renamed(name: str, table: Mapping[str, str]) -> str | None:
    """By the module's name or, where more than that differs, the tensor's own."""
    number = _LAYER.search(name)
    starred = _LAYER.sub(".*.", name, count=1)
    module, _, kind = starred.rpartition(".")
    renamed = table.get(starred) or (f"{table[module]}.{kind}" if module in table else None)
    return None if renamed is None else renamed.replace("*", number[1] if number else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """How checkpoints of one family are read and driven.

    Attributes:
        name: its key in `loading.FAMILIES`.
        model_types: values of `model_type` in config.json by which a published folder is recognised.
        architectures: values of `architectures` that may carry it; another one is refused. Empty: any.
        stock_config: see `StockConfig`; None where code of the checkpoint's own runs.
        keys: tensor names.
        attention: who sees whom; "by block size": block-causal where a block size is stated, else bidirectional.
        frozen: stock modules that are loaded and saved but never trained.
        shifted: the head predicts the next token.
        prompt_block: where blocks are counted from, see `Policy`.
        block_size_fields: names under which config.json may state the block size, the first one found.
        default_block_size: of published checkpoints whose config.json states none.
        mask_tokens: what the mask is called in the tokenizer, where config.json states no `mask_token_id`.
        turn_ends: the one that the chat template has ends an answer; without any `eos_token_id` of config.json does.
        tokenizer_class: stock class for a folder without tokenizer.json.
        decoding: `length`, `steps` (and `block_size`) of the family's own examples.
    """

    name: str
    model_types: tuple[str, ...] = ()
    architectures: tuple[str, ...]
    stock_config: StockConfig | None = None
    keys: KeyMap = KeyMap()
    attention: Literal["bidirectional", "block_causal", "canvas", "by block size"] = "bidirectional"
    frozen: tuple[str, ...] = ()
    shifted: bool = False
    prompt_block: Literal["whole", "aligned"] = "whole"
    block_size_fields: tuple[str, ...] = ()
    default_block_size: int | None = None
    mask_tokens: tuple[str, ...] = ()
    turn_ends: tuple[str, ...] = ()
    tokenizer_class: str = "PreTrainedTokenizerFast"
    decoding: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


# Fields of config.json that decide what a stock model computes. Everything else (token ids, flags of the original
# code, its dtype) stays in the published file and out of the stock configuration: a `pad_token_id` there would freeze
# the embedding of the padding token, which in several families is the end token.
_ARCHITECTURE = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "head_dim", "hidden_act", "max_position_embeddings", "initializer_range", "rms_norm_eps", "tie_word_embeddings",
    "rope_theta", "rope_scaling", "rope_parameters", "attention_bias", "attention_dropout", "mlp_bias",
)  # fmt: skip
_NEEDED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
STOCK: Mapping[str, Callable[..., PreTrainedConfig]] = MappingProxyType(
    {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
)


def stock_config(kind: str) -> StockConfig:
    """A reader for config.json whose architecture fields already have the stock names.

    Args:
        kind: "llama", "qwen2" or "qwen3".

    >>> config = {"vocab_size": 9, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    >>> stock_config("qwen3")(config | {"num_attention_heads": 2, "eos_token_id": 3}).eos_token_id is None
    True
    """

    def read(config: Mapping[str, Any]) -> PreTrainedConfig:
        lacking = [name for name in _NEEDED if name not in config]
        if lacking:
            raise PolicyError(f"config.json lacks {', '.join(lacking)}")
        refuse_values(config, {"use_sliding_window": False, "use_mrope": False})
        fields = {name: config[name] for name in _ARCHITECTURE if name in config}
        return STOCK[kind](**fields, bos_token_id=None, eos_token_id=None, pad_token_id=None)

    return read


def refuse_values(config: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Refuse settings under which the stock class would compute something else.

    Args:
        config: of config.json.
        expected: field -> the only value that the stock class can express; absent and null fields pass.

    Raises:
        PolicyError: names all of them.
    """
    wrong = [
        f"{name} is {config[name]!r}, supported is {value!r}"
        for name, value in expected.items()
        if config.get(name) is not None and config[name] != value
    ]
    if wrong:
        raise PolicyError(f"config.json asks for what the stock class does not compute: {'; '.join(wrong)}")
