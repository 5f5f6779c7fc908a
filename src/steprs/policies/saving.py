"""Writing a policy so that the code its family was published with loads it back."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import PolicyError
from .adapters import merged_tensors, save_adapters
from .family import KeyMap
from .weights import SHARD_BYTES, published_places, save_weights, stored_tensors

if TYPE_CHECKING:
    from .base import Policy

MANIFEST = "steprs.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What is kept of the folder that a policy was loaded from.

    Attributes:
        source: name or path, for adapters that are saved without it.
        keys: its tensor names.
        files: config.json, the tokenizer's files and other companions, byte for byte.
    """

    source: str
    keys: KeyMap
    files: Mapping[str, bytes]


def save_policy(
    policy: Policy,
    folder: str | Path,
    *,
    merge: bool = False,
    dtype: torch.dtype | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Path:
    """Write the family's published layout with `steprs.json` beside it.

    An adapted policy is written as its adapters alone, in peft's files, and names the weights they belong to; with
    `merge` the sums are written instead, one tensor at a time. Without adapters a reload is bit for bit the same.

    Args:
        policy: stays as it is.
        folder: made if it is not there.
        merge: add adapters to the weights.
        dtype: of the weights written; None keeps theirs.
        shard_bytes: most bytes of one file.

    Raises:
        PolicyError: adapters of a policy that was never a checkpoint, whose weights a reload could not find.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    manifest = policy.manifest()
    if policy.has_adapters and not merge:
        if policy.published is None:
            raise PolicyError("these adapters belong to weights that lie in no folder; save with merge=True")
        manifest["base"] = policy.published.source
        save_adapters(policy.unwrapped.causal_lm, path, policy.published.keys, policy.published.source)
    else:
        _write_weights(policy, path, dtype, shard_bytes)
    if policy.published is None:
        config = copy.copy(policy.model.config)
        config.architectures = [type(policy.model).__name__]
        config.save_pretrained(path)
        policy.tokenizer.save_pretrained(path)
    else:
        for name, content in policy.published.files.items():
            (path / name).write_bytes(content)
    (path / MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return path


def _write_weights(policy: Policy, folder: Path, dtype: torch.dtype | None, shard_bytes: int) -> None:
    keys = KeyMap() if policy.published is None else policy.published.keys
    tensors: dict[str, Callable[[], Tensor]] = {}
    sizes: dict[str, int] = {}
    made = merged_tensors(policy.model)
    found = {name.replace(".base_layer.", "."): weight for name, weight in stored_tensors(policy.model).items()}
    stored = {name: found[name] for name in made}
    for name, parts in published_places(stored, keys).items():
        kind = dtype or stored[parts[0][0]].dtype
        tensors[name] = partial(_published, [(made[stock], index) for stock, index in parts], kind)
        sizes[name] = sum(stored[stock][index].numel() for stock, index in parts) * kind.itemsize
    save_weights(folder, tensors, sizes, shard_bytes=shard_bytes)


def _published(parts: Sequence[tuple[Callable[[], Tensor], tuple[int | slice, ...]]], dtype: torch.dtype) -> Tensor:
    """The stock tensors that a published one holds, one below the other."""
    if len(parts) > 1:
        return torch.cat([make()[index].to(dtype) for make, index in parts])
    make, index = parts[0]
    # A piece is a copy, since files may not hold tensors that share memory.
    return make()[index].to(dtype, copy=True) if index else make().to(dtype)
