"""Code of a checkpoint's own: run only when trusted, and only driven if it obeys its mask."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from published import LAYOUTS, tokenizer_of
from safetensors.torch import save_file

from steprs.errors import PolicyError
from steprs.policies.loading import load_policy
from steprs.testing.policies import check_policy

CODE = '''
import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

class StrangeConfig(PreTrainedConfig):
    model_type = "strange"

class StrangeModel(PreTrainedModel):
    """One head of attention; a class that transformers does not know."""
    config_class = StrangeConfig
    _supports_sdpa = True

    def __init__(self, config):
        super().__init__(config)
        self.words = torch.nn.Embedding(64, 16)
        self.places = torch.nn.Embedding(64, 16)
        self.mix = torch.nn.Linear(16, 16, bias=False)
        self.out = torch.nn.Linear(16, 64, bias=False)
        self.post_init()

    def _init_weights(self, module):
        pass

    def get_input_embeddings(self):
        return self.words

    def forward(self, input_ids, attention_mask=None, position_ids=None):
        hidden = self.words(input_ids) + self.places(position_ids)
        scores = hidden @ hidden.transpose(1, 2)
        if OBEYS:
            scores = scores + attention_mask[:, 0]
        hidden = hidden + torch.tanh(self.mix(scores.softmax(-1) @ hidden))
        return CausalLMOutput(logits=self.out(hidden))
'''


def strange(folder: Path, obeys: bool, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(folder / "cache"))
    folder.mkdir()
    tokenizer_of(LAYOUTS["a2d"]).save_pretrained(folder)
    (folder / "modeling_strange.py").write_text(CODE.replace("OBEYS", str(obeys)))
    (folder / "config.json").write_text(
        '{"model_type": "strange", "architectures": ["StrangeModel"], "mask_token_id": 2, "eos_token_id": 1,'
        ' "auto_map": {"AutoConfig": "modeling_strange.StrangeConfig", "AutoModel": "modeling_strange.StrangeModel"}}'
    )
    generator = torch.Generator().manual_seed(0)
    shapes = {"words.weight": (64, 16), "places.weight": (64, 16), "mix.weight": (16, 16), "out.weight": (64, 16)}
    tensors = {name: 0.3 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_trusted_code_that_obeys_is_a_policy_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = strange(tmp_path / "strange", True, monkeypatch)
    with pytest.raises(PolicyError, match=r"wants to run its own Python files.*trust_remote_code=True"):
        load_policy(folder, "remote")
    with pytest.raises(PolicyError, match=r"no family known here.*'remote' with trust_remote_code"):
        load_policy(folder, trust_remote_code=True)
    policy = load_policy(folder, "remote", trust_remote_code=True)
    check_policy(policy)
    again = policy.save(tmp_path / "again")
    assert (again / "modeling_strange.py").read_bytes() == (folder / "modeling_strange.py").read_bytes()
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "cache"))
    ids = torch.tensor([[5, 2, 7, 2]])
    assert torch.equal(load_policy(again, trust_remote_code=True).logits(ids), policy.logits(ids))
    head = policy.logits(ids, select_BT=ids == 2, reduce=lambda head, rows: head(rows) * 2)
    assert torch.equal(head, 2 * policy.logits(ids)[ids == 2])


def test_code_that_ignores_its_mask_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = strange(tmp_path / "strange", False, monkeypatch)
    with pytest.raises(PolicyError, match="does not obey its attention mask"):
        load_policy(folder, "remote", trust_remote_code=True)
