"""From files, mappings and dotted overrides to typed settings, with errors that name the key and what is allowed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from ..errors import ConfigError, did_you_mean
from .reading import merged, read_file

ModelT = TypeVar("ModelT", bound=BaseModel)


def load_config(
    source: str | Path | dict[str, Any] | None,
    overrides: Sequence[str] = (),
    *,
    model: type[ModelT],
) -> ModelT:
    """Read a YAML or JSON file (or take a dict), apply `a.b=value` overrides and validate.

    Args:
        source: a file, an already parsed mapping, or None for the defaults.
        overrides: dotted assignments; the value is YAML, so `1`, `true`, `[1, 4]` and `null` mean what they say.
        model: the section the file has the shape of, e.g. `RunConfig`.

    Raises:
        ConfigError: names the file, the dotted key, what was given and what is allowed.

    >>> from steprs.config import RunConfig
    >>> load_config({"seed": 3}, ["train.updates=5"], model=RunConfig).train.updates
    5
    """
    tree = read_file(source) if isinstance(source, str | Path) else dict(source or {})
    for override in overrides:
        tree = merged(tree, _parse_override(override))
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        where = f"{source}: " if isinstance(source, str | Path) else ""
        if overrides:
            where = f"{where.removesuffix(': ')} with {' '.join(overrides)}: ".lstrip()
        raise ConfigError(where + "; ".join(_explain(e, model) for e in error.errors())) from None


def flat_overrides(words: Sequence[str]) -> dict[str, Any]:
    """`a.b=value` words as dotted keys with plain JSON values.

    Raises:
        ConfigError: a word without a value, or a value that is not YAML or not plain.

    >>> flat_overrides(["train.updates=5", "eval.k=[1, 4]"])
    {'train.updates': 5, 'eval.k': [1, 4]}
    """
    found: dict[str, Any] = {}
    for word in words:
        tree: Any = _parse_override(word)
        key = word.partition("=")[0].strip()
        for part in key.split("."):
            tree = tree[part]
        try:
            found[key] = json.loads(json.dumps(tree, allow_nan=False))
        except (TypeError, ValueError):
            raise ConfigError(f"override {word!r}: a {type(tree).__name__} is no setting; put it in quotes") from None
    return found


def _parse_override(text: str) -> dict[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"override {text!r} has no value; write section.key=value, e.g. train.updates=20")
    try:
        tree: Any = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"override {text!r}: the value is not YAML: {error}") from None
    for part in reversed(key.strip().split(".")):
        tree = {part: tree}
    return dict(tree)


def _explain(error: Any, model: type[BaseModel]) -> str:
    """One pydantic error as `a.b: what is wrong (given: x)`, with a did-you-mean for unknown keys."""
    location = [str(part) for part in error["loc"]]
    dotted = ".".join(location) or "configuration"
    if error["type"] == "extra_forbidden":
        allowed = sorted(_fields_at(model, location[:-1]))
        return f"{dotted}: unknown setting; allowed here: {', '.join(allowed)}.{did_you_mean(location[-1], allowed)}"
    message = error["msg"].removeprefix("Value error, ")
    near = did_you_mean(str(error["input"]), re.findall(r"'([^']+)'", str(error.get("ctx", {}).get("expected", ""))))
    return f"{dotted}: {message} (given: {error['input']!r}).{near}"


def _fields_at(model: type[BaseModel], path: Sequence[str]) -> set[str]:
    """Names allowed in the section that `path` leads to."""
    for part in path:
        found = model.model_fields.get(part)
        arms = getattr(found.annotation, "__args__", (found.annotation,)) if found else ()
        sections = [arm for arm in arms if isinstance(arm, type) and issubclass(arm, BaseModel)]
        if not sections:
            return set()
        model = sections[0]
    return set(model.model_fields)
