"""What a checkpoint leaves to its files, and what is refused because nothing here would compute it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
from published import LAYOUTS, random_tensors, tokenizer_of, write_checkpoint
from transformers import Qwen3Config, Qwen3ForCausalLM

from steprs.errors import PolicyError
from steprs.policies import checkpoint
from steprs.policies.loading import Overrides, load_policy


def edited(folder: Path, **changes: object) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder


def test_what_was_asked_for_comes_first(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "sdar", "sdar")
    given = Overrides(block_size=2, mask_token_id=7, eos_token_id=9, shifted=True)
    policy = load_policy(folder, overrides=given)
    assert (policy.block_size, policy.mask_token_id, policy.eos_token_id, policy.shifted) == (2, 7, 9, True)
    # What was decided is written down, so that a resumed run and its evaluation need no overrides.
    assert load_policy(policy.save(tmp_path / "again")).manifest() == policy.manifest()
    assert load_policy(policy.save(tmp_path / "again"), overrides=Overrides(block_size=4)).block_size == 4


def test_a_block_size_that_no_file_states_is_the_published_one_and_said(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "sdar", "sdar", edit=lambda config: config.pop("block_size"))
    with pytest.warns(UserWarning, match="states no block size; taking 4, which the published sdar"):
        assert load_policy(folder, "trado").block_size == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_policy(folder, overrides=Overrides(block_size=8)).block_size == 8
    with pytest.raises(PolicyError, match="block size 0 is no positive"):
        load_policy(edited(folder, block_size=0))


def test_a_converted_policy_becomes_block_causal_where_a_block_size_is_asked_for(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "a2d", "a2d")
    for source in (folder, load_policy(folder).save(tmp_path / "again")):
        assert load_policy(source).attention == "bidirectional"
        policy = load_policy(source, overrides=Overrides(block_size=4))
        assert (policy.attention, policy.block_size, policy.prompt_block) == ("block_causal", 4, "whole")


def test_full_attention_takes_no_block_size(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "llada", "llada")
    with pytest.raises(PolicyError, match="'llada' has no blocks.*sampler.block_size"):
        load_policy(folder, overrides=Overrides(block_size=4))


def test_the_end_token_is_what_the_template_closes_an_answer_with(tmp_path: Path) -> None:
    """Base models' configurations name the end of a document, which a chat model may never write."""
    folder = write_checkpoint(tmp_path / "sdar", "sdar")
    assert load_policy(folder).eos_token_id == 4
    (folder / "chat_template.jinja").unlink()
    assert load_policy(folder).eos_token_id == 1
    assert load_policy(edited(folder, eos_token_id=[3, 1])).eos_token_id == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mask_token_id": 1}, "mask_token_id 1 is also the end or padding token"),
        ({"mask_token_id": 64}, "{'mask_token_id': 64} lie outside the vocabulary of 64"),
        ({"alibi": True, "rope": False}, "alibi is True, supported is False; rope is False, supported is True"),
        ({"activation_type": "gelu"}, "activation_type is 'gelu', supported is 'silu'"),
        ({"include_bias": True}, "include_bias is True"),
        ({"block_group_size": 2}, "block_group_size is 2"),
        ({"model_type": "llada3"}, "of model_type 'llada3' and of no family known here"),
        ({"architectures": ["LLaDA2MoeModelLM"]}, "family 'llada' but holds a LLaDA2MoeModelLM"),
        ({"architectures": ["LLaDAMoEModelLM"]}, "config.json lacks hidden_size, num_hidden_layers"),
    ],
)
def test_what_the_stock_class_would_not_compute_is_refused(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    folder = edited(write_checkpoint(tmp_path / "llada", "llada"), **changes)
    with pytest.raises(PolicyError, match=message):
        load_policy(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"moe_layer_freq": [1, 0]}, "layers without experts"),
        ({"qk_layernorm": False}, "qk_layernorm is False, supported is True"),
        ({"moe_router_score_function": "sigmoid"}, "moe_router_score_function is 'sigmoid'"),
        ({"shared_expert_intermediate_size": 8}, "shared_expert_intermediate_size is 8"),
        ({"architectures": ["LLaDAModelLM"]}, "config.json lacks d_model"),
    ],
)
def test_experts_of_another_kind_are_refused(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=message):
        load_policy(edited(write_checkpoint(tmp_path / "moe", "llada-moe"), **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_sliding_window": True}, "use_sliding_window is True, supported is False"),
        ({"use_mrope": True}, "use_mrope is True"),
        ({"architectures": ["DreamForCausalLM"]}, "'dream' but holds a DreamForCausalLM"),
    ],
)
def test_qwen_switches_are_refused_too(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=message):
        load_policy(edited(write_checkpoint(tmp_path / "dream", "dream"), **changes))


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "dream", "dream", edit=lambda config: config.pop("hidden_size"))
    with pytest.raises(PolicyError, match=r"config.json lacks hidden_size"):
        load_policy(folder)
    folder = write_checkpoint(tmp_path / "llada", "llada", edit=lambda config: config.pop("d_model"))
    with pytest.raises(PolicyError, match=r"config.json lacks d_model"):
        load_policy(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": "large"},
        {"num_attention_heads": 0},
        {"hidden_size": -8},
        {"num_hidden_layers": None},
        {"hidden_act": "no such function"},
        {"rope_scaling": [1]},
    ],
)
def test_nonsense_in_config_json_is_one_error_that_names_the_file(changes: dict[str, object], tmp_path: Path) -> None:
    folder = edited(write_checkpoint(tmp_path / "dream", "dream"), **changes)
    with pytest.raises(PolicyError, match=r"config\.json describes no model that can be built \(attention: \w+\): \S"):
        load_policy(folder)


def test_a_mask_that_nothing_names_is_asked_for(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "a2d", "a2d", edit=lambda config: config.pop("mask_token_id"))
    assert load_policy(folder).mask_token_id == 2, "the tokenizer calls it <|mask|>"
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace("<|mask|>", "<|other|>"))
    with pytest.raises(PolicyError, match=r"names no mask_token_id.*give policy\.mask_token_id"):
        load_policy(folder)


def test_a_causal_checkpoint_is_told_how_to_become_one(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "causal", "a2d")
    edited(folder, architectures=["Qwen3ForCausalLM"], model_type="qwen3")
    with pytest.raises(PolicyError, match="It is causal; make a diffusion model of it with: steprs convert"):
        load_policy(folder)
    assert load_policy(folder, "a2d").attention == "bidirectional", "who says so may take it as it is"


def test_tied_embeddings_are_one_tensor_in_memory_and_on_disk(tmp_path: Path) -> None:
    names = LAYOUTS["a2d"].names
    tensors = random_tensors(LAYOUTS["a2d"])
    folder = write_checkpoint(
        tmp_path / "both", "a2d", tensors=tensors | {names["head"]: tensors[names["embed"]].clone()}
    )
    policy = load_policy(edited(folder, tie_word_embeddings=True))
    assert policy.model.get_output_embeddings().weight is policy.model.get_input_embeddings().weight
    del tensors[names["head"]]
    alone = edited(write_checkpoint(tmp_path / "one", "a2d", tensors=tensors), tie_word_embeddings=True)
    ids = torch.tensor([[5, 2, 9, 2]])
    assert torch.equal(load_policy(alone).logits(ids), policy.logits(ids))
    assert torch.equal(load_policy(policy.save(tmp_path / "again")).logits(ids), policy.logits(ids))
    stock = Qwen3ForCausalLM(Qwen3Config(**json.loads((alone / "config.json").read_text())))
    assert {*tensors} == {name for name, _ in stock.named_parameters()}
    other = write_checkpoint(tmp_path / "two", "a2d")
    with pytest.raises(PolicyError, match=r"ties lm_head\.weight to the embedding, but the files hold another"):
        load_policy(edited(other, tie_word_embeddings=True))


def test_computed_buffers_in_old_files_are_passed_over(tmp_path: Path) -> None:
    tensors = random_tensors(LAYOUTS["dream"]) | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)}
    ids = torch.tensor([[5, 2, 9, 2]])
    policy = load_policy(write_checkpoint(tmp_path / "old", "dream", tensors=tensors))
    assert torch.equal(policy.logits(ids), load_policy(write_checkpoint(tmp_path / "new", "dream")).logits(ids))


def test_a_folder_without_tokenizer_json_is_read_from_its_vocabulary(tmp_path: Path) -> None:
    """Dream publishes vocab.json, merges.txt and Python; the first two are enough."""
    folder = write_checkpoint(tmp_path / "dream", "dream")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    pieces = [chr(code) for code in range(33, 80)]
    vocabulary = {piece: index for index, piece in enumerate([*pieces, "Ġ", "AB", "<|endoftext|>", "<|mask|>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\nA B\n")
    special = {str(vocabulary[name]): {"content": name, "special": True} for name in ("<|endoftext|>", "<|mask|>")}
    settings = {
        "added_tokens_decoder": special, "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>",
        "mask_token": "<|mask|>", "tokenizer_class": "DreamTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "tokenization_dream.py").write_text("raise SystemExit('this file must not run')\n")
    policy = load_policy(folder, overrides=Overrides(mask_token_id=vocabulary["<|mask|>"]))
    ids = policy.tokenizer("ABC A<|mask|>")["input_ids"]
    assert ids == [vocabulary[piece] for piece in ("AB", "C", "Ġ", "A", "<|mask|>")]
    assert policy.tokenizer.decode(ids, skip_special_tokens=True) == "ABC A"
    assert (policy.save(tmp_path / "again") / "merges.txt").read_text() == "#version: 0.2\nA B\n"


def test_a_damaged_tokenizer_is_named(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "llada", "llada")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(PolicyError, match="the tokenizer in .* cannot be read"):
        load_policy(folder)
    assert tokenizer_of(LAYOUTS["llada"]).mask_token is None


def test_a_hub_name_is_fetched_without_pickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_checkpoint(tmp_path / "llada", "llada")
    asked = {}

    def snapshot_download(name: str, **options: object) -> str:
        asked.update(options, name=name)
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    policy = load_policy("GSAI-ML/LLaDA-8B-Instruct", revision="abc")
    assert (policy.family, policy.published.source) == ("llada", "GSAI-ML/LLaDA-8B-Instruct")
    assert (asked["name"], asked["revision"]) == ("GSAI-ML/LLaDA-8B-Instruct", "abc")
    assert not [pattern for pattern in asked["allow_patterns"] if "bin" in pattern or pattern == "*"]


def test_a_misspelt_folder_does_not_ask_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("the Hub was asked"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(PolicyError, match="neither a shipped name nor a folder"):
        load_policy("runs/policy")


def test_a_hub_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise OSError("no network here")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    with pytest.raises(PolicyError, match="no folder 'nobody/nothing', and the Hub gave no model.*no network here"):
        load_policy("nobody/nothing")


def test_a_device_map_places_every_tensor(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "llada", "llada")
    ids = torch.tensor([[5, 2, 9, 2]])
    placed = load_policy(folder, device_map={"model": "cpu", "lm_head": "cpu"})
    assert torch.equal(placed.logits(ids), load_policy(folder).logits(ids))
    with pytest.raises(PolicyError, match=r"device_map says nothing of lm_head\.weight"):
        load_policy(folder, device_map={"model": "cpu"})
    assert checkpoint.find_folder("no such name", None) is None
