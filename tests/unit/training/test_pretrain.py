"""Noise is what it says, the loss falls, the run repeats bit for bit, and other splits are never touched."""

import dataclasses
import itertools
import json
import random

import pytest
import torch

from steprs.errors import ConfigError
from steprs.policies.loading import load_policy
from steprs.tasks import get_task
from steprs.training.pretrain import (
    LOG,
    RECIPE,
    PretrainSettings,
    Solutions,
    draw_solutions,
    mask_positions,
    new_policy,
    noisy_rows,
    pretrain,
    rate_factor,
    train,
)


def settings_with(**changes):
    base = PretrainSettings(
        seed=5, attention="block_causal", block_size=None, hidden_size=32, intermediate_size=32, layers=2, heads=2,
        kv_heads=2, batch_size=16, copies=2, updates=30, max_minutes=5.0, learning_rate=5e-3, muon_learning_rate=0.02,
        weight_decay=0.0, warmup_updates=3,
    )  # fmt: skip
    return dataclasses.replace(base, **changes)


@pytest.fixture(scope="module")
def task():
    return get_task("countdown")


def final_state(settings, task):
    policy = new_policy(settings, task)
    records = list(train(policy, settings, task))
    return records, [weight.detach() for weight in policy.parameters()]


@pytest.mark.parametrize("attention", ["block_causal", "bidirectional"])
def test_thirty_updates_lower_the_loss_and_repeat_bitwise(task, attention):
    """A uniform guess over 37 words costs log 37 = 3.6 nats; the record holds the mean over the run."""
    settings = settings_with(attention=attention)
    records, weights = final_state(settings, task)
    assert records[-1]["update"] == 30
    policy = new_policy(settings, task)
    first = next(iter(train(policy, dataclasses.replace(settings, updates=1), task)))
    assert first["loss"] == pytest.approx(3.6, abs=0.15)
    assert records[-1]["loss"] < 3.25
    _, again = final_state(settings, task)
    assert all(map(torch.equal, weights, again))
    _, other = final_state(dataclasses.replace(settings, seed=6, updates=1), task)
    assert not torch.equal(weights[0], other[0])


def test_number_of_masked_positions_is_uniform_and_positions_are_too():
    masked = mask_positions(6000, 8, 4, torch.Generator().manual_seed(0)).reshape(-1, 4)
    counts = torch.bincount(masked.sum(dim=1), minlength=5) / len(masked)
    assert counts[0] == 0
    torch.testing.assert_close(counts[1:], torch.full((4,), 0.25), atol=0.015, rtol=0)
    torch.testing.assert_close(masked.float().mean(dim=0), torch.full((4,), 0.625), atol=0.015, rtol=0)


@pytest.mark.parametrize("attention", ["block_causal", "bidirectional"])
def test_packed_rows_say_what_each_state_says_alone(task, attention):
    """Logits of the packed row equal those of [prompt | clean blocks before | noisy block], one at a time."""
    settings = settings_with(attention=attention)
    policy = new_policy(settings, task).train(False)
    batch = next(draw_solutions(policy, settings, task))
    padding = torch.zeros(16, 2, dtype=torch.int64)
    batch = Solutions(
        prompt_ids_BC=torch.cat((padding, batch.prompt_ids_BC), dim=1),
        prompt_mask_BC=torch.cat((padding.bool(), batch.prompt_mask_BC), dim=1),
        completion_ids_BL=batch.completion_ids_BL,
    )
    rows = noisy_rows(policy, batch, 2, torch.Generator().manual_seed(1))
    packed = policy.logits(rows.ids_RT, attention_mask=rows.mask_R1TT, position_ids=rows.position_ids_RT)
    prompt, length = batch.prompt_ids_BC[:, 2:], 12
    size = policy.block_size
    noisy = rows.ids_RT[:, -2 * length :].unflatten(1, (2, length)) if attention == "block_causal" else None
    for copy in range(2):
        for block in range(length // size):
            cut = slice(block * size, (block + 1) * size)
            if noisy is None:
                row, at = rows.ids_RT[16 * copy : 16 * (copy + 1), 2:], packed[16 * copy : 16 * (copy + 1), 2 + 5 :]
            else:
                row = torch.cat((prompt, batch.completion_ids_BL[:, : cut.start], noisy[:, copy, cut]), dim=1)
                at = packed[:, -2 * length :].unflatten(1, (2, length))[:, copy, cut]
            layout = policy.block_layout(torch.ones(16, 5, dtype=torch.bool), row.shape[1] - 5)
            alone = policy.logits(row, block_BT=layout)[:, -size:]
            torch.testing.assert_close(at, alone, atol=1e-5, rtol=0)


def test_targets_are_the_solution_and_only_masked_positions_are_scored(task):
    settings = settings_with()
    policy = new_policy(settings, task)
    batch = next(draw_solutions(policy, settings, task))
    rows = noisy_rows(policy, batch, 2, torch.Generator().manual_seed(2))
    assert (rows.ids_RT[rows.select_RT] == policy.mask_token_id).all()
    assert int((rows.ids_RT == policy.mask_token_id).sum()) == len(rows.targets_N)
    filled = rows.ids_RT.masked_scatter(rows.select_RT, rows.targets_N)
    assert torch.equal(filled[:, -24:], batch.completion_ids_BL.repeat(1, 2))


def test_only_training_problems_are_drawn_and_every_one_in_a_pass(task):
    settings = settings_with(batch_size=64)
    policy = new_policy(settings, task)
    train_prompts = {problem.prompt for problem in task.problems("train")}
    batches = draw_solutions(policy, settings, task)
    seen = set()
    for _ in range(len(train_prompts) // 64 + 1):
        seen.update(policy.tokenizer.batch_decode(next(batches).prompt_ids_BC))
    assert seen == train_prompts


def test_early_ends_are_filled_with_end_tokens(task):
    class Short(type(task)):
        ends_with_eos = True

        def solution(self, problem, rng: random.Random):
            return super().solution(problem, rng).rsplit(" ", 4)[0]

    policy = new_policy(settings_with(), task)
    batch = next(draw_solutions(policy, settings_with(), Short()))
    assert (batch.completion_ids_BL[:, 8:] == policy.eos_token_id).all()
    assert (batch.completion_ids_BL[:, :8] != policy.eos_token_id).all()


def test_folder_has_the_shipped_layout(task, tmp_path):
    settings = settings_with(updates=2)
    folder = pretrain(settings, task, tmp_path / "policy", recipe="name: here\n")
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "steprs.json", RECIPE, LOG} <= names
    assert (folder / RECIPE).read_text() == "name: here\n"
    last = json.loads((folder / LOG).read_text().splitlines()[-1])
    assert (last["update"], last["of"]) == (2, 2)
    policy = load_policy(folder)
    assert dict(policy.decoding_defaults) == {"length": 12, "steps": 12, "block_size": 4, "task": "countdown"}
    assert policy.attention == "block_causal" and policy.block_size == 4


def test_time_limit_ends_the_run_and_the_log_says_so(task):
    settings = settings_with(updates=1000, max_minutes=1e-6)
    records = list(train(new_policy(settings, task), settings, task))
    assert [(record["update"], record["of"]) for record in records] == [(1, 1000)]


def test_blocks_must_divide_the_completion(task):
    with pytest.raises(ConfigError, match="block_size 5 does not divide the 12 tokens of countdown; allowed: 1, 2, 3"):
        new_policy(settings_with(block_size=5), task)


def test_rate_rises_stays_and_falls():
    factors = [rate_factor(update, 100, 10) for update in range(1, 101)]
    assert factors[0] == pytest.approx(0.1) and factors[9:50] == [1.0] * 41
    assert all(a > b for a, b in itertools.pairwise(factors[51:]))
    assert 0 < factors[-1] < 0.05


def test_a_new_policy_has_the_length_of_its_task(task):
    with pytest.raises(ConfigError, match="length is 16, but a new policy's tokens are the task's words, 12"):
        new_policy(settings_with(length=16), task)
    assert new_policy(settings_with(length=12), task).decoding_defaults["length"] == 12
