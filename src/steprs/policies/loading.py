"""From a name or folder to a policy. One dict of families; nothing is guessed and nothing is unpickled."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Literal

import torch

from ..errors import PolicyError, did_you_mean, unknown_name
from . import adapters
from .a2d import A2D
from .adapters import Lora
from .base import Policy, PolicyModule, Published
from .canvas import CanvasModule
from .checkpoint import Checkpoint, find_folder, load_tokenizer, read_checkpoint, recognise
from .diffusion_gemma import DIFFUSION_GEMMA
from .dream import DREAM
from .dtypes import resolve_dtype
from .facts import Overrides, block_size, is_shifted, special_tokens
from .family import Family
from .fast_dllm_v2 import FAST_DLLM_V2
from .llada import LLADA
from .llada2 import LLADA2
from .llada_moe import LLADA_MOE
from .placing import DeviceMap, placement, spread
from .remote import REMOTE, load_module
from .sdar import SDAR
from .tiny import TINY
from .weights import load_weights, stock_model, vocabulary_rows

__all__ = ["FAMILIES", "SHIPPED", "Lora", "Overrides", "load_policy", "shipped_folder"]

SHIPPED = ("tiny", "tiny-full")

Attention = Literal["auto", "eager", "sdpa", "flex_attention"]

FAMILIES: Mapping[str, Family] = {
    "tiny": TINY,
    "llada": LLADA,
    "llada-moe": LLADA_MOE,
    "llada2": LLADA2,
    "dream": DREAM,
    "sdar": SDAR,
    "trado": SDAR,
    "fast-dllm-v2": FAST_DLLM_V2,
    "a2d": A2D,
    "diffusion-gemma": DIFFUSION_GEMMA,
    "remote": REMOTE,
}


def load_policy(
    name_or_path: str | Path,
    family: str | None = None,
    *,
    overrides: Overrides | None = None,
    dtype: Literal["auto", "float32", "bfloat16"] = "float32",
    weights: Literal["float32", "bfloat16"] = "float32",
    attention: Attention = "auto",
    lora: Lora | None = None,
    gradient_checkpointing: bool = False,
    trust_remote_code: bool = False,
    revision: str | None = None,
    device: torch.device | str | None = None,
    device_map: DeviceMap = None,
) -> Policy:
    """Load a shipped policy, a checkpoint folder or a model of the Hub.

    Args:
        name_or_path: "tiny", "tiny-full", a folder with config.json, tokenizer and safetensors (or peft's adapters),
            or the Hub's name of a model.
        family: a key of `FAMILIES`; None = what the checkpoint says of itself.
        overrides: special tokens, block size and shift, where the checkpoint's own files are not right.
        dtype: of the computation. "auto" measures what this device multiplies faster.
        weights: of the masters. bfloat16 halves the memory of weights that stay frozen (evaluation, adapters).
        attention: backend; "auto" is eager on CPUs and SDPA elsewhere.
        lora: train new adapters only (needs peft).
        gradient_checkpointing: recompute activations in the backward.
        trust_remote_code: run Python files that come with the checkpoint, for family "remote". Off unless you say so.
        revision: of a Hub model.
        device: where to put it; default the CPU.
        device_map: module name -> device, or "auto", to spread one model over several devices of this process.

    Raises:
        PolicyError: unknown name, a checkpoint of another family, one without safetensors, or one whose weights do
            not fit its configuration.
        DependencyError: adapters without peft.

    Example: `load_policy("tiny").logits(ids_BT)`.
    """
    if family is not None and family not in FAMILIES:
        raise PolicyError(unknown_name("policy family", family, FAMILIES))
    checkpoint = read_checkpoint(_find(name_or_path, revision))
    found = recognise(checkpoint, FAMILIES, family)
    _check_options(found, attention, lora)
    base = _base(checkpoint, name_or_path, revision, lora)
    spread_out = device_map is not None and torch.cuda.is_available()
    place = torch.device(device or ("cuda" if spread_out else "cpu"))
    implementation = _implementation(attention, place)
    kind = torch.bfloat16 if weights == "bfloat16" else torch.float32
    if found is REMOTE:
        code = dataclasses.replace(checkpoint, folder=base.folder)
        module = load_module(code, implementation, kind, trusted=trust_remote_code)
    else:
        module = _stock_module(checkpoint, found, base.folder, implementation, kind, place, device_map)
    policy = _policy(checkpoint, found, module, overrides or Overrides(), base.name)
    if gradient_checkpointing:
        policy.model.activation_checkpointing_enable({"use_reentrant": False})
    if base.folder != checkpoint.folder:
        adapted = adapters.load_adapters(policy.model, checkpoint.folder, found.keys)
        policy = policy.with_module(PolicyModule(adapted, whole=module.whole))
    if lora is not None:
        policy = policy.with_module(PolicyModule(adapters.add_adapters(policy.model, lora), whole=module.whole))
    if device_map is None:
        policy.module.to(place)
    policy.module.eval()
    return dataclasses.replace(policy, compute_dtype=resolve_dtype(dtype, place, policy))


def shipped_folder(name: str) -> Path:
    """Where a checkpoint that comes with the package lies."""
    return Path(str(files("steprs"))) / "checkpoints" / name


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Base:
    """Where the full weights of a checkpoint lie, and the name that adapters to them remember."""

    folder: Path
    name: str


def _find(name_or_path: str | Path, revision: str | None) -> Path:
    if str(name_or_path) in SHIPPED:
        return shipped_folder(str(name_or_path))
    folder = find_folder(name_or_path, revision)
    if folder is not None and (folder / "config.json").is_file():
        return folder
    what = "a folder without config.json" if folder else "neither a shipped name nor a folder"
    raise PolicyError(
        f"cannot load policy {str(name_or_path)!r}: {what}; give one of {', '.join(SHIPPED)}, the folder of a "
        f"checkpoint, or the Hub's name of one.{did_you_mean(str(name_or_path), SHIPPED)}"
    )


def _base(checkpoint: Checkpoint, name_or_path: str | Path, revision: str | None, lora: Lora | None) -> _Base:
    """The checkpoint itself, or what its adapters were trained on."""
    folder = checkpoint.folder
    if not (folder / adapters.CONFIG).is_file():
        own = str(folder.resolve()) if Path(name_or_path).is_dir() else str(name_or_path)
        return _Base(folder=folder, name=own)
    if lora is not None:
        raise PolicyError(f"{folder} already has adapters; merge them first: steprs export {folder} -o DIR --merge")
    name = checkpoint.manifest.get("base")
    if not isinstance(name, str):
        raise PolicyError(f"{folder} holds adapters, but its steprs.json does not say of which weights ('base')")
    try:
        return _Base(folder=_find(name, revision), name=name)
    except PolicyError as error:
        raise PolicyError(
            f"{folder} holds adapters to {name!r}, which is not there: {error}. Put its new place into 'base' of "
            f"{folder / 'steprs.json'}"
        ) from None


def _stock_module(
    checkpoint: Checkpoint,
    family: Family,
    weights: Path,
    implementation: str,
    dtype: torch.dtype,
    place: torch.device,
    device_map: DeviceMap,
) -> PolicyModule:
    assert family.stock_config is not None
    model = stock_model(
        checkpoint.folder, checkpoint.config, family.stock_config, dtype=dtype, implementation=implementation
    )
    placed = placement(model, device_map, place)
    load_weights(model, weights, family.keys, place=placed.of, dtype=dtype)
    for name, weight in model.named_parameters():
        weight.requires_grad_(not name.startswith(family.frozen))
    module = CanvasModule if family.attention == "canvas" else PolicyModule
    return module(spread(model, placed))


def _check_options(family: Family, attention: str, lora: Lora | None) -> None:
    """Refuse what is not there for a family."""
    if lora is not None and family.keys.joined:
        raise PolicyError(
            f"the published layout of family {family.name!r} joins matrices that are apart here, so adapters could not "
            "be written in it; train all weights (policy.lora=null)"
        )
    if family.attention != "canvas":
        return
    if lora is not None:
        raise PolicyError(
            f"family {family.name!r} shares its weights between encoder and decoder, and adapters would differ between "
            "the two; train all weights (policy.lora=null)"
        )
    if attention == "flex_attention":
        raise PolicyError(f"family {family.name!r} runs with attention='eager' or 'sdpa'")


def _policy(checkpoint: Checkpoint, family: Family, module: PolicyModule, overrides: Overrides, source: str) -> Policy:
    tokenizer = load_tokenizer(checkpoint, family)
    vocab_size = vocabulary_rows(module.model)
    size = block_size(checkpoint, family, overrides)
    stated = checkpoint.manifest
    attention = stated.get("attention", "bidirectional" if size is None else "block_causal")
    if family.attention != "by block size":
        attention = family.attention
    elif overrides.block_size is not None:
        attention = "block_causal"
    return Policy(
        module=module,
        tokenizer=tokenizer,
        family=family.name,
        attention=attention,
        block_size=size,
        prompt_block=stated.get("prompt_block", family.prompt_block),
        shifted=is_shifted(checkpoint, family, overrides),
        vocab_size=vocab_size,
        decoding_defaults=stated.get("decoding", dict(family.decoding)),
        published=Published(source=source, keys=family.keys, files=checkpoint.files()),
        **special_tokens(checkpoint, family, tokenizer, overrides, vocab_size),
    )


def _implementation(attention: str, device: torch.device) -> str:
    """Eager on CPUs, where it is faster for short rows forward and backward; SDPA elsewhere."""
    if attention == "auto":
        return "eager" if device.type == "cpu" else "sdpa"
    if attention == "flex_attention" and device.type != "cuda":
        raise PolicyError(f"attention='flex_attention' needs a CUDA device, not {device}; use 'eager' or 'sdpa'")
    return attention
