"""Evaluation of a policy: what a scripted sampler wrote is counted, and what a real one wrote does not move."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from steprs.errors import ArgumentError, TaskError
from steprs.evaluation.capability import Capability, measure_capability
from steprs.evaluation.evaluate import evaluate
from steprs.evaluation.records import WrittenTrace
from steprs.policies.tiny import create_tiny
from steprs.rollout.block import BlockDiffusionSampler
from steprs.tasks import get_task
from steprs.types import Decoding, Trajectory

TASK = get_task("countdown")
DECODING = Decoding(kind="block", length=12, steps=12, block_size=4)


@pytest.fixture(scope="module")
def policy():
    return create_tiny(
        TASK.vocabulary(), seed=0, hidden_size=16, intermediate_size=16, layers=1, heads=2,
        decoding_defaults={"length": 12, "steps": 12, "block_size": 4},
    )  # fmt: skip


class Script:
    """A sampler that writes given texts: rollout g of a prompt gets text g."""

    def __init__(self, texts_by_prompt, decoding=DECODING, end=False):
        self.texts_by_prompt, self.decoding, self.end = texts_by_prompt, decoding, end

    def sample(
        self, policy, prompt_ids_PC, prompt_mask_PC, *, group_size, row_keys_B, store_support=False, max_rows=1024
    ):
        prompts = [policy.tokenizer.decode(ids[mask]) for ids, mask in zip(prompt_ids_PC, prompt_mask_PC, strict=True)]
        rows = [policy.tokenizer(text)["input_ids"] for p in prompts for text in self.texts_by_prompt[p][:group_size]]
        ids_BL = torch.full((len(rows), self.decoding.length), policy.pad_token_id)
        mask_BL = torch.zeros_like(ids_BL, dtype=torch.bool)
        for b, row in enumerate(rows):
            row = [*row, policy.eos_token_id] if self.end and b % 2 == 0 else row
            ids_BL[b, : len(row)] = torch.tensor(row)
            mask_BL[b, : len(row)] = True
        return Trajectory(
            prompt_ids_BC=prompt_ids_PC.repeat_interleave(group_size, 0),
            prompt_mask_BC=prompt_mask_PC.repeat_interleave(group_size, 0),
            completion_ids_BL=ids_BL, unmask_step_BL=torch.where(mask_BL, 0, -1), completion_mask_BL=mask_BL,
            block_index_BL=torch.zeros_like(ids_BL), sampling_logprobs_BL=ids_BL * 0.0, entropies_BL=ids_BL * 0.0,
            num_steps_B=torch.ones(len(rows), dtype=torch.int64), mask_token_id=policy.mask_token_id,
            decoding=self.decoding, group_size=group_size, selection_exact=True, steps_fixed=True,
        )  # fmt: skip


def scripted(problems):
    """Gold, corrupted, unreadable, gold."""
    texts = {}
    for problem in problems:
        gold = TASK.gold_completion(problem)
        texts[problem.prompt] = [gold, TASK.corrupt(problem, gold), "+ + +", gold]
    return Script(texts)


def test_what_was_written_is_what_is_counted(policy):
    problems = TASK.problems("test", 3)
    result = evaluate(policy, TASK, scripted(problems), problems, samples=4, k=(1, 2), seed=0, max_rows=4)
    assert result.ids == tuple(problem.id for problem in problems)
    for samples in result.problems:
        assert samples.statuses == ("right", "wrong", "unparsed", "right")
        assert samples.texts == (0, 1, 2, 0)
        assert samples.tokens == (12, 12, 3, 12)
        assert samples.ended is None, "countdown does not end with an end token"
        steps = TASK.trace(None, samples.traces[0].text)
        assert samples.traces[0].equations == steps.equations and samples.traces[0].signature == steps.signature
        assert samples.traces[2] == WrittenTrace(text="+ + +")
        assert samples.answer_keys[2] is None and samples.answer_keys[0] == samples.answer_keys[3]
    summary = result.summary()
    assert summary["pass@1"].value == pytest.approx(0.5)
    assert summary["pass@2"].value == pytest.approx(5 / 6)
    assert summary["unparsed_rate"].value == pytest.approx(0.25)
    assert result.examples[0].completion == TASK.gold_completion(problems[0])


def test_a_missing_end_token_is_a_truncation(policy):
    class Ending(type(TASK)):
        ends_with_eos = True

    problems = TASK.problems("test", 2)
    script = scripted(problems)
    script.end, script.decoding = True, dataclasses.replace(DECODING, length=16)
    result = evaluate(policy, Ending(), script, problems, samples=4, k=(1,), seed=0)
    assert result.problems[0].ended == (True, False, True, False)
    assert result.summary()["truncated_rate"].value == pytest.approx(0.5)


def test_decoding_unlike_training_is_said(policy):
    problems = TASK.problems("test", 1)
    trained = dataclasses.replace(DECODING, steps=6)
    result = evaluate(policy, TASK, scripted(problems), problems, samples=2, k=(1,), seed=0, run_decoding=trained)
    assert result.decode_differences == ("steps: 12 in the evaluation, 6 in training",)
    assert result.decoding["length"] == 12


def test_the_batch_does_not_change_the_samples(policy):
    sampler, problems = BlockDiffusionSampler(decoding=DECODING), TASK.problems("test", 3)
    settings = {"samples": 4, "k": (1, 4), "seed": 3}
    whole = evaluate(policy, TASK, sampler, problems, **settings)
    pieces = evaluate(policy, TASK, sampler, problems, max_rows=4, **settings)
    assert whole == pieces
    assert whole != evaluate(policy, TASK, sampler, problems, **{**settings, "seed": 4})


def test_overlong_prompts_are_refused_or_named(policy):
    problems = TASK.problems("test", 3)
    long = dataclasses.replace(problems[1], prompt=problems[1].prompt + " 1")
    problems = [problems[0], long, problems[2]]
    settings = {"samples": 2, "k": (1,), "seed": 0, "max_prompt_tokens": 5}
    with pytest.raises(TaskError, match="has 6 tokens"):
        evaluate(policy, TASK, scripted(problems), problems, **settings)
    result = evaluate(policy, TASK, scripted(problems), problems, overlong="drop", **settings)
    assert result.dropped == (long.id,) and result.ids == (problems[0].id, problems[2].id)


@pytest.mark.parametrize(("samples", "k"), [(2, (4,)), (2, ()), (2, (0,))])
def test_k_must_fit_before_anything_is_decoded(policy, samples, k):
    with pytest.raises(ArgumentError, match="1 <= k <= samples"):
        evaluate(policy, TASK, None, TASK.problems("test", 1), samples=samples, k=k, seed=0)


def test_progress_is_told_in_problems(policy):
    seen, problems = [], TASK.problems("test", 3)
    evaluate(policy, TASK, scripted(problems), problems, samples=2, k=(1,), seed=0, max_rows=4, progress=seen.append)
    assert seen == [2, 1]


def test_an_observer_sees_every_batch_once(policy):
    seen, problems = [], TASK.problems("test", 3)
    result = evaluate(
        policy, TASK, scripted(problems), problems, samples=2, k=(1,), seed=0, max_rows=4,
        observe=lambda *batch: seen.append(batch),
    )  # fmt: skip
    assert [problem.id for part, _, _ in seen for problem in part] == list(result.ids)
    statuses = [verdict.status for _, _, rewards in seen for verdict in rewards.verdicts]
    assert statuses == [status for problem in result.problems for status in problem.statuses]


def test_capability_pools_and_survives_a_file(policy):
    problems = TASK.problems("train", 4)
    script = scripted(problems)
    script.texts_by_prompt[problems[0].prompt] = [TASK.gold_completion(problems[0])] * 4
    capability = measure_capability(policy, TASK, script, problems, samples=4, seed=0)
    assert capability.pass_rates == (1.0, 0.5, 0.5, 0.5)
    assert capability.pass_rate == pytest.approx(0.625) and capability.low <= 0.625 <= capability.high
    assert capability.share_with_signal == pytest.approx(0.75)
    assert capability.histogram(4) == (0, 0, 3, 1)
    assert Capability.from_json(capability.to_json()) == capability
