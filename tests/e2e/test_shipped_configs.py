"""Every shipped configuration parses, names only what exists, and plans (or makes) what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from steprs.build import build_task, plan_text, pretrain
from steprs.config import PretrainConfig, RunConfig, load_config
from steprs.configs import find_config, shipped_configs
from steprs.errors import ConfigError

SHIPPED = shipped_configs()
TRAIN = ["demo", *(name for name in SHIPPED if name.startswith("train/"))]
PRETRAIN = [name for name in SHIPPED if name.startswith("pretrain/")]
# Small enough to make in a test where a run needs a policy that does not ship.
SMALLEST = ["updates=1", "batch_size=2", "hidden_size=16", "intermediate_size=16", "layers=1", "heads=2"]


def test_the_documented_ones_ship() -> None:
    documented = {
        "demo",
        "train/countdown",
        "train/countdown-full",
        "train/chain",
        "pretrain/tiny",
        "pretrain/tiny-full",
    }
    assert documented <= set(SHIPPED)


@pytest.mark.parametrize("name", TRAIN)
def test_a_training_run_plans(name: str, tmp_path: Path) -> None:
    run = load_config(SHIPPED[name], model=RunConfig)
    made = policy_made_by_the_header(SHIPPED[name], run, tmp_path)
    plan = plan_text(load_config(SHIPPED[name], made, model=RunConfig))
    assert run.task.name in plan
    assert f"{run.train.updates} updates" in plan


def policy_made_by_the_header(file: Path, run: RunConfig, folder: Path) -> list[str]:
    """If the run's comment says how to make its policy, make a small one by that command and point the run at it."""
    command = re.search(r"^#\s+steprs pretrain (.*)$", file.read_text(), re.M)
    if not command:
        return []
    recipe, *overrides = shlex.split(command[1])
    settings = load_config(find_config(recipe), overrides, model=PretrainConfig)
    assert run.policy.path == f"runs/pretrain-{settings.name}", "the command must make the policy that the run names"
    small = load_config(find_config(recipe), [*overrides, *SMALLEST], model=PretrainConfig)
    return [f"policy.path={pretrain(small, output=folder / 'policy')}"]


@pytest.mark.parametrize("name", PRETRAIN)
def test_a_pretraining_names_a_task(name: str) -> None:
    settings = load_config(SHIPPED[name], model=PretrainConfig)
    task = build_task(settings.task)
    assert task.completion_length % (settings.block_size or task.block_size) == 0


def test_recipes_are_not_copies() -> None:
    """One root; the others say what differs and repeat nothing that it says."""
    trees = {name: yaml.safe_load(SHIPPED[name].read_text()) for name in TRAIN}
    roots = [name for name, tree in trees.items() if "base" not in tree]
    assert roots == ["train/countdown"]
    settings = {name: set(leaves(tree)) for name, tree in trees.items()}
    assert {
        name: settings[name] & settings[roots[0]]
        for name in TRAIN
        if name not in roots and settings[name] & settings[roots[0]]
    } == {}


def leaves(tree: dict, prefix: str = "") -> list[tuple[str, str]]:  # type: ignore[type-arg]
    found = []
    for key, value in tree.items():
        found += leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, str(value))]
    return found


def test_names_and_paths_are_found(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("seed: 1\n")
    assert find_config(str(mine)) == mine
    assert find_config("train/countdown") == find_config("train/countdown.yaml") == SHIPPED["train/countdown"]
    with pytest.raises(ConfigError, match="Did you mean 'train/chain'"):
        find_config("train/chains")
