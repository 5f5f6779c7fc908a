"""Tensors between safetensors files and a model, one at a time.

A model of 8 billion weights leaves no room for a second copy. So the model is made without memory, every tensor goes
straight from its file to its place, and saving fills one file after the other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedModel,
)

from ..errors import PolicyError
from .family import KeyMap, StockConfig

INDEX = "model.safetensors.index.json"
SHARD_BYTES = 5_000_000_000
_NAMED = 6
# Buffers that older checkpoints carry along; they are computed from the configuration.
_COMPUTED = ("rotary_emb.inv_freq",)
_FLOATING = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def empty_model(config: PreTrainedConfig, *, dtype: torch.dtype, implementation: str) -> PreTrainedModel:
    """The stock model of a configuration, its weights without memory and its computed buffers with it."""
    known: Any = MODEL_FOR_CAUSAL_LM_MAPPING
    loader: Any = AutoModelForCausalLM if type(config) in known else AutoModelForImageTextToText
    with init_empty_weights(include_buffers=False):
        model: PreTrainedModel = loader.from_config(config, dtype=dtype, attn_implementation=implementation)
    model.tie_weights()
    return model


def stock_model(
    folder: Path, config: Mapping[str, Any], read: StockConfig, *, dtype: torch.dtype, implementation: str
) -> PreTrainedModel:
    """`empty_model` of what a checkpoint's config.json describes.

    Args:
        folder: for messages.
        config: content of config.json.
        read: the family's way from it to a stock configuration.
        dtype: of the weights.
        implementation: of attention, by transformers' name.

    Raises:
        PolicyError: it lacks something, asks for what the stock class cannot do, or describes no model at all.
    """
    try:
        return empty_model(read(config), dtype=dtype, implementation=implementation)
    except PolicyError as error:
        raise PolicyError(f"{folder}: {error}") from None
    except (
        StrictDataclassError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        # Sizes of 0, text for numbers, heads that do not divide: stock classes answer each in its own way.
        said = " ".join(str(error).split()) or type(error).__name__
        raise PolicyError(
            f"{folder / 'config.json'} describes no model that can be built (attention: {implementation}): {said}"
        ) from error


def vocabulary_rows(model: PreTrainedModel) -> int:
    """Rows of the embedding, which are the vocabulary of the logits."""
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, Tensor)
    return weight.shape[0]


def load_weights(
    model: PreTrainedModel, folder: Path, keys: KeyMap, *, place: Callable[[str], torch.device], dtype: torch.dtype
) -> None:
    """Fill a model, in place, from the safetensors of a folder.

    Args:
        model: from `empty_model`.
        folder: one file, or several with or without an index.
        keys: published names -> the model's.
        place: the model's name of a tensor -> where it goes.
        dtype: what the weights become.

    Raises:
        PolicyError: no safetensors, a damaged file, or tensors that are missing, unexpected, of another shape or
            quantised, all named in one message.
    """
    files = weight_files(folder)
    places = published_places(model.state_dict(keep_vars=True), keys)
    homes = _checked(model, files, folder, keys, places)
    tied = tied_names(model)
    shapes = {name: weight.shape for name, weight in stored_tensors(model).items()}
    filled: set[str] = set()
    twins: list[tuple[str, Tensor]] = []
    for path in files:
        with safe_open(path, framework="pt") as file:
            for name in (name for name, home in homes.items() if home == path):
                tensor, start = file.get_tensor(name), 0
                for stock, index in places[name]:
                    whole = len(places[name]) == 1
                    part = tensor if whole else tensor[start : (start := start + shapes[stock][0])]
                    if stock in tied:
                        twins.append((stock, part))
                    elif not index:
                        # A copy, since the tensor itself lies in the mapped file, which may be written over one day.
                        _put(model, stock, part.to(place(stock), dtype, copy=True))
                    else:
                        if stock not in filled:
                            _put(model, stock, torch.empty(shapes[stock], dtype=dtype, device=place(stock)))
                            filled.add(stock)
                        model.get_parameter(stock).data[index] = part.to(place(stock), dtype)
                    del part
                del tensor  # before the next one is read
    model.tie_weights()
    for stock, tensor in twins:
        kept = model.get_parameter(stock)
        if not torch.equal(kept.detach().cpu(), tensor.to("cpu", dtype)):
            raise PolicyError(
                f"config.json in {folder} ties {stock} to the embedding, but the files hold another tensor under that "
                "name; set tie_word_embeddings to what is meant"
            )


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder; those that an index names must all be there.

    Raises:
        PolicyError: none, or a shard is missing.
    """
    index = folder / INDEX
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise PolicyError(f"{index} is no index of safetensors ({error})") from None
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise PolicyError(f"{folder} lacks {_some(missing)}, which {INDEX} names; fetch it again")
        return [folder / name for name in names]
    found = sorted(path for path in folder.glob("*.safetensors") if not path.name.startswith("adapter_"))
    if not found:
        raise PolicyError(f"{folder} holds no .safetensors file; pickled weights are not read, convert them first")
    return found


def stored_dtype(folder: Path) -> torch.dtype:
    """The number format of most of a folder's weights.

    Raises:
        PolicyError: see `weight_files`; or it is none that a model computes in.
    """
    weights: dict[str, int] = {}
    for _, _, shape, kind in _headers(weight_files(folder)):
        weights[kind] = weights.get(kind, 0) + math.prod(shape)
    most = max(weights, key=lambda kind: weights[kind])
    if most not in _FLOATING:
        raise PolicyError(f"the weights in {folder} are {most}; allowed: {', '.join(sorted(_FLOATING))}")
    return _FLOATING[most]


def tied_names(model: nn.Module) -> set[str]:
    """Names of tensors that are another one's, as the model's class ties them; files need not hold them."""
    return set(getattr(model, "all_tied_weights_keys", None) or {})


def stored_tensors(model: nn.Module) -> dict[str, Tensor]:
    """What a file of the model holds, by name: parameters, and buffers that are not computed; tied ones once."""
    tied = tied_names(model)
    return {name: tensor for name, tensor in model.state_dict(keep_vars=True).items() if name not in tied}


Places = Mapping[str, list[tuple[str, tuple[int | slice, ...]]]]
"""Published name -> the stock tensors it holds, one below the other, each with the place it has there."""


def published_places(tensors: Mapping[str, Tensor], keys: KeyMap) -> Places:
    """Where the tensors of the published layout lie in stock ones.

    Args:
        tensors: stock name -> a tensor of its shape, in the model's order.
        keys: names.
    """
    found: dict[str, list[tuple[str, tuple[int | slice, ...]]]] = {}
    for stock, tensor in tensors.items():
        for published, index in keys.pieces(stock, tensor.shape).items():
            found.setdefault(published, []).append((stock, index))
    return found


def _checked(model: nn.Module, files: list[Path], folder: Path, keys: KeyMap, places: Places) -> dict[str, Path]:
    """Published name -> file, after names and shapes were compared with the model; only headers are read."""
    state = model.state_dict(keep_vars=True)
    homes: dict[str, Path] = {}
    wrong: dict[str, list[str]] = {"unexpected": [], "of another shape": [], "not floating-point": []}
    seen: set[str] = set()
    for path, name, shape, kind in _headers(files):
        if name.endswith(_COMPUTED):
            continue
        if name not in places:
            wrong["unexpected"].append(name)
            continue
        parts = [torch.empty_like(state[stock], device="meta")[index].shape for stock, index in places[name]]
        expected = (sum(part[0] for part in parts), *parts[0][1:]) if len(parts) > 1 else tuple(parts[0])
        if kind not in _FLOATING:
            wrong["not floating-point"].append(f"{name} ({kind})")
        elif expected != shape:
            wrong["of another shape"].append(f"{name} is {list(shape)}, config.json says {list(expected)}")
        else:
            homes[name] = path
        seen.add(name)
    missing = sorted(published_places(stored_tensors(model), keys).keys() - seen)
    problems = [f"{what}: {_some(names)}" for what, names in ({"missing": missing} | wrong).items() if names]
    if problems:
        raise PolicyError(f"the weights in {folder} do not fit its config.json; {'; '.join(problems)}")
    return homes


def _headers(files: list[Path]) -> Iterator[tuple[Path, str, tuple[int, ...], str]]:
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - not a dict
                    entry = file.get_slice(name)
                    yield path, name, tuple(entry.get_shape()), str(entry.get_dtype())
        except (SafetensorError, OSError) as error:
            raise PolicyError(f"{path} is damaged: {error}; fetch it again") from error


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _put(model: nn.Module, name: str, tensor: Tensor) -> None:
    module, _, leaf = name.rpartition(".")
    owner = model.get_submodule(module)
    setattr(owner, leaf, tensor if leaf in dict(owner.named_buffers(recurse=False)) else nn.Parameter(tensor))


def save_weights(
    folder: Path, tensors: Mapping[str, Callable[[], Tensor]], sizes: Mapping[str, int], *, shard_bytes: int
) -> None:
    """Write safetensors as transformers names them: one file, or shards with an index.

    Args:
        folder: exists.
        tensors: published name -> a function that gives the tensor; called when its file is written.
        sizes: published name -> bytes.
        shard_bytes: most bytes of a file, unless a single tensor has more.
    """
    shards: list[list[str]] = [[]]
    filled = 0
    for name in tensors:
        if shards[-1] and filled + sizes[name] > shard_bytes:
            shards, filled = [*shards, []], 0
        shards[-1].append(name)
        filled += sizes[name]
    files = ["model.safetensors"]
    if len(shards) > 1:
        files = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    for file, names in zip(files, shards, strict=True):
        content = {name: tensors[name]().detach().cpu().contiguous() for name in names}
        save_file(content, folder / file, metadata={"format": "pt"})
    if len(shards) > 1:
        where = {name: file for file, names in zip(files, shards, strict=True) for name in names}
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": dict(sorted(where.items()))}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
