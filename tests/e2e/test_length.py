"""A rollout of 2,048 tokens, from prompt to two updates, in the published layout of SDAR."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from published import LAYOUTS, random_tensors, write_checkpoint
from safetensors.torch import load_file
from support import records, small_config

from steprs import build
from steprs.tasks.countdown import CountdownTask
from steprs.types import Verdict

LENGTH = 2048


class Alternating(CountdownTask):
    """Every second text is right, whatever it says: random weights have something to learn from."""

    turn = 0

    def score(self, problem, completion):
        Alternating.turn += 1
        right = Alternating.turn % 2 == 0
        return Verdict(reward=float(right), status="right" if right else "wrong", answer_key=completion)


def endless_tensors() -> dict[str, torch.Tensor]:
    """Random weights whose first coordinate is large at every position and speaks against the end token."""
    names = LAYOUTS["sdar"].names
    tensors = random_tensors(LAYOUTS["sdar"])
    tensors[names["embed"]][:, 0] = 4.0
    tensors[names["head"]][:, 0] = 0.0
    tensors[names["head"]][[1, 4], 0] = -40.0
    return tensors


def test_two_updates_on_completions_of_2048_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steprs.build.runs.build_task", lambda config: Alternating())
    folder = write_checkpoint(tmp_path / "published", "sdar", tensors=endless_tensors())
    config = small_config(
        f"policy.path={folder}", "policy.attention=sdpa", "train.updates=2", "train.prompts_per_update=1",
        "train.group_size=2", f"sampler.length={LENGTH}", f"sampler.steps={LENGTH // 4}", "train.learning_rate=0.001",
    )  # fmt: skip
    run = build.train(config, output=tmp_path / "run")
    first, second = records(run)
    assert first["skipped"] == second["skipped"] == 0.0
    for record in (first, second):
        assert LENGTH // 4 <= record["rollout/steps"] <= LENGTH // 4 + 1
        assert record["tokens/scored"] == 2 * LENGTH
        assert record["logprob_gap/max"] < 1e-3 and abs(record["ratio/mean"] - 1) < 1e-5
    trained = load_file(run / "checkpoints" / "update-000002" / "model.safetensors")
    assert all(not torch.equal(trained[name], old) for name, old in endless_tensors().items())
