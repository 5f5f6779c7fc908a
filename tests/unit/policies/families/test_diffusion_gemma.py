"""DiffusionGemma's layout: loaded, equal to the network by hand and to the stock forward, and written back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from published import LAYOUTS, random_tensors, write_checkpoint, write_shards
from published_gemma import CANVAS
from safetensors import safe_open
from safetensors.torch import load_file

from steprs.errors import ArgumentError, PolicyError
from steprs.policies.base import Policy
from steprs.policies.canvas_states import canvas_behind
from steprs.policies.loading import Lora, load_policy
from steprs.policies.saving import save_policy
from steprs.testing.policies import check_policy

from .reference_gemma import Network

NAME = "diffusion-gemma"
CLEAN = [[5, 9, 7], [11, 6, 20, 8, 9, 30, 12, 13, 14]]  # the longer one reaches beyond the window of 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("published") / NAME, NAME)


@pytest.fixture
def policy(folder: Path) -> Policy:
    return load_policy(folder)


def padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    return ids, torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_logits_are_those_of_the_network_by_hand(policy: Policy, implementation: str) -> None:
    """Left padding, the window, and a state that is conditioned on the one before it."""
    policy.model.set_attn_implementation(implementation)
    network = Network(random_tensors(LAYOUTS[NAME]))
    ids_RC, valid_RC = padded(CLEAN)
    generator = torch.Generator().manual_seed(2)
    canvas_RSW = torch.randint(0, 64, (2, 2, CANVAS), generator=generator)
    scaled_RWV = 3 * torch.randn(2, CANVAS, 64, generator=generator)
    conditioning_RSWH = torch.stack((torch.zeros(2, CANVAS, 32), policy.unwrapped.conditioning(scaled_RWV)), dim=1)
    states = canvas_behind(
        ids_RC, valid_RC, canvas_RSW, conditioning_RSWH=conditioning_RSWH,
        select_RSW=torch.ones_like(canvas_RSW, dtype=torch.bool),
    )  # fmt: skip
    logits_SRWV = policy.read_canvas(states).detach().view(2, 2, CANVAS, 64).double().numpy()
    for row, clean in enumerate(CLEAN):
        chances = scaled_RWV[row].double().softmax(-1).numpy()
        for state, given in enumerate((None, chances)):
            expected = network.logits(clean, canvas_RSW[row, state].tolist(), given)
            np.testing.assert_allclose(logits_SRWV[state, row], expected, atol=3e-5, rtol=3e-5)
    assert logits_SRWV.std() > 0.5


def test_equal_to_the_stock_forward(policy: Policy) -> None:
    """What the published code computes: its own masks and cache, and logits for the conditioning."""
    ids = torch.tensor([CLEAN[1], CLEAN[1][::-1]])
    canvas = torch.tensor([[3, 50, 7, 1], [22, 4, 4, 60]])
    scaled = torch.randn(2, CANVAS, 64, generator=torch.Generator().manual_seed(3))
    expected = policy.model(input_ids=ids, decoder_input_ids=canvas, self_conditioning_logits=scaled).logits
    states = canvas_behind(
        ids, torch.ones_like(ids, dtype=torch.bool), canvas[:, None],
        conditioning_RSWH=policy.unwrapped.conditioning(scaled)[:, None],
        select_RSW=torch.ones_like(canvas[:, None], dtype=torch.bool),
    )  # fmt: skip
    torch.testing.assert_close(policy.read_canvas(states).view(2, CANVAS, 64), expected, atol=1e-5, rtol=1e-5)
    first = policy.model(input_ids=ids, decoder_input_ids=canvas).logits
    assert float((first - expected).detach().abs().max()) > 0.1, "the conditioning says something"


def test_conforms(policy: Policy) -> None:
    check_policy(policy)


def test_facts_come_from_the_checkpoint(policy: Policy) -> None:
    assert (policy.family, policy.attention, policy.block_size, policy.prompt_block) == (NAME, "canvas", 4, "whole")
    assert (policy.mask_token_id, policy.eos_token_id, policy.pad_token_id) == (2, 1, 0)
    assert dict(policy.decoding_defaults) == {"length": 256, "steps": 48}
    names = [name for name, _ in policy.named_parameters()]
    assert names and not any("vision" in name for name in names)


def test_a_later_canvas_reaches_no_earlier_one(policy: Policy) -> None:
    ids = torch.tensor([[5, 9, 7, *range(10, 18)]])
    block = policy.block_layout(torch.ones(1, 3, dtype=torch.bool), 8)
    changed = ids.clone()
    changed[0, -1] = 40
    before, after = policy.logits(ids, block_BT=block)[0], policy.logits(changed, block_BT=block)[0]
    # Not bit for bit: an expert's tokens are multiplied together, and the changed one may have joined another expert.
    torch.testing.assert_close(before[:7], after[:7], atol=1e-5, rtol=0)
    assert bool((before[7:] != after[7:]).any(1).all())


def test_written_back_as_it_was_published(policy: Policy, folder: Path, tmp_path: Path) -> None:
    again = policy.save(tmp_path / "again")
    for path in folder.iterdir():
        if path.suffix != ".safetensors":
            assert (again / path.name).read_bytes() == path.read_bytes(), path.name
    written, published = load_file(again / "model.safetensors"), load_file(folder / "model.safetensors")
    assert written.keys() == published.keys()
    assert all(torch.equal(written[name], published[name]) for name in written)
    sharded = save_policy(policy, tmp_path / "shards", shard_bytes=40_000)
    ids, block = torch.tensor([[5, 9, 7, 10, 11, 12, 13]]), torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    assert torch.equal(load_policy(sharded).logits(ids, block_BT=block), policy.logits(ids, block_BT=block))


def test_the_stock_class_reads_what_is_written(policy: Policy, tmp_path: Path) -> None:
    from transformers import DiffusionGemmaForBlockDiffusion

    stock, report = DiffusionGemmaForBlockDiffusion.from_pretrained(
        policy.save(tmp_path / "again"), output_loading_info=True, dtype=torch.float32
    )
    assert not any(report.values()), report
    ids, canvas = torch.tensor([CLEAN[1]]), torch.tensor([[3, 50, 7, 1]])
    expected = stock.eval()(input_ids=ids, decoder_input_ids=canvas).logits
    block = torch.tensor([[0] * len(CLEAN[1]) + [1] * 4])
    mine = policy.logits(torch.cat((ids, canvas), 1), block_BT=block)[:, -4:]
    torch.testing.assert_close(mine, expected, atol=1e-5, rtol=1e-5)


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    tensors = random_tensors(LAYOUTS[NAME])
    del tensors["model.decoder.layers.1.layer_scalar"]
    tensors["model.decoder.layers.1.self_attn.v_proj.weight"] = torch.zeros(16, 32)
    folder = write_checkpoint(tmp_path / "torn", NAME, tensors=tensors)
    with pytest.raises(PolicyError, match=r"missing: model\.decoder\.layers\.1\.layer_scalar; unexpected: .*v_proj"):
        load_policy(folder)


def test_shared_tensors_may_stand_under_both_names(policy: Policy, tmp_path: Path) -> None:
    tensors = random_tensors(LAYOUTS[NAME])
    name = "layers.0.mlp.up_proj.weight"
    twin = {f"model.encoder.language_model.{name}": tensors[f"model.decoder.{name}"].clone()}
    folder = write_checkpoint(tmp_path / "both", NAME, tensors=tensors)
    write_shards(folder, tensors | twin, 1)
    ids, block = torch.tensor([[5, 9, 10, 11, 12, 13]]), torch.tensor([[0, 0, 1, 1, 1, 1]])
    assert torch.equal(load_policy(folder).logits(ids, block_BT=block), policy.logits(ids, block_BT=block))
    write_shards(folder, tensors | {key: value + 1 for key, value in twin.items()}, 1)
    with pytest.raises(PolicyError, match="ties model.encoder.language_model.layers.0.mlp.up_proj.weight"):
        load_policy(folder)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda config: config.update(architectures=["Gemma4ForConditionalGeneration"]), "'diffusion-gemma' but holds"),
        (lambda config: config.update(tie_word_embeddings=False), "tie_word_embeddings is False"),
        (lambda config: config["text_config"].update(attention_dropout=0.1), "attention_dropout is 0.1"),
        (lambda config: config["text_config"].update(use_bidirectional_attention="all"), "looks ahead"),
        (lambda config: config.pop("canvas_length"), "config.json lacks canvas_length"),
    ],
)
def test_what_is_not_computed_is_refused(edit, message: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    def changed(config: dict[str, object]) -> None:
        config["text_config"] = json.loads(json.dumps(config["text_config"]))
        edit(config)

    with pytest.raises(PolicyError, match=message):
        load_policy(write_checkpoint(tmp_path / "other", NAME, edit=changed))


def test_other_families_and_adapters_are_refused(folder: Path) -> None:
    with pytest.raises(PolicyError, match="which is family 'diffusion-gemma', not 'llada'"):
        load_policy(folder, "llada")
    with pytest.raises(PolicyError, match="adapters would differ between the two"):
        load_policy(folder, lora=Lora(rank=2))
    with pytest.raises(PolicyError, match="'eager' or 'sdpa'"):
        load_policy(folder, attention="flex_attention", device="cuda")


def test_masks_and_caches_of_other_policies_mean_nothing_here(policy: Policy) -> None:
    ids, block = torch.tensor([[5, 9, 10, 11, 12, 13]]), torch.tensor([[0, 0, 1, 1, 1, 1]])
    with pytest.raises(ArgumentError, match="a canvas policy takes attention_mask"):
        policy.logits(ids, attention_mask=torch.ones(1, 1, 6, 6, dtype=torch.bool), block_BT=block)
    with safe_open(policy.published.source + "/model.safetensors", framework="pt") as file:  # type: ignore[union-attr]
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118 - not a dict
