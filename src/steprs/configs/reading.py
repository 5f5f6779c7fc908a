"""Configuration files as nested mappings: YAML or JSON, each laid over the file that its `base` names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ..errors import ConfigError
from . import shipped_configs


class _UniqueKeys(yaml.SafeLoader):
    """YAML in which a key may stand once: the last of two would win in silence."""


def _mapping(loader: _UniqueKeys, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise ConfigError(
                f"key {key!r} stands twice in one section, the second time in line {key_node.start_mark.line + 1}"
            )
        seen.add(key)
    return dict(yaml.SafeLoader.construct_mapping(loader, node, deep=True))


_UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_file(path: str | Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The file's mapping laid over the mapping of its `base`, if it names one."""
    file = Path(path)
    if file.resolve() in seen:
        raise ConfigError(f"{file}: `base` files form a circle: {' -> '.join(str(p) for p in seen)}")
    try:
        tree = yaml.load(file.read_text(encoding="utf-8"), Loader=_UniqueKeys)
    except OSError as error:
        raise ConfigError(f"cannot read configuration {file}: {error.strerror}; give the path of a YAML file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"cannot read configuration {file}: it is not UTF-8 text") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{file} is not YAML: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    tree = {} if tree is None else tree
    if not isinstance(tree, dict):
        raise ConfigError(f"{file} holds a {type(tree).__name__}; a configuration is a mapping of settings")
    base = tree.pop("base", None)
    return tree if base is None else merged(read_file(_base_file(file, base), (*seen, file.resolve())), tree)


def _base_file(file: Path, base: Any) -> Path:
    """A file beside this one, or else a shipped configuration's name."""
    if not isinstance(base, str):
        raise ConfigError(f"{file}: base is {base!r}; give one file name, relative to this file, or a shipped name")
    beside = file.parent / base
    if beside.is_file():
        return beside
    shipped = shipped_configs()
    if (name := base.removesuffix(".yaml")) in shipped:
        return shipped[name]
    raise ConfigError(f"{file}: base {base!r} is no file beside it; shipped names: {', '.join(shipped)}")


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Settings of `over` laid over `under`, section by section.

    >>> merged({"train": {"updates": 3, "group_size": 4}}, {"train": {"updates": 5}})
    {'train': {'updates': 5, 'group_size': 4}}
    """
    result = dict(under)
    for key, value in over.items():
        sections = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if sections else value
    return result
