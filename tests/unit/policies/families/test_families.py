"""Every published layout: loaded, equal to the network by hand, conforming, and written back as it was."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from published import ALL_NAMES, FAMILY_NAMES, LAYOUTS, random_tensors, tokenizer_of, write_checkpoint, write_shards
from safetensors import safe_open
from safetensors.torch import load_file

from steprs.errors import PolicyError
from steprs.policies import weights
from steprs.policies.base import Policy, count_before
from steprs.policies.loading import FAMILIES, Lora, Overrides, load_policy
from steprs.policies.saving import save_policy
from steprs.randomness import row_keys
from steprs.rollout.block import BlockDiffusionSampler
from steprs.rollout.masked import MaskedDiffusionSampler
from steprs.testing.policies import check_policy
from steprs.types import Decoding

from .reference import reference_logits, visible

PROMPTS = [[5, 9, 7], [11, 6, 20, 8, 9]]
LENGTH = 8


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("published")
    return {name: write_checkpoint(root / name, name) for name in FAMILY_NAMES}


@pytest.fixture(params=FAMILY_NAMES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def policy(family: str, folders: dict[str, Path]) -> Policy:
    return load_policy(folders[family])


def rows_of(policy: Policy, masked: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """Left-padded prompts with a half-masked completion, and the token mask."""
    generator = torch.Generator().manual_seed(1)
    width = max(map(len, PROMPTS))
    rows = []
    for prompt in PROMPTS:
        completion = torch.randint(5, 39, (LENGTH,), generator=generator)
        hidden = torch.rand(LENGTH, generator=generator) < 0.5
        completion = completion.masked_fill(hidden & masked, policy.mask_token_id)
        rows.append([policy.pad_token_id] * (width - len(prompt)) + prompt + completion.tolist())
    ids_BT = torch.tensor(rows)
    real = torch.tensor([[False] * (width - len(prompt)) + [True] * (len(prompt) + LENGTH) for prompt in PROMPTS])
    return ids_BT, real


def test_logits_are_those_of_the_network_by_hand(family: str, policy: Policy) -> None:
    layout, tensors = LAYOUTS[family], random_tensors(LAYOUTS[family])
    ids_BT, real_BT = rows_of(policy)
    block_BT = policy.block_layout(real_BT[:, :-LENGTH], LENGTH)
    for implementation in ("eager", "sdpa"):
        policy.model.set_attn_implementation(implementation)
        logits_BTV = policy.logits(ids_BT, attention_mask=real_BT, block_BT=block_BT).detach().double().numpy()
        for ids_T, real_T, logits_TV in zip(ids_BT, real_BT, logits_BTV, strict=True):
            row = ids_T[real_T].tolist()
            expected = reference_logits(layout, tensors, row, visible(layout, len(row)))
            np.testing.assert_allclose(logits_TV[real_T.numpy()], expected, atol=2e-5, rtol=2e-5)


def test_conforms(policy: Policy) -> None:
    check_policy(policy, length=LENGTH)


def test_facts_come_from_the_checkpoint(family: str, policy: Policy) -> None:
    layout = LAYOUTS[family]
    expected_end = 4 if layout.template else 1  # the chat template closes an answer with <|im_end|>
    assert (policy.mask_token_id, policy.eos_token_id) == (2, expected_end)
    assert policy.tokenizer.convert_ids_to_tokens(2) == layout.mask
    assert policy.tokenizer.chat_template == layout.template
    assert policy.vocab_size == 64 and policy.tokenizer.padding_side == "left"
    assert (policy.attention == "block_causal") == (layout.block_size is not None)
    assert policy.block_size == layout.block_size and policy.shifted == layout.shifted
    assert policy.family == family


def test_no_later_block_reaches_an_earlier_one(family: str, policy: Policy) -> None:
    if policy.attention != "block_causal":
        pytest.skip("everybody sees everybody")
    ids_BT, real_BT = rows_of(policy)
    changed_BT = ids_BT.clone()
    changed_BT[:, -1] = 5 + (changed_BT[:, -1] - 4) % 30
    layout_BT = policy.block_layout(real_BT[:, :-LENGTH], LENGTH)
    before, after = (policy.logits(ids, attention_mask=real_BT, block_BT=layout_BT) for ids in (ids_BT, changed_BT))
    earlier = layout_BT < layout_BT[:, -1:]
    assert torch.equal(before[earlier], after[earlier])
    # A shifted head's first row of the last block is the last one of the block before.
    first = layout_BT == layout_BT[:, -1:]
    first &= count_before(first) == 0
    assert torch.equal(before[first], after[first]) == policy.shifted


def test_selected_and_packed_rows_of_a_shifted_head_follow_the_sequence(family: str, policy: Policy) -> None:
    """Two noisy states of one block beside each other say what each says alone."""
    from steprs.policies.attention import packed_mask

    prompt, clean = [5, 9, 7, 11], [20, 21, 22, 23]
    states = [[2, 2, 30, 2], [24, 2, 2, 2]]
    stream = [0] * 8 + [1] * 4 + [2] * 4
    position = [*range(8), *range(8, 12), *range(8, 12)]
    block = [0] * 4 + [1] * 4 + [2] * 8
    if policy.attention == "bidirectional":
        packed = torch.tensor([[s == k or k == 0 for k in stream] for s in stream])[None, None]
        packed[:, :, :8, 8:] = False
        # Each state must see the same as alone, so the clean part is its own copy: here it is shared and sees itself.
        alone_mask = torch.ones(1, 1, 12, 12, dtype=torch.bool)
        alone_mask[:, :, :8, 8:] = False
    else:
        packed = packed_mask(torch.tensor([block]), torch.tensor([stream]), torch.ones(1, 16, dtype=torch.bool))
        alone_mask = None
    select = torch.zeros(1, 16, dtype=torch.bool)
    select[:, 8:] = True
    ids = torch.tensor([prompt + clean + states[0] + states[1]])
    together = policy.logits(ids, attention_mask=packed, position_ids=torch.tensor([position]), select_BT=select)
    for index, state in enumerate(states):
        row = torch.tensor([prompt + clean + state])
        alone = policy.logits(row, attention_mask=alone_mask, block_BT=torch.tensor([block[:12]]))[0, 8:]
        torch.testing.assert_close(together[4 * index : 4 * index + 4], alone, atol=2e-5, rtol=0)


def successor_tensors(family: str) -> dict[str, torch.Tensor]:
    """A network that is the identity up to its head, which answers 5 with 6 and everything else with 5."""
    layout = LAYOUTS[family]
    tensors = {name: torch.zeros_like(tensor) for name, tensor in random_tensors(layout, rows=40).items()}
    for role in ("norm1", "norm2", "final", "q_norm", "k_norm"):
        for layer in range(2):
            if role in layout.names:
                tensors[layout.names[role].format(layer)] += 1.0
    tensors[layout.names["embed"]][:, 0] = 1.0
    tensors[layout.names["embed"]][5] = torch.eye(32)[1]
    head = tensors[layout.names["head"]]
    head[5, 0], head[6, 1] = 9.0, 9.0
    return tensors


@pytest.mark.parametrize("prompt", [[5], [7, 5], [7, 7, 6, 5], [7, 7, 7, 6, 5]])
def test_two_tokens_with_a_known_answer(family: str, prompt: list[int], tmp_path: Path) -> None:
    """A head that predicts the next token alternates 6, 5, 6, 5 after a 5; one that predicts its own says 5."""
    policy = load_policy(write_checkpoint(tmp_path / "known", family, tensors=successor_tensors(family)))
    kind = "block" if policy.attention == "block_causal" else "masked"
    size = policy.block_size or 8
    decoding = Decoding(kind=kind, length=8, steps=8, block_size=size, temperature=0.0, unmasking="left_to_right")
    sampler = BlockDiffusionSampler if kind == "block" else MaskedDiffusionSampler
    keys = row_keys(0, "train", 0, torch.zeros(2, dtype=torch.int64), torch.arange(2))
    trajectory = sampler(decoding=decoding).sample(
        policy, torch.tensor([prompt]), torch.ones(1, len(prompt), dtype=torch.bool), group_size=2, row_keys_B=keys
    )
    expected = [6, 5] * 4 if policy.shifted else [5] * 8
    assert trajectory.completion_ids_BL.tolist() == [expected] * 2
    if policy.shifted:
        wrong = dataclasses.replace(policy, shifted=False)
        assert wrong.logits(torch.tensor([[5, 2]]), block_BT=torch.zeros(1, 2).long())[0, 1].argmax() == 5


def test_written_back_as_it_was_published(
    family: str, policy: Policy, folders: dict[str, Path], tmp_path: Path
) -> None:
    again = policy.save(tmp_path / "again")
    for path in folders[family].iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes(), path.name
    reloaded = load_policy(again)
    assert reloaded.manifest() == policy.manifest()
    for (name, one), (other, two) in zip(policy.named_parameters(), reloaded.named_parameters(), strict=True):
        assert name == other and torch.equal(one, two)


def test_shards_are_read_and_written_as_transformers_does(family: str, policy: Policy, tmp_path: Path) -> None:
    sharded = load_policy(write_checkpoint(tmp_path / "sharded", family, shards=3))
    ids_BT, real_BT = rows_of(policy)
    block_BT = policy.block_layout(real_BT[:, :-LENGTH], LENGTH)
    expected = policy.logits(ids_BT, attention_mask=real_BT, block_BT=block_BT)
    assert torch.equal(sharded.logits(ids_BT, attention_mask=real_BT, block_BT=block_BT), expected)
    again = save_policy(sharded, tmp_path / "again", shard_bytes=20_000)
    index = json.loads((again / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in again.glob("*.safetensors"))
    assert len(files) > 2 and files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    assert set(index["weight_map"]) == set(random_tensors(LAYOUTS[family]))
    assert index["metadata"]["total_size"] == sum(4 * t.numel() for t in random_tensors(LAYOUTS[family]).values())
    for file in files:
        assert set(load_file(again / file)) == {name for name, home in index["weight_map"].items() if home == file}
    assert torch.equal(load_policy(again).logits(ids_BT, attention_mask=real_BT, block_BT=block_BT), expected)
    (again / files[1]).unlink()
    with pytest.raises(PolicyError, match=f"lacks {files[1]}"):
        load_policy(again)


def test_tensors_that_do_not_fit_are_one_error_that_names_them(family: str, tmp_path: Path) -> None:
    layout = LAYOUTS[family]
    tensors = random_tensors(layout)
    del tensors[layout.names["up"].format(1, 3)]
    tensors["stranger.weight"] = torch.zeros(3)
    tensors[layout.names["final"]] = torch.ones(31)
    folder = write_checkpoint(tmp_path / "torn", family, tensors=tensors)
    with pytest.raises(PolicyError) as caught:
        load_policy(folder)
    message = str(caught.value)
    assert f"missing: {layout.names['up'].format(1, 3)}" in message
    assert "unexpected: stranger.weight" in message
    assert f"of another shape: {layout.names['final']} is [31], config.json says [32]" in message
    quantised = random_tensors(layout)
    quantised[layout.names["head"]] = torch.zeros(64, 32, dtype=torch.int8)
    write_shards(folder, quantised, 1)
    with pytest.raises(PolicyError, match=r"not floating-point: .* \(I8\)"):
        load_policy(folder)


def test_one_tensor_of_the_files_is_in_memory_at_a_time(
    family: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[weakref.ref[torch.Tensor]] = []
    alive = []

    @contextlib.contextmanager
    def watched(path: Path, framework: str):  # type: ignore[no-untyped-def]
        with safe_open(path, framework=framework) as file:

            def get_tensor(name: str) -> torch.Tensor:
                alive.append(sum(reference() is not None for reference in read))
                tensor = file.get_tensor(name)
                read.append(weakref.ref(tensor))
                return tensor

            yield SimpleNamespace(get_tensor=get_tensor, keys=file.keys, get_slice=file.get_slice)

    monkeypatch.setattr(weights, "safe_open", watched)
    load_policy(folders[family])
    assert len(read) == len(random_tensors(LAYOUTS[family])) and set(alive) == {0}


@pytest.mark.parametrize("asked", FAMILY_NAMES)
def test_a_checkpoint_of_another_family_is_refused_by_name(asked: str, family: str, folders: dict[str, Path]) -> None:
    if asked == family:
        assert load_policy(folders[family], asked).family == family
        return
    with pytest.raises(PolicyError, match=f"which is family '{family}', not '{asked}'"):
        load_policy(folders[family], asked)


def test_half_precision_files_become_float32_masters_and_can_be_written_back(
    family: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    half = {name: tensor.bfloat16() for name, tensor in random_tensors(LAYOUTS[family]).items()}
    policy = load_policy(write_checkpoint(tmp_path / "half", family, tensors=half))
    assert {weight.dtype for weight in policy.parameters()} == {torch.float32}
    written = load_file(policy.save(tmp_path / "again", dtype=torch.bfloat16) / "model.safetensors")
    assert all(torch.equal(written[name], tensor) for name, tensor in half.items())
    light = load_policy(tmp_path / "half", weights="bfloat16", dtype="bfloat16")
    assert {weight.dtype for weight in light.parameters()} == {torch.bfloat16}
    ids_BT, real_BT = rows_of(policy)
    block_BT = policy.block_layout(real_BT[:, :-LENGTH], LENGTH)
    one, two = (p.logits(ids_BT, attention_mask=real_BT, block_BT=block_BT)[real_BT] for p in (policy, light))
    # A token that goes to another expert in half precision differs by more.
    tolerance = 0.05 if LAYOUTS[family].chosen is None else 0.3
    assert two.dtype == torch.float32 and (one - two).abs().max() < tolerance * one.abs().max()


def test_gradient_checkpointing_changes_no_gradient(family: str, folders: dict[str, Path]) -> None:
    gradients = []
    for checkpointing in (False, True):
        policy = load_policy(folders[family], gradient_checkpointing=checkpointing).train(True)
        ids_BT, real_BT = rows_of(policy)
        block_BT = policy.block_layout(real_BT[:, :-LENGTH], LENGTH)
        policy.logits(ids_BT, attention_mask=real_BT, block_BT=block_BT)[real_BT].square().mean().backward()
        assert policy.backbone.gradient_checkpointing == checkpointing
        gradients.append([weight.grad for weight in policy.parameters()])
    assert all(map(torch.equal, *gradients))
    assert all(bool(gradient.any()) for gradient in gradients[0])


def test_every_family_but_ours_and_foreign_code_has_a_layout_here() -> None:
    assert {family.name for family in FAMILIES.values()} - {"tiny", "remote"} == set(ALL_NAMES)
    assert FAMILIES["trado"] is FAMILIES["sdar"]
    assert Lora().rank == 16 and Overrides().block_size is None
    assert tokenizer_of(LAYOUTS["dream"]).convert_tokens_to_ids("<|mask|>") == 2
