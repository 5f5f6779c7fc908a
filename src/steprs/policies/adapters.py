"""Low-rank adapters through peft, in peft's own files, under the names of the layout they were made for."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ..errors import DependencyError, PolicyError
from .family import KeyMap
from .weights import stored_tensors, tied_names

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."


@dataclass(frozen=True, kw_only=True, slots=True)
class Lora:
    """Low-rank adapters: `rank`, `alpha` (the update is scaled by alpha / rank), `dropout`, and where they sit.

    "all-linear" is every matrix but the head's; of a mixture of experts those of the attention alone.
    """

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    target_modules: tuple[str, ...] | str = "all-linear"


def add_adapters(model: nn.Module, lora: Lora) -> nn.Module:
    """The model with new adapters; only they are trained.

    Raises:
        DependencyError: peft is not installed.
    """
    peft = _peft()
    targets = lora.target_modules if isinstance(lora.target_modules, str) else list(lora.target_modules)
    if targets == "all-linear" and any(name.endswith(".experts") for name, _ in model.named_modules()):
        # Experts are stacked in one tensor; peft would adapt it as one matrix, which no published layout can hold.
        linear = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, nn.Linear)}
        targets = sorted(linear - {"lm_head"})
    options: dict[str, Any] = {"r": lora.rank, "lora_alpha": lora.alpha, "lora_dropout": lora.dropout}
    adapted: nn.Module = peft.get_peft_model(model, peft.LoraConfig(target_modules=targets, **options))
    return adapted


def save_adapters(adapted: Any, folder: Path, keys: KeyMap, base: str) -> None:
    """Write adapter_config.json and adapter_model.safetensors.

    Args:
        adapted: from `add_adapters` or `load_adapters`.
        folder: exists.
        keys: the adapters' modules get the names that the published code has for them.
        base: name or path of the weights they belong to.
    """
    state = _peft().get_peft_model_state_dict(adapted)
    tensors = {_renamed(name, keys.published): weight.detach().cpu().contiguous() for name, weight in state.items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    config = copy.copy(adapted.peft_config["default"])
    config.base_model_name_or_path = base
    config.inference_mode = True
    if keys.modules:
        # Whole names: "ff_out" alone would also mean LLaDA's head.
        config.target_modules = sorted({_module(name) for name in tensors})
    config.save_pretrained(folder)


def load_adapters(model: nn.Module, folder: Path, keys: KeyMap) -> nn.Module:
    """The model with the adapters of a folder.

    Raises:
        DependencyError: peft is not installed.
        PolicyError: the adapters are not LoRA, or do not fit the model; names the tensors.
    """
    peft = _peft()
    tree = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    if tree.get("peft_type") != "LORA":
        raise PolicyError(f"{folder} holds adapters of kind {tree.get('peft_type')!r}; LORA ones are read")
    known = {field.name for field in dataclasses.fields(peft.LoraConfig)}
    known -= {"inference_mode", "base_model_name_or_path"}
    options = {name: value for name, value in tree.items() if name in known}
    if keys.modules:
        options["target_modules"] = sorted({_module(name) for name in _read(folder, keys)})
    adapted: nn.Module = peft.get_peft_model(model, peft.LoraConfig(**options))
    fill_adapters(adapted, folder, keys)
    return adapted


def fill_adapters(adapted: Any, folder: Path, keys: KeyMap) -> None:
    """Put the saved values into adapters that are there, in place.

    Raises:
        PolicyError: they are others; names the tensors.
    """
    peft = _peft()
    state = _read(folder, keys)
    expected = {name: tuple(weight.shape) for name, weight in peft.get_peft_model_state_dict(adapted).items()}
    found = {name: tuple(weight.shape) for name, weight in state.items()}
    if expected != found:
        wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise PolicyError(f"the adapters in {folder} do not fit the model: {', '.join(wrong[:6])}")
    peft.set_peft_model_state_dict(adapted, state)


def _read(folder: Path, keys: KeyMap) -> dict[str, Tensor]:
    """Tensors under peft's names for the stock model."""

    def stock(published: str) -> str:
        name = keys.stock(published)
        if name is None:
            raise PolicyError(f"{folder}: adapter of {published}, which this family does not have")
        return name

    return {_renamed(name, stock): weight for name, weight in load_file(folder / WEIGHTS).items()}


def merged_tensors(model: nn.Module) -> Mapping[str, Callable[[], Tensor]]:
    """Stored name -> a function that gives the weight with its adapter added; one such sum is alive at a time.

    Args:
        model: the transformers model inside the adapters.

    >>> sorted(merged_tensors(nn.Linear(1, 1)))
    ['bias', 'weight']
    """
    found: dict[str, Callable[[], Tensor]] = {}
    tied = tied_names(model)
    for name, weight in stored_tensors(model).items():
        plain = name.replace(".base_layer.", ".")
        if ".lora_" in name or plain in tied:
            continue
        if plain == name or not name.endswith(".weight"):
            found[plain] = weight.detach
        else:
            layer = model.get_submodule(name.partition(".base_layer.")[0])
            found[plain] = partial(_sum, weight, layer)
    return found


def _sum(weight: Tensor, layer: Any) -> Tensor:
    with torch.no_grad():
        total: Tensor = weight + layer.get_delta_weight("default").to(weight.dtype)
        return total


def _renamed(name: str, rename: Callable[[str], str]) -> str:
    """`base_model.model.<module>.lora_A.weight` with the module renamed."""
    module, _, rest = name.removeprefix(_PREFIX).partition(".lora_")
    return f"{_PREFIX}{rename(module + '.weight').removesuffix('.weight')}.lora_{rest}"


def _module(name: str) -> str:
    return name.removeprefix(_PREFIX).partition(".lora_")[0]


def _peft() -> Any:
    try:
        import peft
    except ImportError:
        raise DependencyError("LoRA needs the package peft; install it with: pip install 'steprs[peft]'") from None
    return peft
