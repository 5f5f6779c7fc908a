"""A checkpoint's folder: where it is, what it says it is, and its tokenizer. Nothing is unpickled, no code is run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..errors import PolicyError, unknown_name
from .base import MANIFEST
from .family import Family

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
# What belongs to a checkpoint besides its weights and is written back as it was. Python files go along so that the
# code they were published for loads what we save; they are not run.
_COMPANIONS = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "chat_template.jinja",
    "chat_template.json", "LICENSE", "*.py",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """What a folder says before any weight is read.

    Attributes:
        folder: where it is.
        config: config.json.
        manifest: `steprs.json`, empty for a published folder.
    """

    folder: Path
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]

    @property
    def model_type(self) -> str:
        """Of config.json."""
        return str(self.config.get("model_type"))

    @property
    def architecture(self) -> str:
        """The first one that config.json names."""
        return str((self.config.get("architectures") or ["?"])[0])

    def files(self) -> dict[str, bytes]:
        """The companions that the folder has."""
        found = {path.name: path for pattern in _COMPANIONS for path in self.folder.glob(pattern)}
        return {name: path.read_bytes() for name, path in sorted(found.items())}


def find_folder(name_or_path: str | Path, revision: str | None) -> Path | None:
    """The folder of that name, or of the Hub's model of that name, fetched without pickled weights.

    Returns:
        None if it is neither.

    Raises:
        PolicyError: the Hub could not give it.
    """
    folder = Path(name_or_path)
    if folder.is_dir():
        return folder
    name = str(name_or_path)
    # "runs/policy" is a misspelt folder rather than a model of somebody called "runs".
    if not _HUB_ID.fullmatch(name) or Path(name).parent.exists():
        return None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = ["*.safetensors", "*.safetensors.index.json", *_COMPANIONS]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise PolicyError(f"there is no folder {name!r}, and the Hub gave no model of that name: {reason}") from None


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read config.json and `steprs.json`.

    Raises:
        PolicyError: a file is missing or is no JSON object.
    """
    manifest = folder / MANIFEST
    return Checkpoint(
        folder=folder,
        config=_read_json(folder / "config.json"),
        manifest=_read_json(manifest) if manifest.is_file() else {},
    )


def recognise(checkpoint: Checkpoint, families: Mapping[str, Family], asked: str | None) -> Family:
    """The family of a checkpoint: the one asked for if it may be, else what `steprs.json` or config.json say.

    Raises:
        PolicyError: no family, or another one than was asked for; says what the checkpoint seems to be.
    """
    stated = checkpoint.manifest.get("family")
    if stated is not None and stated not in families:
        raise PolicyError(f"{checkpoint.folder}: {unknown_name('policy family', str(stated), families)}")
    seems = families[stated] if stated is not None else _by_model_type(checkpoint, families.values())
    if asked is None:
        if seems is None:
            raise PolicyError(f"{_describe(checkpoint)} and of no family known here. {_advice(checkpoint, families)}")
        family = seems
    else:
        family = families[asked]
        if seems is not None and seems is not family:
            raise PolicyError(f"{_describe(checkpoint)}, which is family {seems.name!r}, not {asked!r}")
    if family.architectures and checkpoint.architecture not in family.architectures:
        raise PolicyError(
            f"{checkpoint.folder} is taken for family {family.name!r} but holds a {checkpoint.architecture}; that "
            f"family is {' or '.join(family.architectures)}"
        )
    return family


def _by_model_type(checkpoint: Checkpoint, families: Iterable[Family]) -> Family | None:
    """Of several families that share a `model_type`, the one whose architecture it is, else the first."""
    found = [family for family in families if checkpoint.model_type in family.model_types]
    return next(
        (family for family in found if checkpoint.architecture in family.architectures), next(iter(found), None)
    )


def _describe(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.folder} is a {checkpoint.architecture} checkpoint of model_type {checkpoint.model_type!r}"


def _advice(checkpoint: Checkpoint, families: Mapping[str, Family]) -> str:
    if checkpoint.architecture in families["a2d"].architectures:
        return f"It is causal; make a diffusion model of it with: steprs convert {checkpoint.folder} -o DIR"
    return (
        f"Known families: {', '.join(sorted(families))}; a model with code of its own can be driven as family "
        "'remote' with trust_remote_code"
    )


def load_tokenizer(checkpoint: Checkpoint, family: Family) -> PreTrainedTokenizerBase:
    """The tokenizer as plain data; Python files beside it are not run.

    Raises:
        PolicyError: files are missing or damaged.
    """
    stock = PreTrainedTokenizerFast
    if not (checkpoint.folder / "tokenizer.json").is_file():
        stock = getattr(transformers, family.tokenizer_class)
    try:
        tokenizer: PreTrainedTokenizerBase = stock.from_pretrained(checkpoint.folder)
    # Whatever a damaged file makes the tokenizers library raise, it is the file's fault.
    except Exception as error:
        raise PolicyError(f"the tokenizer in {checkpoint.folder} cannot be read: {error}") from error
    tokenizer.padding_side = "left"
    return tokenizer


def _read_json(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise PolicyError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(tree, dict):
        raise PolicyError(f"{path} holds a {type(tree).__name__}, not an object")
    return tree
