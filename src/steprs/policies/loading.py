"""From a name or folder to a policy. One dict of families; nothing is guessed and nothing is unpickled."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

from ..errors import DependencyError, PolicyError, did_you_mean, unknown_name
from . import tiny
from .base import MANIFEST, Policy, PolicyModule, quiet_transformers
from .dtypes import resolve_dtype

SHIPPED = ("tiny", "tiny-full")

Attention = Literal["auto", "eager", "sdpa", "flex_attention"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """How checkpoints of one family are read.

    Attributes:
        architectures: values of `architectures` in config.json that belong to it.
    """

    architectures: tuple[str, ...]


FAMILIES: Mapping[str, Family] = {tiny.FAMILY: Family(architectures=("LlamaForCausalLM",))}


@dataclass(frozen=True, kw_only=True, slots=True)
class Lora:
    """Low-rank adapters: `rank`, `alpha` (the update is scaled by alpha / rank), `dropout`, and where they sit."""

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    target_modules: tuple[str, ...] | str = "all-linear"


def load_policy(
    name_or_path: str | Path,
    *,
    dtype: Literal["auto", "float32", "bfloat16"] = "float32",
    attention: Attention = "auto",
    lora: Lora | None = None,
    gradient_checkpointing: bool = False,
    trust_remote_code: bool = False,
    device: torch.device | str | None = None,
) -> Policy:
    """Load a shipped policy or a checkpoint folder.

    Args:
        name_or_path: "tiny", "tiny-full", or a folder with config.json, safetensors, tokenizer and `steprs.json`.
        dtype: of the computation; weights stay float32. "auto" measures what this device multiplies faster.
        attention: backend; "auto" is eager on CPUs and SDPA elsewhere.
        lora: train adapters only (needs peft).
        gradient_checkpointing: recompute activations in the backward.
        trust_remote_code: run Python files that come with the checkpoint. Off unless you say so.
        device: where to put it; default the CPU.

    Raises:
        PolicyError: unknown name, a checkpoint of another family, one without safetensors, or one whose weights do
            not fit its configuration.
        DependencyError: `lora` without peft.

    Example: `load_policy("tiny").logits(ids_BT)`.
    """
    folder = _find(name_or_path)
    config, manifest = _read_manifest(folder, trust_remote_code)
    place = torch.device("cpu" if device is None else device)
    implementation = _implementation(attention, place)
    policy = _build(folder, config, manifest, implementation, trust_remote_code)
    if gradient_checkpointing:
        policy.model.activation_checkpointing_enable({"use_reentrant": False})
    if lora is not None:
        policy = policy.with_module(PolicyModule(_adapt(policy.model, lora)))
    policy.module.to(place).eval()
    return dataclasses.replace(policy, compute_dtype=resolve_dtype(dtype, place, policy))


def shipped_folder(name: str) -> Path:
    """Where a checkpoint that comes with the package lies."""
    return Path(str(files("steprs"))) / "checkpoints" / name


def _find(name_or_path: str | Path) -> Path:
    if str(name_or_path) in SHIPPED:
        return shipped_folder(str(name_or_path))
    folder = Path(name_or_path)
    if (folder / "config.json").is_file():
        return folder
    what = "a folder without config.json" if folder.is_dir() else "neither a shipped name nor a folder"
    raise PolicyError(
        f"cannot load policy {str(name_or_path)!r}: {what}; give one of {', '.join(SHIPPED)} or the folder of a "
        f"checkpoint.{did_you_mean(str(name_or_path), SHIPPED)}"
    )


def _read_manifest(folder: Path, trust_remote_code: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """config.json and `steprs.json`, refused unless a known family owns them."""
    config = _read_json(folder / "config.json")
    if "auto_map" in config and not trust_remote_code:
        raise PolicyError(
            f"{folder} wants to run its own Python files ({sorted(config['auto_map'])}); read them, then pass "
            "trust_remote_code=True, or use a checkpoint that needs none"
        )
    architectures = config.get("architectures") or ["?"]
    if not (folder / MANIFEST).is_file():
        raise PolicyError(
            f"{folder} is a {architectures[0]} checkpoint of no family known here (it has no {MANIFEST}); "
            f"known families: {', '.join(sorted(FAMILIES))}"
        )
    manifest = _read_json(folder / MANIFEST)
    family = str(manifest.get("family"))
    if family not in FAMILIES:
        raise PolicyError(f"{folder}: {unknown_name('policy family', family, FAMILIES)}")
    if architectures[0] not in FAMILIES[family].architectures:
        raise PolicyError(
            f"{folder} says it is of family {family!r} but holds a {architectures[0]}; that family is "
            f"{' or '.join(FAMILIES[family].architectures)}"
        )
    if not list(folder.glob("*.safetensors")):
        raise PolicyError(f"{folder} holds no .safetensors file; pickled weights are not read, convert them first")
    return config, manifest


def _read_json(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise PolicyError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(tree, dict):
        raise PolicyError(f"{path} holds a {type(tree).__name__}, not an object")
    return tree


def _build(
    folder: Path, config: dict[str, Any], manifest: dict[str, Any], implementation: str, trust_remote_code: bool
) -> Policy:
    loader: Any = AutoModelForCausalLM
    try:
        with quiet_transformers():
            model, report = loader.from_pretrained(
                folder,
                dtype=torch.float32,
                attn_implementation=implementation,
                use_safetensors=True,
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
            )
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise PolicyError(f"cannot load the checkpoint in {folder}: {error}; a file is missing or damaged") from error
    wrong = {kind: sorted(map(str, names)) for kind, names in report.items() if names}
    if wrong:
        raise PolicyError(f"the weights in {folder} do not fit its config.json: {wrong}")
    return Policy(
        module=PolicyModule(model),
        tokenizer=tokenizer,
        family=manifest["family"],
        attention=manifest["attention"],
        block_size=manifest["block_size"],
        prompt_block=manifest["prompt_block"],
        mask_token_id=manifest["mask_token_id"],
        eos_token_id=manifest["eos_token_id"],
        pad_token_id=manifest["pad_token_id"],
        vocab_size=config["vocab_size"],
        decoding_defaults=manifest["decoding"],
    )


def _implementation(attention: str, device: torch.device) -> str:
    """Eager on CPUs, where it is faster for short rows forward and backward; SDPA elsewhere."""
    if attention == "auto":
        return "eager" if device.type == "cpu" else "sdpa"
    if attention == "flex_attention" and device.type != "cuda":
        raise PolicyError(f"attention='flex_attention' needs a CUDA device, not {device}; use 'eager' or 'sdpa'")
    return attention


def _adapt(model: torch.nn.Module, lora: Lora) -> torch.nn.Module:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise DependencyError("LoRA needs the package peft; install it with: pip install 'steprs[peft]'") from None
    options: dict[str, Any] = {"r": lora.rank, "lora_alpha": lora.alpha, "lora_dropout": lora.dropout}
    targets = lora.target_modules if isinstance(lora.target_modules, str) else list(lora.target_modules)
    config = LoraConfig(target_modules=targets, **options)
    return get_peft_model(model, config)
