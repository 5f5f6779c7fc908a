"""The checkpoints in the package: small, readable by anyone, made by the recipe beside them, better than chance."""

import json

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from steprs.config import PretrainConfig, load_config
from steprs.policies.loading import SHIPPED, load_policy, shipped_folder
from steprs.tasks import get_task
from steprs.testing.policies import check_policy


@pytest.mark.parametrize("name", SHIPPED)
def test_small_and_whole(name):
    folder = shipped_folder(name)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 5e6
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "steprs.json", "pretrain.yaml"} <= names
    last = json.loads((folder / "pretrain_log.jsonl").read_text().splitlines()[-1])
    assert last["update"] == last["of"], "training was cut off before its rate had fallen"


@pytest.mark.parametrize("name", SHIPPED)
def test_recipe_beside_the_weights_is_the_committed_one(name):
    folder = shipped_folder(name)
    beside = PretrainConfig.model_validate(yaml.safe_load((folder / "pretrain.yaml").read_text()))
    committed = load_config(folder.parents[1] / "configs" / "pretrain" / f"{name}.yaml", model=PretrainConfig)
    assert beside == committed
    config = json.loads((folder / "config.json").read_text())
    assert (config["hidden_size"], config["num_hidden_layers"]) == (committed.hidden_size, committed.layers)


@pytest.mark.parametrize("name", SHIPPED)
def test_conforms_and_loads_with_plain_transformers(name):
    policy = load_policy(name)
    check_policy(policy, length=12)
    folder = shipped_folder(name)
    # The same attention kernel on both sides: two kernels differ by more than float32's last digits on trained weights.
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation=policy.model.config._attn_implementation)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(["1 2 3 4 10"], return_tensors="pt")["input_ids"]
    mask = torch.zeros(1, 1, 5, 5)
    plain = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    ours = policy.logits(ids, attention_mask=torch.ones(1, 1, 5, 5, dtype=torch.bool))
    torch.testing.assert_close(plain, ours, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", SHIPPED)
def test_knows_the_words_of_its_task(name):
    policy = load_policy(name)
    task = get_task(policy.decoding_defaults["task"])
    assert policy.decoding_defaults["length"] == task.completion_length
    assert list(task.vocabulary()) == policy.tokenizer.convert_ids_to_tokens(range(3, policy.vocab_size))


@pytest.mark.parametrize("name", SHIPPED)
def test_predicts_the_last_value_of_a_written_solution_it_never_saw(name):
    """The value of the last step is arithmetic on what is in sight; chance is 1 in 31."""
    policy = load_policy(name)
    task = get_task(policy.decoding_defaults["task"])
    problems = task.problems("test", 128)
    prompts = policy.tokenizer([problem.prompt for problem in problems], return_tensors="pt")["input_ids"]
    written = policy.tokenizer([task.gold_completion(problem) for problem in problems], return_tensors="pt")[
        "input_ids"
    ]
    ids = torch.cat((prompts, written), dim=1)
    ids[:, -1] = policy.mask_token_id
    right = policy.logits(ids)[:, -1].argmax(-1) == written[:, -1]
    assert right.float().mean() > 0.95
