"""A causal checkpoint becomes a diffusion model with the same weights, a mask token and both directions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from published import LAYOUTS, random_tensors, tokenizer_of, write_checkpoint, write_shards
from safetensors.torch import load_file

from steprs.errors import PolicyError
from steprs.policies.converting import convert
from steprs.policies.loading import load_policy
from steprs.testing.policies import check_policy

IDS = torch.tensor([[5, 9, 7, 20, 30]])


def causal(folder: Path, *, rows: int = 64, tied: bool = False, dtype: torch.dtype = torch.float32) -> Path:
    """A stock Qwen3 checkpoint whose tokenizer has no mask token."""
    names = LAYOUTS["a2d"].names
    tensors = {name: tensor.to(dtype) for name, tensor in random_tensors(LAYOUTS["a2d"], rows=rows).items()}
    if tied:
        del tensors[names["head"]]

    def edit(config: dict) -> None:  # type: ignore[type-arg]
        del config["mask_token_id"]
        config.update(architectures=["Qwen3ForCausalLM"], model_type="qwen3", tie_word_embeddings=tied)

    write_checkpoint(folder, "a2d", tensors=tensors, edit=edit)
    rename_mask(folder, "<|video|>")
    return folder


def rename_mask(folder: Path, name: str) -> None:
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).write_text((folder / file).read_text().replace("<|mask|>", name).replace("<|video|>", name))


def test_a_new_mask_token_takes_a_free_row_and_changes_no_weight(tmp_path: Path) -> None:
    made = convert(causal(tmp_path / "causal"), tmp_path / "out")
    assert (made.mask_token, made.mask_is, made.added_rows) == ("<|mask|>", "new", 0)
    policy = load_policy(made.folder)
    assert policy.mask_token_id == made.mask_token_id == len(tokenizer_of(LAYOUTS["a2d"]))
    assert policy.tokenizer("1 <|mask|> 2")["input_ids"][1] == made.mask_token_id
    assert (policy.family, policy.attention, policy.shifted, policy.block_size) == ("a2d", "bidirectional", True, None)
    before, after = (load_file(folder / "model.safetensors") for folder in (tmp_path / "causal", made.folder))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    check_policy(policy)
    unshifted = load_policy(convert(tmp_path / "causal", tmp_path / "plain", shifted=False).folder)
    assert torch.equal(policy.logits(IDS)[:, 1:], unshifted.logits(IDS)[:, :-1])


def test_a_full_vocabulary_grows_by_the_mean_row(tmp_path: Path) -> None:
    rows = len(tokenizer_of(LAYOUTS["a2d"]))
    for tied in (False, True):
        source = causal(tmp_path / f"causal-{tied}", rows=rows, tied=tied)
        made = convert(source, tmp_path / f"out-{tied}")
        assert (made.added_rows, made.mask_token_id) == (1, rows)
        before, after = (load_file(folder / "model.safetensors") for folder in (source, made.folder))
        for role in ("embed",) if tied else ("embed", "head"):
            name = LAYOUTS["a2d"].names[role]
            assert torch.equal(after[name][:rows], before[name])
            torch.testing.assert_close(after[name][rows], before[name].mean(0))
        assert json.loads((made.folder / "config.json").read_text())["vocab_size"] == rows + 1
        check_policy(load_policy(made.folder))


def test_a_spare_special_token_is_taken_before_a_new_one(tmp_path: Path) -> None:
    source = causal(tmp_path / "causal")
    rename_mask(source, "<|reserved_special_token_0|>")
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append(
        {"id": 2, "content": "<|reserved_special_token_0|>", "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
    )  # fmt: skip
    (source / "tokenizer.json").write_text(json.dumps(tokenizer))
    made = convert(source, tmp_path / "out")
    assert (made.mask_token, made.mask_token_id, made.mask_is) == ("<|reserved_special_token_0|>", 2, "spare")
    asked = convert(source, tmp_path / "asked", mask_token="7")
    assert (asked.mask_is, load_policy(asked.folder).mask_token_id) == ("given", asked.mask_token_id)
    assert asked.mask_token_id == tokenizer_of(LAYOUTS["a2d"]).convert_tokens_to_ids("7")


def test_blocks_and_the_number_format_are_kept(tmp_path: Path) -> None:
    made = convert(causal(tmp_path / "causal", dtype=torch.bfloat16), tmp_path / "out", block_size=4)
    assert {tensor.dtype for tensor in load_file(made.folder / "model.safetensors").values()} == {torch.bfloat16}
    policy = load_policy(made.folder)
    assert (policy.attention, policy.block_size, policy.prompt_block) == ("block_causal", 4, "whole")
    check_policy(policy)


def test_what_is_no_causal_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="is LLaDAModelLM; causal checkpoints are converted: LlamaForCausalLM"):
        convert(write_checkpoint(tmp_path / "llada", "llada"), tmp_path / "out")
    with pytest.raises(PolicyError, match="is no checkpoint"):
        convert(tmp_path / "nowhere", tmp_path / "out")
    made = convert(causal(tmp_path / "causal"), tmp_path / "out")
    with pytest.raises(PolicyError, match="is family 'a2d'; causal checkpoints"):
        convert(made.folder, tmp_path / "twice")
    with pytest.raises(PolicyError, match="is not empty"):
        convert(tmp_path / "causal", tmp_path / "out")
    write_shards(tmp_path / "causal", {"lm_head.weight": torch.zeros(4, 4, dtype=torch.int8)}, 1)
    with pytest.raises(PolicyError, match="are I8; allowed: BF16, F16, F32, F64"):
        convert(tmp_path / "causal", tmp_path / "quantised")
