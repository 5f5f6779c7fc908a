"""Configurations that ship with the package, and how the command line finds one. Never imports torch.

A name is the path below this folder without its ending: `demo`, `train/countdown`, `pretrain/tiny`.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

from ..errors import ConfigError, unknown_name


def shipped_configs() -> dict[str, Path]:
    """Every shipped configuration: name -> file.

    >>> "train/countdown" in shipped_configs()
    True
    """
    with as_file(files(__name__)) as root:
        return {path.relative_to(root).with_suffix("").as_posix(): path for path in sorted(root.rglob("*.yaml"))}


def find_config(name: str) -> Path:
    """The file that `name` means: a path if there is one, else a shipped name.

    Args:
        name: `my/run.yaml`, `runs/x/config.json` or `train/countdown`.

    Raises:
        ConfigError: neither a file nor a shipped name.

    >>> find_config("train/countdown").name
    'countdown.yaml'
    """
    if Path(name).is_file():
        return Path(name)
    shipped = shipped_configs()
    found = shipped.get(name.removesuffix(".yaml"))
    if found is None:
        raise ConfigError(f"no file {name}, and {unknown_name('shipped configuration', name, shipped)}")
    return found
