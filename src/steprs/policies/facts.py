"""Special tokens, block size and shift of a checkpoint.

First counts what was asked for, then what `steprs.json` says (the folder is ours), then config.json and the tokenizer
as the family means them.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, TypedDict

from transformers import PreTrainedTokenizerBase

from ..errors import PolicyError
from .checkpoint import Checkpoint
from .family import Family


@dataclass(frozen=True, kw_only=True, slots=True)
class Overrides:
    """What a checkpoint's files do not say, or say otherwise than you mean; None leaves it to them.

    Attributes:
        block_size: of block-causal attention.
        mask_token_id: "not yet revealed".
        eos_token_id: ends a completion.
        shifted: whether the head predicts the next token.
    """

    block_size: int | None = None
    mask_token_id: int | None = None
    eos_token_id: int | None = None
    shifted: bool | None = None


class SpecialTokens(TypedDict):
    """The fields of `Policy` of these names."""

    mask_token_id: int
    eos_token_id: int
    pad_token_id: int


def special_tokens(
    checkpoint: Checkpoint, family: Family, tokenizer: PreTrainedTokenizerBase, overrides: Overrides, vocab_size: int
) -> SpecialTokens:
    """Mask, end and padding.

    Raises:
        PolicyError: the mask or the end token is stated nowhere, lies outside the vocabulary, or the mask doubles as
            another one.
    """
    stated, config = checkpoint.manifest, checkpoint.config
    mask = _first(
        overrides.mask_token_id, stated.get("mask_token_id"), config.get("mask_token_id"),
        *(_token_id(tokenizer, name) for name in family.mask_tokens), tokenizer.mask_token_id,
    )  # fmt: skip
    eos = _first(
        overrides.eos_token_id, stated.get("eos_token_id"), _turn_end(family, tokenizer), config.get("eos_token_id"),
        tokenizer.eos_token_id,
    )  # fmt: skip
    for name, value in (("mask_token_id", mask), ("eos_token_id", eos)):
        if value is None:
            raise PolicyError(
                f"{checkpoint.folder} names no {name}, neither in config.json nor in its tokenizer; give policy.{name}"
            )
    pad = _first(stated.get("pad_token_id"), config.get("pad_token_id"), tokenizer.pad_token_id, eos)
    tokens = {"mask_token_id": mask, "eos_token_id": eos, "pad_token_id": pad}
    outside = {name: token for name, token in tokens.items() if not 0 <= token < vocab_size}
    if outside:
        raise PolicyError(f"{checkpoint.folder}: {outside} lie outside the vocabulary of {vocab_size} tokens")
    if mask in (eos, pad):
        raise PolicyError(
            f"{checkpoint.folder}: mask_token_id {mask} is also the end or padding token ({eos}, {pad}); a mask needs "
            "a token of its own: give policy.mask_token_id"
        )
    return SpecialTokens(mask_token_id=mask, eos_token_id=eos, pad_token_id=pad)


def block_size(checkpoint: Checkpoint, family: Family, overrides: Overrides) -> int | None:
    """Positions decoded together, None where the family fixes none.

    Raises:
        PolicyError: it is no positive number, or the family has no blocks.
    """
    if family.attention == "bidirectional":
        if overrides.block_size is not None:
            raise PolicyError(
                f"family {family.name!r} has no blocks in its attention; policy.block_size means nothing for it "
                "(sampler.block_size decodes from left to right)"
            )
        return None
    named = [checkpoint.config.get(field) for field in family.block_size_fields]
    size = _first(overrides.block_size, checkpoint.manifest.get("block_size"), *named)
    if size is None and family.default_block_size is not None:
        size = family.default_block_size
        warnings.warn(
            f"config.json in {checkpoint.folder} states no block size; taking {size}, which the published "
            f"{family.name} checkpoints were trained with. Set policy.block_size if yours was not",
            stacklevel=2,
        )
    if size is not None and (not isinstance(size, int) or size < 1):
        raise PolicyError(f"{checkpoint.folder}: block size {size!r} is no positive whole number")
    return size


def is_shifted(checkpoint: Checkpoint, family: Family, overrides: Overrides) -> bool:
    """Whether a position is scored by the row before it."""
    return bool(_first(overrides.shifted, checkpoint.manifest.get("shifted"), family.shifted))


def _first(*values: Any) -> Any:
    """The first value that is there; of a list (several end tokens) its first."""
    found = next((value for value in values if value is not None and value != []), None)
    return found[0] if isinstance(found, list) else found


def _turn_end(family: Family, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """What the chat template closes an answer with. Base models' configurations name the end of a document."""
    template = getattr(tokenizer, "chat_template", None)
    closing = [name for name in family.turn_ends if isinstance(template, str) and name in template]
    return _token_id(tokenizer, closing[0]) if closing else None


def _token_id(tokenizer: PreTrainedTokenizerBase, name: str) -> int | None:
    found = tokenizer.get_vocab().get(name)
    return None if found is None else int(found)
