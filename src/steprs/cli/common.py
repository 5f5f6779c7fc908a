"""What several commands share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..config import RunConfig

INTERRUPTED = 130


class Which(StrEnum):
    """Which checkpoint of a run."""

    best = "best"
    last = "last"


class Format(StrEnum):
    """How tables are printed."""

    text = "text"
    markdown = "markdown"
    csv = "csv"
    json = "json"


@contextmanager
def interruptible(advice: str) -> Iterator[None]:
    """Turn Ctrl-C into `advice` and exit code 130.

    Args:
        advice: what to type to go on, or what is lost.
    """
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"\nstopped. {advice}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def split_overrides(words: Sequence[str]) -> list[str]:
    """Check that every word is `section.key=value`.

    Raises:
        ConfigError: names the word that is not.

    >>> split_overrides(["train.updates=5"])
    ['train.updates=5']
    """
    for word in words:
        if "=" not in word:
            raise ConfigError(f"{word!r} is not an override; write section.key=value, e.g. train.updates=20")
    return list(words)


def load_run(name: str, overrides: Sequence[str]) -> RunConfig:
    """The run that `name` describes: a YAML file, a shipped name, or a run folder (its `config.json`)."""
    from ..config import RunConfig, load_config
    from ..configs import find_config

    if Path(name).is_dir():
        return load_config(_settings_of(Path(name)), split_overrides(overrides), model=RunConfig)
    return load_config(find_config(name), split_overrides(overrides), model=RunConfig)


def _settings_of(folder: Path) -> dict[str, Any]:
    """The settings kept in a run folder."""
    from ..errors import RunFolderError
    from ..training.folder import RunFolder

    settings = RunFolder(folder).read_config()
    if settings is None:
        raise RunFolderError(f"{folder} is a folder without config.json, so it holds no run; give a configuration")
    return settings
