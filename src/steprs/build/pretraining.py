"""`pretrain`: a configuration becomes a tiny policy's checkpoint folder."""

from __future__ import annotations

from pathlib import Path

import yaml

from ..config import PretrainConfig
from ..training.pretrain import PretrainSettings
from ..training.pretrain import pretrain as pretrain_policy
from .objects import build_task


def pretrain(config: PretrainConfig, *, output: str | Path | None = None) -> Path:
    """Make a tiny policy from nothing and return its folder, which `policy.path` takes.

    Args:
        config: architecture, task and length of the training.
        output: the folder; default `config.output`, then `runs/pretrain-<name>`.

    Raises:
        ConfigError, TaskError, NonFiniteError: see `steprs.training.pretrain.pretrain`.

    Example: `pretrain(load_config("tiny.yaml", model=PretrainConfig))`.
    """
    folder = Path(output or config.output or f"runs/pretrain-{config.name}")
    settings = config.model_dump(include=set(PretrainSettings.__dataclass_fields__))
    recipe = yaml.safe_dump(config.model_dump(mode="json", exclude={"output"}), sort_keys=False)
    return pretrain_policy(PretrainSettings(**settings), build_task(config.task), folder, recipe=recipe)
