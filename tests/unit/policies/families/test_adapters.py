"""Adapters in peft's own files: under the published names, read back, by peft as well, and added to the weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from published import FAMILY_NAMES, LAYOUTS, random_tensors, write_checkpoint
from safetensors.torch import load_file
from torch import nn

from steprs.errors import PolicyError
from steprs.policies.base import Policy
from steprs.policies.loading import Lora, load_policy

peft = pytest.importorskip("peft")
IDS = torch.tensor([[5, 9, 7, 2, 2, 11, 2, 2]])


@pytest.fixture(params=FAMILY_NAMES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def adapted(family: str, tmp_path: Path) -> Policy:
    """With adapters that say something."""
    folder = write_checkpoint(tmp_path / "base", family)
    policy = load_policy(folder, lora=Lora(rank=2, alpha=6.0))
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))
    return policy


def logits(policy: Policy) -> torch.Tensor:
    return policy.logits(IDS, block_BT=policy.block_layout(torch.ones(1, 3, dtype=torch.bool), 5))


def skeleton(names: list[str]) -> nn.Module:
    """Nothing but linear layers under the published names: what the family's own code looks like to peft."""
    root = nn.Module()
    tensors = random_tensors(LAYOUTS[json.loads(names[0])])
    for name, tensor in tensors.items():
        if tensor.ndim == 2 and name.endswith(".weight"):
            *path, leaf, _ = name.split(".")
            module = root
            for part in path:
                if not hasattr(module, part):
                    module.add_module(part, nn.Module())
                module = getattr(module, part)
            layer = nn.Linear(tensor.shape[1], tensor.shape[0], bias=False)
            layer.weight = nn.Parameter(tensor)
            module.add_module(leaf, layer)
    return root


def test_adapters_alone_are_written_and_come_back(family: str, adapted: Policy, tmp_path: Path) -> None:
    folder = adapted.save(tmp_path / "adapters")
    assert not list(folder.glob("model*.safetensors"))
    assert json.loads((folder / "steprs.json").read_text())["base"] == str(tmp_path / "base")
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == str(tmp_path / "base")
    again = load_policy(folder)
    assert again.has_adapters and again.manifest() == adapted.manifest()
    assert torch.equal(logits(again), logits(adapted))
    with again.no_adapter():
        assert torch.equal(logits(again), logits(load_policy(tmp_path / "base")))
    with pytest.raises(PolicyError, match="already has adapters; merge them first"):
        load_policy(folder, lora=Lora())
    (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(PolicyError, match="which is not there.*Put its new place into 'base'"):
        load_policy(folder)


def test_peft_loads_them_onto_the_published_names(family: str, adapted: Policy, tmp_path: Path) -> None:
    folder = adapted.save(tmp_path / "adapters")
    theirs = peft.PeftModel.from_pretrained(skeleton([json.dumps(family)]), folder)
    state = peft.get_peft_model_state_dict(theirs)
    written = load_file(folder / "adapter_model.safetensors")
    # A and B of seven matrices in two layers; experts have none, so that only the attention's four are left.
    matrices = 7 if LAYOUTS[family].chosen is None else 4
    assert state.keys() == written.keys() and len(state) == 2 * matrices * 2
    assert all(torch.equal(state[name], written[name]) for name in state)
    layer = theirs.get_base_model().get_submodule(LAYOUTS[family].names["o"].format(1).removesuffix(".weight"))
    expected = 3.0 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight  # alpha / rank = 3
    ours = adapted.backbone.layers[1].self_attn.o_proj
    torch.testing.assert_close(ours.get_delta_weight("default"), expected, atol=1e-6, rtol=0)


def test_merged_weights_are_the_sums_in_the_published_layout(family: str, adapted: Policy, tmp_path: Path) -> None:
    before = logits(adapted)
    merged = adapted.save(tmp_path / "merged", merge=True)
    tensors, base = load_file(merged / "model.safetensors"), random_tensors(LAYOUTS[family])
    assert tensors.keys() == base.keys()
    layer = adapted.backbone.layers[0].self_attn.o_proj
    name = LAYOUTS[family].names["o"].format(0)
    expected = base[name] + 3.0 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    torch.testing.assert_close(tensors[name], expected, atol=1e-6, rtol=0)
    untouched = {LAYOUTS[family].names[role] for role in ("embed", "head", "final")}
    assert all(torch.equal(tensors[name], base[name]) for name in untouched)
    torch.testing.assert_close(logits(load_policy(merged)), before, atol=2e-5, rtol=0)
    assert torch.equal(logits(adapted), before), "saving must not merge the policy in use"


def test_adapters_of_another_shape_are_named(family: str, adapted: Policy, tmp_path: Path) -> None:
    folder = adapted.save(tmp_path / "adapters")
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"r": 3}))
    with pytest.raises(PolicyError, match=r"the adapters in .* do not fit the model: base_model"):
        load_policy(folder)
    (folder / "adapter_config.json").write_text(json.dumps(config | {"peft_type": "IA3"}))
    with pytest.raises(PolicyError, match="adapters of kind 'IA3'"):
        load_policy(folder)


def test_frozen_weights_may_be_half_and_their_adapters_stay_float32(family: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "base", family)
    policy = load_policy(folder, lora=Lora(rank=2), weights="bfloat16", dtype="bfloat16").train(True)
    assert {weight.dtype for weight in policy.parameters()} == {torch.float32}
    frozen = [weight for weight in policy.unwrapped.parameters() if not weight.requires_grad]
    assert {weight.dtype for weight in frozen} == {torch.bfloat16}
    logits(policy).square().mean().backward()
    assert any(bool(weight.grad.any()) for weight in policy.parameters())
