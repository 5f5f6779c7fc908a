"""A causal checkpoint made into a diffusion model: the same weights, a mask token, and both directions of attention."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import PolicyError
from .a2d import A2D, CAUSAL
from .base import Policy, PolicyModule, Published
from .checkpoint import Checkpoint, find_folder, load_tokenizer, read_checkpoint
from .facts import Overrides, special_tokens
from .weights import load_weights, stock_model, stored_dtype, vocabulary_rows

NEW_MASK = "<|mask|>"
# Parts of the names that vocabularies give to tokens nobody uses.
_SPARE = ("mask", "reserved", "unused", "extra_id", "spare")


@dataclass(frozen=True, kw_only=True, slots=True)
class Converted:
    """What `convert` did.

    Attributes:
        folder: the new checkpoint.
        mask_token, mask_token_id: what stands for "not yet revealed".
        mask_is: "given", "spare" (a special token without a use) or "new".
        added_rows: rows that the embedding grew by for it.
        shifted: the head goes on predicting the next token.
        block_size: None = everybody sees everybody.
    """

    folder: Path
    mask_token: str
    mask_token_id: int
    mask_is: str
    added_rows: int
    shifted: bool
    block_size: int | None


def convert(
    source: str | Path,
    output: str | Path,
    *,
    mask_token: str | None = None,
    shifted: bool = True,
    block_size: int | None = None,
    revision: str | None = None,
) -> Converted:
    """Write family "a2d" beside a causal Llama, Qwen2 or Qwen3 checkpoint.

    Weights keep their number format and, but for a new mask token's row (the mean of all rows), their values. It says
    nothing sensible until it is adapted: `steprs pretrain` with `policy.path`.

    Args:
        source: a folder, or the Hub's name of a model.
        output: a folder that is not there yet.
        mask_token: an existing token, or the name of a new one. None: the tokenizer's own mask token, else a special
            token that is reserved for nothing, else a new one.
        shifted: keep the head's meaning, the next token; False trains it to mean the token at its own position.
        block_size: decode blocks from left to right, the prompt being one; None = the whole completion at once.
        revision: of a Hub model.

    Raises:
        PolicyError: the source is nothing that can be converted, or the output is there.

    Example: `convert("SmolLM2-135M-Instruct", "smol-diffusion")`.
    """
    path = Path(output)
    if path.exists() and any(path.iterdir()):
        raise PolicyError(f"{path} is not empty; name a folder that is not there yet")
    folder = find_folder(source, revision)
    if folder is None or not (folder / "config.json").is_file():
        raise PolicyError(f"{str(source)!r} is no checkpoint: give a folder with config.json, or the Hub's name of one")
    checkpoint = read_checkpoint(folder)
    if checkpoint.architecture not in CAUSAL or checkpoint.manifest:
        what = f"family {checkpoint.manifest['family']!r}" if checkpoint.manifest else checkpoint.architecture
        raise PolicyError(f"{folder} is {what}; causal checkpoints are converted: {', '.join(CAUSAL)}")
    tokenizer = load_tokenizer(checkpoint, A2D)
    name, kind = _mask_token(tokenizer, mask_token)
    token = _adopt(tokenizer, name)
    assert A2D.stock_config is not None
    dtype = stored_dtype(folder)
    model = stock_model(folder, checkpoint.config, A2D.stock_config, dtype=dtype, implementation="sdpa")
    load_weights(model, folder, A2D.keys, place=lambda _: torch.device("cpu"), dtype=dtype)
    added = max(token + 1 - vocabulary_rows(model), 0)
    if added:
        _grow(model, added)
    policy = _converted_policy(checkpoint, model, tokenizer, token, shifted, block_size)
    policy.save(path)
    return Converted(
        folder=path,
        mask_token=name,
        mask_token_id=token,
        mask_is=kind,
        added_rows=added,
        shifted=shifted,
        block_size=block_size,
    )


def _mask_token(tokenizer: PreTrainedTokenizerBase, asked: str | None) -> tuple[str, str]:
    """Name of the mask token, and where it comes from."""
    vocabulary = tokenizer.get_vocab()
    if asked is not None:
        return asked, "given" if asked in vocabulary else "new"
    if tokenizer.mask_token is not None:
        return str(tokenizer.mask_token), "given"
    template = str(getattr(tokenizer, "chat_template", None) or "")
    used = {tokenizer.eos_token, tokenizer.bos_token, tokenizer.pad_token, tokenizer.unk_token}
    special = sorted((i, token.content) for i, token in tokenizer.added_tokens_decoder.items() if token.special)
    for part in _SPARE:
        for _, name in special:
            if part in name.lower() and name not in used and name not in template:
                return name, "spare"
    return NEW_MASK, "new"


def _adopt(tokenizer: PreTrainedTokenizerBase, name: str) -> int:
    """The id of the mask token, which the tokenizer now knows as such."""
    tokenizer.add_special_tokens({"mask_token": name})
    token = tokenizer.convert_tokens_to_ids(name)
    assert isinstance(token, int)
    return token


@torch.no_grad()
def _grow(model: PreTrainedModel, rows: int) -> None:
    """Add mean rows to the embedding and to a head of its own."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    assert isinstance(embedding, nn.Embedding) and isinstance(head, nn.Linear)
    for layer in (embedding, head):
        weight_VH = layer.weight
        mean_RH = weight_VH.float().mean(0, keepdim=True).to(weight_VH.dtype).expand(rows, -1)
        layer.weight = nn.Parameter(torch.cat((weight_VH, mean_RH)))
    embedding.num_embeddings = head.out_features = embedding.weight.shape[0]
    model.config.vocab_size = embedding.num_embeddings
    model.tie_weights()


def _converted_policy(
    checkpoint: Checkpoint,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    token: int,
    shifted: bool,
    block_size: int | None,
) -> Policy:
    vocab_size = int(model.config.vocab_size)
    overrides = Overrides(mask_token_id=token)
    config = dict(checkpoint.config) | {"vocab_size": vocab_size}
    return Policy(
        module=PolicyModule(model),
        tokenizer=tokenizer,
        family=A2D.name,
        attention="bidirectional" if block_size is None else "block_causal",
        block_size=block_size,
        prompt_block=A2D.prompt_block,
        shifted=shifted,
        vocab_size=vocab_size,
        published=Published(source=str(checkpoint.folder), keys=A2D.keys, files=_files(checkpoint, config, tokenizer)),
        **special_tokens(checkpoint, A2D, tokenizer, overrides, vocab_size),
    )


def _files(checkpoint: Checkpoint, config: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> dict[str, bytes]:
    """The source's companions with the new vocabulary in config.json and the tokenizer's files."""
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer.save_pretrained(scratch)
        (Path(scratch) / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        changed = {path.name: path.read_bytes() for path in Path(scratch).iterdir()}
    return checkpoint.files() | changed
