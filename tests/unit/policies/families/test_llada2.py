"""LLaDA2.0's layout: loaded, equal to the network by hand in float64, conforming, and written back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from published import LAYOUTS, random_tensors, write_checkpoint
from published_llada2 import CHOSEN, EXPERTS, GROUPS, HEAD, HEADS, KEPT_GROUPS, KV_HEADS, LAYERS, SCALE, THETA
from safetensors.torch import load_file
from torch import Tensor

from steprs.errors import PolicyError
from steprs.policies.base import Policy
from steprs.policies.loading import Lora, load_policy
from steprs.policies.saving import save_policy
from steprs.testing.policies import check_policy

from .reference import Array, rms_norm, rotate

NAME, EPS = "llada2", 1e-6
PROMPTS = [[5, 9, 7], [11, 6, 20, 8, 9]]


def reference(tensors: Mapping[str, Tensor], ids: list[int]) -> Array:
    """Logits of one row without padding, blocks of 4 counted from its first token."""

    def weight(name: str) -> Array:
        return tensors[name + ".weight"].double().numpy()

    def gated(name: str, normed: Array) -> Array:
        gate, up = normed @ weight(name + "gate_proj").T, normed @ weight(name + "up_proj").T
        return (gate / (1 + np.exp(-gate)) * up) @ weight(name + "down_proj").T

    hidden = weight("model.word_embeddings")[ids]
    for layer in range(LAYERS):
        front = f"model.layers.{layer}."
        normed = rms_norm(hidden, weight(front + "input_layernorm"), EPS)
        heads = (normed @ weight(front + "attention.query_key_value").T).reshape(len(ids), -1, HEAD)
        queries = rms_norm(heads[:, :HEADS], weight(front + "attention.query_layernorm"), EPS)
        keys = rms_norm(heads[:, HEADS : HEADS + KV_HEADS], weight(front + "attention.key_layernorm"), EPS)
        values = heads[:, HEADS + KV_HEADS :]
        out = np.zeros((len(ids), HEADS, HEAD))
        for head in range(HEADS):
            shared = head // (HEADS // KV_HEADS)
            for at in range(len(ids)):
                seen = [other for other in range(len(ids)) if other // 4 <= at // 4]
                query = half_turned(queries[at, head], at)
                scores = np.array([query @ half_turned(keys[o, shared], o) / HEAD**0.5 for o in seen])
                chances = np.exp(scores - scores.max())
                out[at, head] = chances / chances.sum() @ values[seen, shared]
        hidden = hidden + out.reshape(len(ids), -1) @ weight(front + "attention.dense").T
        normed = rms_norm(hidden, weight(front + "post_attention_layernorm"), EPS)
        if layer == 0:
            hidden = hidden + gated(front + "mlp.", normed)
            continue
        mixed = gated(front + "mlp.shared_experts.", normed)
        bias = tensors[front + "mlp.gate.expert_bias"].double().numpy()
        for at, logits in enumerate(normed @ weight(front + "mlp.gate").T):
            chosen, scores = route(logits, bias)
            for expert in chosen:
                share = SCALE * scores[expert] / scores[chosen].sum()
                mixed[at] += share * gated(f"{front}mlp.experts.{expert}.", normed[at : at + 1])[0]
        hidden = hidden + mixed
    return rms_norm(hidden, weight("model.norm"), EPS) @ weight("lm_head").T


def half_turned(vector: Array, position: int) -> Array:
    """Rotary embedding on the first half of a head."""
    return np.concatenate((rotate(vector[: HEAD // 2], position, THETA), vector[HEAD // 2 :]))


def route(logits: Array, bias: Array) -> tuple[list[int], Array]:
    """The best experts of the best groups, a group being as good as its two best; the bias only chooses."""
    scores = 1 / (1 + np.exp(-logits))
    biased, size = scores + bias, EXPERTS // GROUPS
    worth = [sum(sorted(biased[g * size : (g + 1) * size])[-2:]) for g in range(GROUPS)]
    kept = sorted(range(GROUPS), key=lambda group: -worth[group])[:KEPT_GROUPS]
    allowed = [expert for expert in range(EXPERTS) if expert // size in kept]
    return sorted(allowed, key=lambda expert: -biased[expert])[:CHOSEN], scores


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("published") / NAME, NAME)


@pytest.fixture
def policy(folder: Path) -> Policy:
    return load_policy(folder)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_logits_are_those_of_the_network_by_hand(policy: Policy, implementation: str) -> None:
    policy.model.set_attn_implementation(implementation)
    tensors = random_tensors(LAYOUTS[NAME])
    rows = [[*prompt, 30, 2, 2, 17, 2, 8, 25, 2] for prompt in PROMPTS]
    width = max(map(len, rows))
    ids_BT = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    real_BT = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])
    block_BT = policy.block_layout(real_BT[:, :-8], 8)
    logits_BTV = policy.logits(ids_BT, attention_mask=real_BT, block_BT=block_BT).detach().double().numpy()
    for row, real_T, logits_TV in zip(rows, real_BT, logits_BTV, strict=True):
        np.testing.assert_allclose(logits_TV[real_T.numpy()], reference(tensors, row), atol=3e-5, rtol=3e-5)


def test_conforms(policy: Policy) -> None:
    check_policy(policy)


def test_facts_come_from_the_checkpoint(policy: Policy) -> None:
    assert (policy.family, policy.attention, policy.block_size, policy.prompt_block) == (
        NAME, "block_causal", 4, "aligned",
    )  # fmt: skip
    assert (policy.mask_token_id, policy.eos_token_id, policy.pad_token_id, policy.shifted) == (2, 1, 1, False)
    assert not any("bias" in name for name, _ in policy.named_parameters()), "the router's bias is not learned"


def test_written_back_as_it_was_published(policy: Policy, folder: Path, tmp_path: Path) -> None:
    for again in (policy.save(tmp_path / "again"), save_policy(policy, tmp_path / "shards", shard_bytes=20_000)):
        written = {name: tensor for file in again.glob("*.safetensors") for name, tensor in load_file(file).items()}
        published = load_file(folder / "model.safetensors")
        assert written.keys() == published.keys()
        assert all(torch.equal(written[name], published[name]) for name in written)
        ids = torch.tensor([[5, 9, 7, 2, 2, 11, 2, 2]])
        assert torch.equal(load_policy(again).logits(ids), policy.logits(ids))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score_function": "softmax"}, "score_function is 'softmax'"),
        ({"use_qkv_bias": True}, "use_qkv_bias is True"),
        ({"norm_topk_prob": False}, "norm_topk_prob is False"),
        ({"num_shared_experts": 0}, "no shared expert"),
        ({"n_group": None}, "config.json lacks n_group"),
        ({"architectures": ["BailingMoeV2ForCausalLM"]}, "'llada2' but holds a BailingMoeV2ForCausalLM"),
    ],
)
def test_what_is_not_computed_is_refused(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=message):
        load_policy(write_checkpoint(tmp_path / "other", NAME, edit=lambda config: config.update(changes)))


def test_other_families_and_adapters_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="which is family 'llada2', not 'llada'"):
        load_policy(folder, "llada")
    with pytest.raises(PolicyError, match="joins matrices that are apart here"):
        load_policy(folder, lora=Lora(rank=2))
    tensors = random_tensors(LAYOUTS[NAME])
    tensors["model.layers.0.attention.query_key_value.weight"] = torch.zeros(60, 32)
    del tensors["model.layers.1.mlp.gate.expert_bias"]
    with pytest.raises(
        PolicyError, match=r"missing: .*expert_bias; of another shape: .* is \[60, 32\].*says \[64, 32\]"
    ):
        load_policy(write_checkpoint(tmp_path / "torn", NAME, tensors=tensors))
