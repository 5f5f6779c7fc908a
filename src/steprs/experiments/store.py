"""Where the runs of studies lie: one folder a configuration, found by its hash, so that studies share what is equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..config import PretrainConfig, RunConfig

_SAMPLE_BYTES = 1 << 20
# Defaults are left out, so that a setting that a later version adds leaves the runs that never had it where they are.
_NOT_THE_RUN: Any = {
    "name": True,
    "output": True,
    "train": {"trackers", "log_completions", "keep_last", "store_rollouts"},
    "eval": {"denoising", "backslide_problems"},
}
_THE_POLICY = {"policy", "task", "sampler"}
_NOT_THE_POLICY = {"name", "output", "max_minutes"}


class Store:
    """The folders below one root."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def run(self, config: RunConfig, measure: Mapping[str, Any]) -> Path:
        """A training run and its measurement; what does not change their numbers (name, trackers) is not in the hash.

        Args:
            config: of the run.
            measure: how the study measures, without its defaults. Another one makes another folder, or two studies
                would write over each other's results.
        """
        tree = _with_weights(config.model_dump(mode="json", exclude=_NOT_THE_RUN, exclude_defaults=True), config)
        return self._at("run", {"config": tree, **({"measure": dict(measure)} if measure else {})})

    def calibration(self, config: RunConfig) -> Path:
        """A measured capability and the scale that the rule makes of it."""
        tree = _with_weights(config.model_dump(mode="json", include=_THE_POLICY, exclude_defaults=True), config)
        rule = config.risk.calibration.model_dump(mode="json", exclude_defaults=True)
        return self._at("calibration", {**tree, "rule": rule})

    def base(self, config: RunConfig, way: Mapping[str, Any]) -> Path:
        """An evaluation of a policy before training, decoded in one `way`."""
        tree = _with_weights(config.model_dump(mode="json", include=_THE_POLICY, exclude_defaults=True), config)
        return self._at("base", {**tree, "way": dict(way)})

    def policy(self, config: PretrainConfig) -> Path:
        """A pretrained base policy."""
        return self._at(
            "policy", config.model_dump(mode="json", exclude={"name", "output", "max_minutes"}, exclude_defaults=True)
        )

    def _at(self, kind: str, content: Mapping[str, Any]) -> Path:
        return self.root / f"{kind}-{content_hash(content)}"


def _with_weights(tree: dict[str, Any], config: RunConfig) -> dict[str, Any]:
    """The settings with the policy's weights in the place of its path, which may be spelt in many ways."""
    digest = weights_digest(config.policy.path)
    policy = {key: value for key, value in tree.get("policy", {}).items() if key != "path" or not digest}
    return {**tree, "policy": policy, "weights": digest}


def content_hash(content: Any) -> str:
    """Twelve hex digits of a JSON value, the same on every machine and whatever the order of keys.

    >>> content_hash({"a": 1, "b": 2}) == content_hash({"b": 2, "a": 1})
    True
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


@lru_cache
def weights_digest(policy: str) -> str:
    """What tells two checkpoints of one name apart; "" for a policy that is not on this disk (yet).

    Files above two MiB count by size, head and tail, which any training step changes.
    """
    folder = Path(policy)
    if not folder.is_dir():
        folder = Path(str(files("steprs") / "checkpoints" / policy))
    digest = hashlib.blake2b(digest_size=6)
    weights = sorted(folder.glob("*.safetensors"))
    for file in weights:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}".encode())
        with file.open("rb") as handle:
            digest.update(handle.read(_SAMPLE_BYTES))
            handle.seek(max(0, size - _SAMPLE_BYTES))
            digest.update(handle.read(_SAMPLE_BYTES))
    return digest.hexdigest() if weights else ""
