"""`pretrain`: a configuration becomes a policy's checkpoint folder."""

from __future__ import annotations

from pathlib import Path

import torch
import yaml

from ..config import PretrainConfig
from ..training.pretrain import PretrainSettings
from ..training.pretrain import pretrain as pretrain_policy
from .checks import check_masters
from .objects import build_policy, build_task


def pretrain(config: PretrainConfig, *, output: str | Path | None = None) -> Path:
    """Make a tiny policy from nothing, or adapt one, and return its folder, which `policy.path` takes.

    Args:
        config: architecture or policy, task and length of the training.
        output: the folder; default `config.output`, then `runs/pretrain-<name>`.

    Raises:
        ConfigError, PolicyError, TaskError, NonFiniteError: see `steprs.training.pretrain.pretrain`.

    Example: `pretrain(load_config("tiny.yaml", model=PretrainConfig))`.
    """
    folder = Path(output or config.output or f"runs/pretrain-{config.name}")
    settings = config.model_dump(include=set(PretrainSettings.__dataclass_fields__))
    unsaid = {"output"} | (config.shape if config.policy else {"policy"})
    recipe = yaml.safe_dump(config.model_dump(mode="json", exclude=unsaid), sort_keys=False)
    policy = None
    if config.policy is not None:
        check_masters(config.policy)
        policy = build_policy(config.policy, device="cuda" if torch.cuda.is_available() else "cpu", seed=config.seed)
    return pretrain_policy(PretrainSettings(**settings), build_task(config.task), folder, recipe=recipe, policy=policy)
