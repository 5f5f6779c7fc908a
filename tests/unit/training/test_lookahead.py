"""State rewards against the verifier on one state of one rollout at a time."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from steprs.errors import RewardError
from steprs.policies.loading import load_policy
from steprs.rollout.block import BlockDiffusionSampler
from steprs.rollout.collect import collect, decode_completions
from steprs.rollout.lookahead import recording
from steprs.rollout.masked import MaskedDiffusionSampler
from steprs.states import merge_steps, state_at
from steprs.tasks import get_task
from steprs.tasks.scoring import score_rollouts
from steprs.training.lookahead import collect_state_rewards
from steprs.types import Decoding, Verdict

TASK = get_task("countdown")
GROUP = 6
WHOLE = Decoding(kind="masked", length=12, steps=12, block_size=12, unmasking="max_probability")
SETTINGS = {
    "whole": WHOLE,
    "dynamic": dataclasses.replace(WHOLE, unmasking="confidence_threshold", threshold=0.6),
    "semi": dataclasses.replace(WHOLE, block_size=4),
    "block": dataclasses.replace(WHOLE, kind="block", block_size=4),
}


class Counting:
    """Countdown that notes what it is asked, and can fail."""

    def __init__(self, failing=()):
        self.asked, self.failing = [], failing

    def __getattr__(self, name):
        return getattr(TASK, name)

    def score(self, problem, completion):
        self.asked.append((problem.id, completion))
        verdict = TASK.score(problem, completion)
        return dataclasses.replace(verdict, reward=float("nan")) if completion in self.failing else verdict


def made(name):
    settings = SETTINGS[name]
    policy = load_policy("tiny" if settings.kind == "block" else "tiny-full")
    sampler = (BlockDiffusionSampler if settings.kind == "block" else MaskedDiffusionSampler)(decoding=settings)
    problems = TASK.problems("test", 3)
    trajectory = collect(
        policy, recording(sampler), problems, group_size=GROUP, seed=4, purpose="test", update=0,
        prompt_index_P=[0, 1, 2], max_prompt_tokens=99, max_rows=99,
    )  # fmt: skip
    return policy, problems, trajectory, score_rollouts(TASK, problems, decode_completions(policy, trajectory), GROUP)


def greedy_text(policy, trajectory, row, state):
    """The text of a state's greedy completion; in blocks, of the state that began its block."""
    blocks, steps = trajectory.block_index_BL[row], trajectory.unmask_step_BL[row]
    canvas = state_at(trajectory, state)[row]
    if trajectory.decoding.block_size < 12:
        block = int(blocks[steps == state].min())
        canvas = torch.where(blocks < block, trajectory.completion_ids_BL[row], policy.mask_token_id)
    ids = torch.cat([trajectory.prompt_ids_BC[row][trajectory.prompt_mask_BC[row]], canvas])[None]
    layout = None
    if policy.attention == "block_causal":
        layout = policy.block_layout(torch.ones_like(ids[:, :-12], dtype=torch.bool), 12)
    with torch.no_grad():
        logits = policy.logits(ids, block_BT=layout)[0, -12:]
    logits[:, [policy.mask_token_id, policy.pad_token_id]] = -torch.inf
    filled = torch.where(canvas == policy.mask_token_id, logits.argmax(-1), canvas).tolist()
    end = filled.index(policy.eos_token_id) if policy.eos_token_id in filled else 12
    return policy.tokenizer.decode(filled[:end])


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("shrinkage", [1, 3])
def test_state_rewards_against_one_state_at_a_time(name, shrinkage):
    policy, problems, trajectory, rewards = made(name)
    trajectory = merge_steps(trajectory, shrinkage)
    task = Counting()
    values, info = collect_state_rewards(policy, task, problems, trajectory, rewards, max_rows=7)
    steps = trajectory.num_steps_B.tolist()
    assert values.shape == (3, GROUP, max(steps) + 1) and values.dtype == torch.float64
    own = {(problems[row // GROUP].id, text) for row, text in enumerate(decode_completions(policy, trajectory))}
    texts, early = set(), 0
    for row, taken in enumerate(steps):
        found = values.view(3 * GROUP, -1)[row].tolist()
        problem = problems[row // GROUP]
        for state in range(taken):
            text = greedy_text(policy, trajectory, row, state)
            texts.add((problem.id, text))
            assert found[state] == float(TASK.score(problem, text).status == "right")
            early += found[state] != float(rewards.rewards_PG.flatten()[row])
        assert found[taken:] == [float(rewards.rewards_PG.flatten()[row])] * (len(found) - taken)
    assert early, "some state must differ from its rollout, or nothing was tested"
    assert sorted(task.asked) == sorted(texts - own) and info["verifier_calls"] == len(task.asked)
    assert info["unscored_states"] == 0 and (info["extra_forwards"] == 0) == (name in ("whole", "dynamic"))


def test_states_of_a_block_share_the_value_of_its_beginning():
    policy, problems, trajectory, rewards = made("block")
    values, _ = collect_state_rewards(policy, TASK, problems, trajectory, rewards)
    assert values.shape[2] == 13
    for block in range(3):
        assert torch.equal(
            values[..., 4 * block : 4 * block + 4], values[..., 4 * block :][..., :1].expand(3, GROUP, 4)
        )


def test_what_cannot_be_scored_is_an_error_or_takes_the_next_state():
    policy, problems, trajectory, rewards = made("whole")
    text = greedy_text(policy, trajectory, 0, 0)
    sane, _ = collect_state_rewards(policy, TASK, problems, trajectory, rewards)
    with pytest.raises(RewardError, match=r"nan.*not finite"):
        collect_state_rewards(policy, Counting([text]), problems, trajectory, rewards)
    found, info = collect_state_rewards(policy, Counting([text]), problems, trajectory, rewards, bad_rewards="mask")
    lost = [
        [row // GROUP, row % GROUP, state]
        for row, taken in enumerate(trajectory.num_steps_B.tolist()) for state in range(taken)
        if greedy_text(policy, trajectory, row, state) == text
    ]  # fmt: skip
    assert info["unscored_states"] == len(lost) > 0
    expected = sane.clone()
    for p, g, state in reversed(lost):
        expected[p, g, state] = expected[p, g, state + 1]
    assert torch.equal(found, expected)


def test_rewards_of_masked_rollouts_are_not_taken_for_known():
    policy, problems, trajectory, rewards = made("whole")
    wrong = dataclasses.replace(
        rewards, rewards_PG=torch.zeros_like(rewards.rewards_PG), valid_PG=torch.zeros_like(rewards.valid_PG),
        verdicts=tuple(Verdict(reward=0.0, status="wrong") for _ in rewards.verdicts),
    )  # fmt: skip
    values, _ = collect_state_rewards(policy, TASK, problems, trajectory, wrong)
    sane, _ = collect_state_rewards(policy, TASK, problems, trajectory, rewards)
    assert torch.equal(values[..., :-1], sane[..., :-1]) and not values[..., -1].any()


def test_shaping_of_final_rewards_does_not_reach_the_states():
    """The first state's completion is some rollout's own text, whose reward was shaped after it was scored."""
    policy, problems, trajectory, rewards = made("whole")
    shaped = dataclasses.replace(rewards, rewards_PG=rewards.rewards_PG * 0.5, binary=False)
    sane, _ = collect_state_rewards(policy, TASK, problems, trajectory, rewards)
    values, _ = collect_state_rewards(policy, TASK, problems, trajectory, shaped)
    assert torch.equal(values[..., :-1], sane[..., :-1]) and torch.equal(values[..., -1], 0.5 * sane[..., -1])
    early = {greedy_text(policy, trajectory, row, 11) for row in range(18)}
    texts = zip(decode_completions(policy, trajectory), rewards.rewards_PG.flatten().tolist(), strict=True)
    right = {text for text, reward in texts if reward}
    assert early & right, "a right rollout's text must be among the states'"
