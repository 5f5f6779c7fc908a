"""Block families over hundreds of tokens: one rollout at a time without a cache says the same; nothing leaks."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from published import write_checkpoint
from torch import Tensor

from steprs.logprobs import plan_trace, score_plan, trajectory_logprobs
from steprs.policies.base import Policy
from steprs.policies.loading import Overrides, load_policy
from steprs.randomness import row_keys, uniforms
from steprs.rollout.block import BlockDiffusionSampler
from steprs.rollout.steps import block_steps, spread
from steprs.types import Decoding, Trajectory

FAMILIES = ("sdar", "fast-dllm-v2", "a2d", "llada", "llada2")
PROMPTS = [[5, 9, 7], [7] * 8, [30, 31] * 19]
GROUP = 2


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("published")
    return {name: write_checkpoint(root / name, name) for name in FAMILIES}


def block_policy(folders: dict[str, Path], family: str, size: int) -> Policy:
    """Of the family; llada has no blocks of its own and stands for a Llama that was given some, after the prompt."""
    if family == "llada":
        policy = load_policy(folders[family])
        return dataclasses.replace(policy, attention="block_causal", block_size=size)
    return load_policy(folders[family], overrides=Overrides(block_size=size))


def decoding(length: int, steps: int, size: int, **changes: Any) -> Decoding:
    fields = {"unmasking": "max_probability", "temperature": 0.8} | changes
    return Decoding(kind="block", length=length, steps=steps, block_size=size, **fields)


def keys_of(prompts: int) -> Tensor:
    index_B = torch.arange(prompts).repeat_interleave(GROUP)
    return row_keys(3, "length", 0, index_B, torch.arange(GROUP).repeat(prompts))


def decode(policy: Policy, settings: Decoding, prompts: list[list[int]] = PROMPTS, **options: Any) -> Trajectory:
    width = max(map(len, prompts))
    ids_PC = torch.tensor([[policy.pad_token_id] * (width - len(row)) + row for row in prompts])
    mask_PC = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in prompts])
    sampler = BlockDiffusionSampler(decoding=settings)
    return sampler.sample(policy, ids_PC, mask_PC, group_size=GROUP, row_keys_B=keys_of(len(prompts)), **options)


@torch.no_grad()
def one_rollout(policy: Policy, prompt: list[int], key_1: Tensor, settings: Decoding) -> dict[str, list[Any]]:
    """Prompt and canvas up to the open block are read anew in every step; positions are looked at one by one."""
    size, length, context = settings.block_size, settings.length, len(prompt)
    lead = context % size if policy.prompt_block == "aligned" else 0
    never = [policy.mask_token_id, *({policy.pad_token_id} - {policy.eos_token_id})]
    canvas, step, logprob = [policy.mask_token_id] * length, [-1] * length, [0.0] * length

    def block_of(at: int) -> int:
        return at // size if policy.prompt_block == "aligned" else (at - context) // size if at >= context else -1

    taken, start, block = 0, 0, 0
    while start < length:
        stop = min(start + size - (lead if start == 0 else 0), length)
        share = -(-(stop - start) * settings.steps // length) if lead else block_steps(settings)[block]
        ids = prompt + canvas[:stop]
        blocks = torch.tensor([block_of(at) for at in range(len(ids))])
        sees = blocks[None, :] <= blocks[:, None]
        for left, count in zip(range(share, 0, -1), spread(stop - start, share), strict=True):
            opened = [at for at in range(start, stop) if canvas[at] == policy.mask_token_id]
            if not opened:
                break
            ids = torch.tensor([prompt + canvas[:stop]])
            place = torch.arange(ids.shape[1])[None]
            logits = policy.logits(ids, attention_mask=sees[None, None], position_ids=place)[0, context:].double()
            logits[:, never] = -torch.inf
            sure = {at: float(logits[at].softmax(-1).max()) for at in opened}
            if settings.threshold is not None:
                above = sum(chance >= settings.threshold for chance in sure.values())
                count = max(above, -(-len(opened) // left))
            for at in sorted(opened, key=lambda at: (-sure[at], at))[:count]:
                chance = (logits[at] / settings.temperature).softmax(-1)
                drawn = uniforms(key_1, taken, torch.tensor([at]))[0, 0]
                canvas[at] = int((chance.cumsum(0) > drawn).nonzero()[0])
                step[at], logprob[at] = taken, float(chance[canvas[at]].log())
            taken += 1
        if policy.eos_token_id in canvas[start:stop]:
            break
        start, block = stop, block + 1
    ids = [policy.pad_token_id if token == policy.mask_token_id else token for token in canvas]
    return {"ids": ids, "step": step, "logprob": logprob}


CASES = [
    ("sdar", decoding(256, 150, 4)),
    ("sdar", decoding(288, 70, 32)),
    ("sdar", decoding(256, 100, 32, unmasking="confidence_threshold", threshold=0.35)),
    ("fast-dllm-v2", decoding(256, 60, 32)),
    ("a2d", decoding(256, 128, 4)),
    ("llada", decoding(256, 50, 32)),
]


@pytest.mark.parametrize(("family", "settings"), CASES)
def test_rollouts_are_those_of_one_at_a_time_without_a_cache(
    family: str, settings: Decoding, folders: dict[str, Path]
) -> None:
    """Prompts that end anywhere in a block, ends anywhere, rows with other numbers of steps: all in one batch."""
    policy = block_policy(folders, family, settings.block_size)
    trajectory = decode(policy, settings)
    keys_B, reached = keys_of(len(PROMPTS)), []
    for row in range(len(PROMPTS) * GROUP):
        slow = one_rollout(policy, PROMPTS[row // GROUP], keys_B[row : row + 1], settings)
        assert trajectory.completion_ids_BL[row].tolist() == slow["ids"]
        assert trajectory.unmask_step_BL[row].tolist() == slow["step"]
        gap = (trajectory.sampling_logprobs_BL[row] - torch.tensor(slow["logprob"])).abs().max()
        assert gap <= 1e-4
        reached.append(sum(at >= 0 for at in slow["step"]))
    assert not bool((trajectory.completion_ids_BL == policy.mask_token_id).any())
    assert len(set(reached)) > 1 and max(reached) > 64, "some end early, some go on"
    scored_BL = trajectory_logprobs(policy, trajectory, token_budget=400).detach()
    gap_BL = (scored_BL - trajectory.sampling_logprobs_BL) * trajectory.completion_mask_BL
    assert float(gap_BL.abs().max()) <= 1e-4


@pytest.mark.parametrize("size", [4, 32])
@pytest.mark.parametrize("family", FAMILIES)
def test_rollouts_do_not_depend_on_the_batch(family: str, size: int, folders: dict[str, Path]) -> None:
    policy = block_policy(folders, family, size)
    settings = decoding(96, 24, size, unmasking="confidence_threshold", threshold=0.3)
    together = decode(policy, settings)
    for part in (decode(policy, settings, max_rows=3), decode(policy, settings, max_rows=1)):
        assert torch.equal(part.completion_ids_BL, together.completion_ids_BL)
        assert torch.equal(part.unmask_step_BL, together.unmask_step_BL)
        assert float((part.sampling_logprobs_BL - together.sampling_logprobs_BL).abs().max()) <= 1e-5


def long_trajectory(policy: Policy, length: int) -> Trajectory:
    """Rollouts that go on to the end, of prompts of other lengths."""
    never = dataclasses.replace(policy, eos_token_id=-1)
    trajectory = decode(never, decoding(length, 48 if policy.block_size == 4 else 12, policy.block_size or 4))
    assert bool(trajectory.completion_mask_BL.all())
    return trajectory


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("size", [4, 32])
@pytest.mark.parametrize("family", FAMILIES)
def test_in_a_packed_row_no_later_block_reaches_an_earlier_one(
    family: str, size: int, implementation: str, folders: dict[str, Path]
) -> None:
    """Bit for bit, in the same row: tokens of later blocks, clean and noisy, are changed; and other rollouts'."""
    policy = block_policy(folders, family, size)
    policy.model.set_attn_implementation(implementation)
    trajectory = long_trajectory(policy, 96)
    changed_L = trajectory.block_index_BL[0] >= 1 + trajectory.block_index_BL[0].max() // 2
    ids_BL = trajectory.completion_ids_BL
    other_BL = torch.where(changed_L, 5 + (ids_BL - 4) % 30, ids_BL)
    other_BL[1:] = 5 + (ids_BL[1:] - 4) % 30
    other = dataclasses.replace(trajectory, completion_ids_BL=other_BL)
    for budget in (100_000, 150):
        plan = plan_trace(trajectory, policy, token_budget=budget)
        with torch.no_grad():
            before_BL, after_BL = (
                score_plan(policy, t, plan_trace(t, policy, token_budget=budget)) for t in (trajectory, other)
            )
        assert (len(plan) > 4) == (budget == 150)
        assert torch.equal(before_BL[0, ~changed_L], after_BL[0, ~changed_L])
        assert bool((before_BL[0, changed_L] != after_BL[0, changed_L]).all())
        assert bool((before_BL[1:] != after_BL[1:]).all())


@pytest.mark.parametrize("size", [4, 32])
@pytest.mark.parametrize("family", FAMILIES)
def test_scores_and_gradients_do_not_depend_on_padding_or_splits(
    family: str, size: int, folders: dict[str, Path]
) -> None:
    policy = block_policy(folders, family, size)
    trajectory = long_trajectory(policy, 96)
    tilt_BL = torch.linspace(-1, 2, trajectory.completion_ids_BL.numel()).view(trajectory.completion_ids_BL.shape) / 96

    def scores(budget: int) -> tuple[Tensor, list[Tensor]]:
        logprobs_BL = trajectory_logprobs(policy, trajectory, token_budget=budget)
        return logprobs_BL.detach(), list(torch.autograd.grad((logprobs_BL * tilt_BL).sum(), policy.parameters()))

    whole_BL, slopes = scores(100_000)
    for budget in (700, 150):
        part_BL, parts = scores(budget)
        assert float((part_BL - whole_BL).abs().max()) <= 1e-5
        for one, other in zip(parts, slopes, strict=True):
            torch.testing.assert_close(one, other, atol=2e-5 * float(other.abs().max()), rtol=1e-4)
    for row in range(len(PROMPTS) * GROUP):
        alone = trajectory.rows(torch.tensor([row]))
        real = alone.prompt_mask_BC[0]
        alone = dataclasses.replace(
            alone, prompt_ids_BC=alone.prompt_ids_BC[:, real], prompt_mask_BC=alone.prompt_mask_BC[:, real]
        )
        with torch.no_grad():
            assert float((trajectory_logprobs(policy, alone)[0] - whole_BL[row]).abs().max()) <= 1e-5
