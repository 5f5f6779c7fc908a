"""A saved policy comes back bit for bit; what is not ours is refused by name."""

import json
import sys
import time

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from steprs.errors import DependencyError, PolicyError
from steprs.policies import dtypes
from steprs.policies.dtypes import resolve_dtype
from steprs.policies.loading import Lora, load_policy


@pytest.fixture
def saved(make_policy, tmp_path):
    return make_policy().save(tmp_path / "policy")


def edit(path, **changes):
    tree = json.loads(path.read_text())
    path.write_text(json.dumps(tree | changes))


def test_round_trip_is_bitwise(make_policy, saved, inputs):
    ids, valid = inputs
    before, after = make_policy(), load_policy(saved)
    for (name, left), (other, right) in zip(before.named_parameters(), after.named_parameters(), strict=True):
        assert name == other and torch.equal(left, right)
    assert torch.equal(before.logits(ids, attention_mask=valid), after.logits(ids, attention_mask=valid))
    assert after.manifest() == before.manifest()
    assert after.tokenizer("9 + 1")["input_ids"] == before.tokenizer("9 + 1")["input_ids"]
    again = after.save(saved.parent / "again")
    for name in ("model.safetensors", "config.json", "tokenizer.json", "steprs.json"):
        assert (again / name).read_bytes() == (saved / name).read_bytes(), name


def test_plain_transformers_reads_it(make_policy, saved, inputs):
    ids, _ = inputs
    model = AutoModelForCausalLM.from_pretrained(saved)
    assert AutoTokenizer.from_pretrained(saved).mask_token_id == 2
    mask = torch.zeros(3, 1, 13, 13)
    plain = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    torch.testing.assert_close(plain, make_policy(attention="bidirectional").logits(ids), atol=1e-5, rtol=0)


def test_a_foreign_checkpoint_is_refused_by_name(saved):
    (saved / "steprs.json").unlink()
    edit(saved / "config.json", architectures=["LLaDAModelLM"])
    with pytest.raises(PolicyError, match="LLaDAModelLM checkpoint of model_type 'llama' and of no family known here"):
        load_policy(saved)


def test_a_family_with_another_architecture_is_refused(saved):
    edit(saved / "config.json", architectures=["Qwen3ForCausalLM"])
    with pytest.raises(PolicyError, match="'tiny' but holds a Qwen3ForCausalLM"):
        load_policy(saved)


def test_an_unknown_family_is_refused_with_a_hint(saved):
    edit(saved / "steprs.json", family="tinny")
    with pytest.raises(PolicyError, match="unknown policy family 'tinny'.*Did you mean 'tiny'"):
        load_policy(saved)


def test_code_beside_a_known_family_is_carried_along_and_never_run(saved, tmp_path):
    edit(saved / "config.json", auto_map={"AutoModelForCausalLM": "modeling.Evil"})
    (saved / "modeling.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    policy = load_policy(saved, trust_remote_code=True)
    again = policy.save(tmp_path / "again")
    assert not (tmp_path / "ran").exists()
    assert (again / "modeling.py").read_bytes() == (saved / "modeling.py").read_bytes()


def test_pickled_weights_are_not_read(saved):
    (saved / "model.safetensors").rename(saved / "pytorch_model.bin")
    with pytest.raises(PolicyError, match="no .safetensors"):
        load_policy(saved)


def test_weights_that_do_not_fit_are_refused(saved):
    edit(saved / "config.json", num_hidden_layers=3)
    with pytest.raises(PolicyError, match="do not fit its config.json"):
        load_policy(saved)


@pytest.mark.parametrize(("name", "hint"), [("tinny", "Did you mean 'tiny'"), ("/nowhere", "neither a shipped name")])
def test_unknown_names_say_what_is_allowed(name, hint):
    with pytest.raises(PolicyError, match=hint):
        load_policy(name)


def test_adapters_start_as_the_policy_and_train_alone(make_policy, saved, inputs):
    ids, _ = inputs
    adapted = load_policy(saved, lora=Lora(rank=2, alpha=4.0)).train(True)
    plain = make_policy().logits(ids)
    assert torch.equal(adapted.logits(ids), plain)
    assert all("lora_" in name for name, _ in adapted.named_parameters())
    assert not any("lm_head" in name for name, _ in adapted.named_parameters())
    with torch.no_grad():
        for weight in adapted.parameters():
            weight.add_(0.1)
    assert (adapted.logits(ids) - plain).abs().max() > 1e-3
    with adapted.no_adapter():
        assert torch.equal(adapted.logits(ids), plain)
    merged = load_policy(adapted.save(saved.parent / "merged"))
    torch.testing.assert_close(merged.logits(ids), adapted.logits(ids), atol=1e-5, rtol=0)
    assert (adapted.logits(ids) - plain).abs().max() > 1e-3, "saving must not merge the policy in use"


def test_adapters_without_peft_name_the_install_command(saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(DependencyError, match="pip install 'steprs\\[peft\\]'"):
        load_policy(saved, lora=Lora())


@pytest.mark.parametrize("timed", ["product", "policy"])
def test_auto_dtype_takes_what_is_clearly_faster(monkeypatch, saved, timed):
    """A small policy is timed itself; without one, or with a large one, a product of matrices is."""
    policy = load_policy(saved)
    monkeypatch.setattr(dtypes, "TIMED_WEIGHTS", 10**9 if timed == "policy" else 1)
    right, wrong = ("_forward", "_product") if timed == "policy" else ("_product", "_forward")
    seconds = {torch.float32: 0.01, torch.bfloat16: 0.001}
    monkeypatch.setattr(dtypes, right, lambda *args: time.sleep(seconds[args[-2]]))
    monkeypatch.setattr(dtypes, wrong, lambda *_: pytest.fail("the other one was timed"))
    assert resolve_dtype("auto", "cpu", policy) == torch.bfloat16
    seconds[torch.bfloat16] = 0.05
    assert resolve_dtype("auto", "cpu", policy) == torch.float32
    with pytest.raises(PolicyError, match="unknown dtype 'float16'"):
        resolve_dtype("float16")


def test_the_timed_forward_is_a_forward_of_the_policy(saved):
    assert resolve_dtype("auto", "cpu", load_policy(saved)) in (torch.float32, torch.bfloat16)


def test_flex_attention_needs_cuda(saved):
    with pytest.raises(PolicyError, match="needs a CUDA device"):
        load_policy(saved, attention="flex_attention")


def test_checkpointing_is_switched_on_and_only_used_in_training(saved, inputs):
    ids, _ = inputs
    policy = load_policy(saved, gradient_checkpointing=True)
    assert policy.backbone.gradient_checkpointing
    plain = load_policy(saved)
    assert torch.equal(policy.train(True).logits(ids), plain.logits(ids))
