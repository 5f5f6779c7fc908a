"""Denoising statistics by hand, and greedy completion of states against one forward at a time."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
import torch

from steprs.evaluation.denoising import (
    _spaced,
    commit_progress,
    denoising_samples,
    entropy_by_progress,
    ever_right,
    reveal_order,
)
from steprs.evaluation.metrics import problem_metrics
from steprs.evaluation.records import DenoisingSamples, ProblemSamples
from steprs.policies.loading import load_policy
from steprs.policies.tiny import create_tiny
from steprs.rollout.block import BlockDiffusionSampler
from steprs.rollout.collect import collect, decode_completions
from steprs.rollout.masked import MaskedDiffusionSampler
from steprs.states import denoising_progress, state_at
from steprs.tasks import get_task
from steprs.tasks.scoring import score_rollouts
from steprs.types import Decoding, Trajectory, Verdict

TASK = get_task("countdown")
MASKED = Decoding(kind="masked", length=12, steps=12, block_size=12)
SEED = 4
BLOCKS = Decoding(kind="block", length=12, steps=12, block_size=4, unmasking="max_probability")


def made(steps, ids=None, *, decoding=MASKED, blocks=None, entropies=None, mask=None, group_size=1):
    """A trajectory from one list of reveal steps a rollout."""
    step_BL = torch.tensor(steps)
    rows, length = step_BL.shape
    prompt = torch.full((rows, 1), 5)
    entropy_BL = step_BL * 0.0 if entropies is None else torch.tensor(entropies)
    return Trajectory(
        prompt_ids_BC=prompt, prompt_mask_BC=torch.ones_like(prompt).bool(),
        completion_ids_BL=torch.full((rows, length), 5) if ids is None else ids,
        unmask_step_BL=step_BL, block_index_BL=torch.zeros_like(step_BL) if blocks is None else torch.tensor(blocks),
        completion_mask_BL=step_BL >= 0 if mask is None else torch.tensor(mask).bool(),
        sampling_logprobs_BL=step_BL * 0.0, entropies_BL=entropy_BL,
        num_steps_B=step_BL.amax(1) + 1, mask_token_id=2, decoding=decoding, group_size=group_size,
        selection_exact=True, steps_fixed=True,
    )  # fmt: skip


def test_reveal_order_by_hand():
    order = reveal_order(made([[0, 1, 2, 3], [3, 2, 1, 0], [0, 0, 1, 1], [0, 2, 1, 3], [1, 1, 1, 1]]))
    # The fourth row: five of six pairs in order.
    assert order[:4].tolist() == pytest.approx([1.0, -1.0, 1.0, (5 - 1) / 6])
    assert order[4].isnan(), "one state orders nothing"


def test_blocks_and_what_follows_the_end_order_nothing():
    # Right to left inside both blocks; the blocks themselves come in order by construction.
    assert reveal_order(made([[1, 0, 3, 2]], blocks=[[0, 0, 1, 1]])).tolist() == [-1.0]
    assert reveal_order(made([[0, 1, 3, 2]], mask=[[1, 1, 0, 0]])).tolist() == [1.0]


def test_entropy_by_progress_by_hand():
    trajectory = made([[0, 1, 2, 3, 4, 4]], entropies=[[1.0, 2.0, 3.0, 4.0, 5.0, 7.0]])
    found = entropy_by_progress(trajectory, denoising_progress(trajectory))
    # Progress 0, 1/4, 1/2, 3/4, 1, 1.
    assert found.tolist() == [[1.0, 2.0, 3.0, 4.0, 6.0]]
    short = made([[0, 1]], entropies=[[1.0, 3.0]])
    assert entropy_by_progress(short, denoising_progress(short)).isnan().tolist() == [[False, True, True, True, False]]


@pytest.fixture(scope="module")
def words():
    return create_tiny(TASK.vocabulary(), seed=0, hidden_size=16, intermediate_size=16, layers=1, heads=2)


def test_the_answer_is_fixed_when_its_last_token_is(words):
    text = "1 + 2 3 3 + 4 7 7 + 3 10"
    ids = torch.tensor([words.tokenizer(text)["input_ids"]] * 2)
    # The last word of twelve was revealed in step 6 of 0..11 first, then in the last step.
    steps = [[0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 6], list(range(12))]
    trajectory = made(steps, ids)
    progress = denoising_progress(trajectory)
    spans = [TASK.answer_span(None, text)] * 2
    assert commit_progress(words, trajectory, progress, spans) == [pytest.approx(6 / 11, abs=1e-6), 1.0]
    assert commit_progress(words, trajectory, progress, [None, (0, 1)]) == [None, 0.0]
    # An answer of several tokens is fixed with the last of them: words 5 to 7 ("3 + 4") and steps 4, 5, 7.
    assert text[8:13] == "3 + 4"
    assert commit_progress(words, trajectory, progress, [(8, 13), (8, 13)]) == pytest.approx([7 / 11, 6 / 11], abs=1e-6)


class Knows:
    """A policy with full attention whose likeliest word is the gold completion's, whatever the canvas shows."""

    attention = "bidirectional"

    def __init__(self, policy, gold):
        self.module, self.tokenizer = policy.module, policy.tokenizer
        self.eos_token_id, self.mask_token_id, self.pad_token_id = 1, policy.mask_token_id, policy.pad_token_id
        self.vocab_size, self.gold, self.forwards = policy.vocab_size, torch.tensor(gold), 0

    def logits(self, ids_BT, *, attention_mask, select_BT, reduce):
        self.forwards += len(ids_BT)
        gold_BT = torch.cat([torch.zeros(ids_BT.shape[1] - 12).long(), self.gold]).expand_as(ids_BT)
        hidden_NH = torch.nn.functional.one_hot(gold_BT[select_BT], self.vocab_size).double()
        # The mask token is always likelier, and may not be taken.
        hidden_NH[:, self.mask_token_id] = 2.0
        return reduce(lambda hidden: hidden, hidden_NH)


def test_a_rollout_backslides_if_its_fault_came_late(words):
    problem = TASK.problems("test", 1)[0]
    gold = TASK.gold_completion(problem)
    wrong = TASK.corrupt(problem, gold)
    policy = Knows(words, words.tokenizer(gold)["input_ids"])
    ids = torch.tensor([words.tokenizer(text)["input_ids"] for text in (wrong, wrong, gold)])
    # The wrong word is the last one: revealed in the last state, in the first state, and (right) in the last.
    steps = [list(range(12)), [*range(1, 12), 0], list(range(12))]
    trajectory = made(steps, ids, group_size=3)
    verdicts = [TASK.score(problem, text) for text in (wrong, wrong, gold)]
    assert ever_right(policy, TASK, [problem], trajectory, verdicts) == [True, False, True]
    assert policy.forwards == 2 + 10, "none for what ended right, nor for what was right in an earlier state"


def shipped(kind):
    policy = load_policy("tiny" if kind == "block" else "tiny-full")
    settings = BLOCKS if kind == "block" else dataclasses.replace(MASKED, unmasking="max_probability")
    sampler = (BlockDiffusionSampler if kind == "block" else MaskedDiffusionSampler)(decoding=settings)
    problems = TASK.problems("test", 3)
    trajectory = collect(
        policy, sampler, problems, group_size=6, seed=SEED, purpose="test", update=0, prompt_index_P=[0, 1, 2],
        max_prompt_tokens=99, max_rows=99,
    )  # fmt: skip
    texts = decode_completions(policy, trajectory)
    return policy, problems, trajectory, texts, score_rollouts(TASK, problems, texts, 6).verdicts


def test_states_of_full_attention_against_one_row_at_a_time():
    policy, problems, trajectory, _, verdicts = shipped("masked")
    expected = [verdict.status == "right" for verdict in verdicts]
    with torch.no_grad():
        for row in range(18):
            for state in range(1, 12):
                canvas = state_at(trajectory, state)[row]
                ids = torch.cat([trajectory.prompt_ids_BC[row], canvas])[None]
                logits = policy.logits(ids)[0, -12:]
                logits[:, [policy.mask_token_id, policy.pad_token_id]] = -torch.inf
                filled = torch.where(canvas == policy.mask_token_id, logits.argmax(-1), canvas)
                expected[row] |= TASK.score(problems[row // 6], policy.tokenizer.decode(filled)).status == "right"
    found = ever_right(policy, TASK, problems, trajectory, verdicts, max_rows=5)
    assert found == expected
    assert sum(found) > sum(verdict.status == "right" for verdict in verdicts), "the seed must give a backslide"


def test_block_ends_against_the_slow_sampler():
    policy, problems, trajectory, _, verdicts = shipped("block")
    expected = [verdict.status == "right" for verdict in verdicts]
    for row in range(18):
        for blocks in (1, 2):
            ids = trajectory.completion_ids_BL[row].clone()
            ids[4 * blocks :] = policy.mask_token_id
            ids = torch.cat([trajectory.prompt_ids_BC[row], ids])[None]
            start = ids.shape[1] - 12
            with torch.no_grad():
                for _ in range(12 - 4 * blocks):
                    # Whole-row forwards; the likeliest masked word of the first unfinished block is revealed.
                    logits = policy.logits(ids)[0].log_softmax(-1)
                    logits[:, [policy.mask_token_id, policy.pad_token_id]] = -torch.inf
                    open_T = ids[0] == policy.mask_token_id
                    first = int(open_T.nonzero()[0])
                    open_T[first - (first - start) % 4 + 4 :] = False
                    best = logits.log_softmax(-1).amax(-1).masked_fill(~open_T, -torch.inf).argmax()
                    ids[0, best] = logits[best].argmax()
            text = policy.tokenizer.decode(ids[0, start:])
            expected[row] |= TASK.score(problems[row // 6], text).status == "right"
    found = ever_right(policy, TASK, problems, trajectory, verdicts, max_rows=7)
    assert found == expected
    assert sum(found) > sum(verdict.status == "right" for verdict in verdicts), "the seed must give a backslide"


def test_a_greedy_rollout_never_backslides():
    policy = load_policy("tiny")
    sampler = BlockDiffusionSampler(decoding=dataclasses.replace(BLOCKS, temperature=0.0))
    problems = TASK.problems("test", 6)
    trajectory = collect(
        policy, sampler, problems, group_size=1, seed=3, purpose="test", update=0, prompt_index_P=list(range(6)),
        max_prompt_tokens=99, max_rows=99,
    )  # fmt: skip
    verdicts = score_rollouts(TASK, problems, decode_completions(policy, trajectory), 1).verdicts
    # Its own continuation is what the prefix is completed with.
    assert ever_right(policy, TASK, problems, trajectory, verdicts) == [v.status == "right" for v in verdicts]


def test_rollouts_of_one_state_have_nothing_to_look_at():
    verdict = Verdict(reward=0.0, status="wrong", answer_key="1")
    assert ever_right(None, TASK, [], made([[0, 0, 0]]), [verdict]) is None


def test_many_states_are_thinned_out_evenly():
    assert _spaced(16) == list(range(1, 17))
    chosen = _spaced(255)
    assert (chosen[0], chosen[-1], len(chosen)) == (1, 255, 16)
    assert {b - a for a, b in pairwise(chosen)} <= {16, 17, 18}


def samples(**changes):
    fields = {
        "commit_progress": (0.5, 1.0, None, 0.25),
        "reveal_order": (1.0, None, 0.0, -0.5),
        "entropy_by_progress": ((1.0, None, 3.0, 4.0, 5.0), (2.0, None, 3.0, 4.0, None)) * 2,
        "ever_right": (True, True, False, True),
    }
    return ProblemSamples(
        id="one", statuses=("right", "wrong", "unparsed", "wrong"), answer_keys=("1", "2", None, "3"),
        solution_keys=(None,) * 4, texts=(0, 1, 2, 3), tokens=(1,) * 4, denoising=DenoisingSamples(**fields | changes),
    )  # fmt: skip


def test_denoising_statistics_by_hand():
    values = problem_metrics(samples(), (1,))
    expected = {
        "commit_progress": (0.5 + 1.0 + 0.25) / 3,
        "commit_progress_right": 0.5,
        "commit_progress_wrong": (1.0 + 0.25) / 2,
        "reveal_order": 0.5 / 3,
        "entropy_tau_0.0_0.2": 1.5,
        "entropy_tau_0.8_1.0": 5.0,
        # Two of the three wrong ones were right at some time.
        "backslide_rate": 2 / 4,
        "backslide_rate_wrong": 2 / 3,
    }
    assert {name: values[name] for name in expected} == pytest.approx(expected)
    assert values["entropy_tau_0.2_0.4"] != values["entropy_tau_0.2_0.4"], "no token was revealed there"


def test_what_was_not_measured_is_not_zero():
    values = problem_metrics(samples(ever_right=None), (1,))
    assert values["backslide_rate"] != values["backslide_rate"] and values["commit_progress"] > 0
    assert ProblemSamples.from_json(samples().to_json()) == samples()


def test_a_record_is_put_together_a_problem_at_a_time():
    policy, problems, trajectory, texts, verdicts = shipped("block")
    found = denoising_samples(policy, TASK, problems, texts, trajectory, verdicts, backslide_problems=2)
    assert [one.ever_right is None for one in found] == [False, False, True]
    assert found[1].ever_right == tuple(ever_right(policy, TASK, problems, trajectory, verdicts)[6:12])
    step = trajectory.unmask_step_BL[:, 11] / 11
    for number, one in enumerate(found):
        for g, value in enumerate(one.commit_progress):
            row = number * 6 + g
            assert value == (None if verdicts[row].status == "unparsed" else pytest.approx(float(step[row]), abs=1e-6))
