"""Small runs of the real thing: the shipped policy, few rollouts, seconds."""

import json
from pathlib import Path

from safetensors.torch import load_file

from steprs.config import RunConfig, load_config

SMALL = {
    "seed": 11,
    "policy": {"dtype": "float32"},  # equality bit for bit must not hang on what `auto` measures
    "risk": {"scale": 1.5},
    "train": {
        "updates": 3,
        "prompts_per_update": 4,
        "group_size": 8,
        "warmup_updates": 1,
        "save_every": 1,
        "eval_every": 0,
        "keep_last": 10,
        "log_completions": 1,
    },
    "eval": {"problems": 4, "samples": 4, "k": [1, 4]},
}


def small_config(*overrides: str) -> RunConfig:
    """The small run with dotted overrides."""
    return load_config(SMALL, overrides, model=RunConfig)


def records(folder: Path, name: str = "metrics.jsonl") -> list[dict]:
    """Every record of a run's JSON lines."""
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def without_seconds(lines: list[dict]) -> list[dict]:
    """Records without the only keys that may differ between two equal runs."""
    return [{key: value for key, value in line.items() if not key.startswith("seconds/")} for line in lines]


def weights(folder: Path, update: int, file: str = "model.safetensors") -> dict:
    """The policy's weights after an update."""
    return load_file(folder / "checkpoints" / f"update-{update:06d}" / file)


def same_weights(one: dict, other: dict) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)
