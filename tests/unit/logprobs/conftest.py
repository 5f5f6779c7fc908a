"""A float64 policy, random valid trajectories, and a reference that scores one state of one rollout at a time."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steprs.policies.base import Policy, PolicyModule
from steprs.policies.tiny import create_tiny
from steprs.types import Decoding, Trajectory

WORDS = [str(number) for number in range(9)]


class DoubleModule(PolicyModule):
    """Two layers of attention and MLP in float64: stock classes round to float32 inside, which hides small errors."""

    def __init__(self, vocabulary: int, width: int = 12):
        shell: Any = nn.Module()
        shell.config = SimpleNamespace(_attn_implementation="sdpa")
        super().__init__(shell)
        generator = torch.Generator().manual_seed(0)

        def weight(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, dtype=torch.float64, generator=generator) / shape[-1] ** 0.5)

        self.tokens, self.positions = weight(vocabulary, width), weight(64, width)
        self.attend = nn.ParameterList([weight(3, width, width) for _ in range(2)])
        self.mix = nn.ParameterList([weight(width, width) for _ in range(2)])
        self.out = weight(vocabulary, width)

    def forward(self, ids_BT, mask, position_ids_BT, select_BT, cache, reduce=None):  # type: ignore[no-untyped-def]
        hidden = 3 * self.tokens[ids_BT] + 3 * self.positions[position_ids_BT]
        for attend, mix in zip(self.attend, self.mix, strict=True):
            query, key, value = (hidden @ matrix for matrix in attend)
            scores = (query @ key.transpose(1, 2)).masked_fill(~mask[:, 0], -torch.inf)
            hidden = hidden + scores.softmax(-1) @ value
            hidden = hidden + torch.tanh(hidden @ mix)
        hidden = hidden if select_BT is None else hidden[select_BT]
        return self.head(hidden) if reduce is None else reduce(self.head, hidden)

    def head(self, hidden: Tensor) -> Tensor:
        return hidden @ self.out.T


def build_policy(attention: str, *, prompt_block: str = "whole", block_size: int = 3, double: bool = True) -> Policy:
    policy = create_tiny(
        WORDS, seed=0, attention=attention, block_size=block_size, hidden_size=16, intermediate_size=24, layers=2,
        heads=2,
    )  # fmt: skip
    policy = dataclasses.replace(policy, prompt_block=prompt_block)
    return policy.with_module(DoubleModule(policy.vocab_size)) if double else policy


def build_trajectory(
    policy: Policy, seed: int, *, rows: int = 3, context: int = 4, length: int = 6, support: int | None = None,
    temperature: float = 1.0,
) -> Trajectory:  # fmt: skip
    """Random ids and a random order of reveal that is valid for the policy's decoding; early ends included."""
    rng = random.Random(seed)
    lengths = [rng.randint(1, context) for _ in range(rows)]
    prompt_mask = torch.tensor([[column >= context - n for column in range(context)] for n in lengths])
    prompt = torch.randint(3, policy.vocab_size, (rows, context), generator=torch.Generator().manual_seed(seed))
    block = policy.block_layout(prompt_mask, length)[:, context:]
    ids, step, mask, steps = [], [], [], []
    for row in range(rows):
        tokens = [rng.randint(3, policy.vocab_size - 1) for _ in range(length)]
        end = rng.randint(0, length - 1) if rng.random() < 0.6 else None
        if end is not None:
            tokens[end:] = [policy.eos_token_id] * (length - end)
        reveal, count = _reveal(rng, block[row].tolist(), end)
        ids.append([t if s >= 0 else policy.pad_token_id for t, s in zip(tokens, reveal, strict=True)])
        step.append(reveal)
        mask.append([s >= 0 and (end is None or place <= end) for place, s in enumerate(reveal)])
        steps.append(count)
    kind = "block" if policy.attention == "block_causal" else "masked"
    ids_BL = torch.tensor(ids)
    support_BLK = None
    if support is not None:
        generator = torch.Generator().manual_seed(seed + 1)
        others = torch.randint(3, policy.vocab_size, (rows, length, support), generator=generator)
        # Sets, not lists: a repeated id would count twice.
        first = torch.cat((ids_BL[..., None], others), dim=-1)
        repeated = (first[..., :, None] == first[..., None, :]).tril(-1).any(-1)
        support_BLK = first.masked_fill(repeated, -1)
    return Trajectory(
        prompt_ids_BC=prompt.masked_fill(~prompt_mask, policy.pad_token_id),
        prompt_mask_BC=prompt_mask,
        completion_ids_BL=ids_BL,
        unmask_step_BL=torch.tensor(step),
        block_index_BL=block - block.min(),
        completion_mask_BL=torch.tensor(mask),
        sampling_logprobs_BL=torch.zeros(rows, length),
        entropies_BL=torch.zeros(rows, length),
        num_steps_B=torch.tensor(steps),
        mask_token_id=policy.mask_token_id,
        decoding=Decoding(
            kind=kind, length=length, steps=length, block_size=policy.block_size if kind == "block" else length,
            temperature=temperature, top_k=0 if support is None else support,
        ),
        group_size=1,
        selection_exact=True,
        steps_fixed=False,
        support_ids_BLK=support_BLK,
    )  # fmt: skip


def _reveal(rng: random.Random, block: list[int], end: int | None) -> tuple[list[int], int]:
    """Blocks one after the other, one to three tokens a step; whole blocks behind the end are never revealed."""
    reveal, count = [-1] * len(block), 0
    for index in sorted(set(block)):
        places = [place for place, b in enumerate(block) if b == index]
        if end is not None and len(set(block)) > 1 and index > block[end]:
            break
        rng.shuffle(places)
        while places:
            for _ in range(rng.randint(1, 3)):
                if places:
                    reveal[places.pop()] = count
            count += 1
    if len(set(block)) == 1 and rng.random() < 0.3:
        reveal[-1] = -1
    return reveal, count


def slow_score(
    policy: Policy, trajectory: Trajectory, row: int, place: int, hidden: Callable[[int], bool],
    hidden_prompt: Callable[[int], bool] = lambda column: False,
) -> Tensor:  # fmt: skip
    """Log-probability of one token with one plain forward of one sequence, up to the end of its block.

    `hidden(place)` says which completion positions of the token's own block (the canvas, if there is one block) show
    the mask token; blocks before it are finished.
    """
    context = trajectory.prompt_ids_BC.shape[1]
    block = policy.block_layout(trajectory.prompt_mask_BC, trajectory.completion_ids_BL.shape[1])[row].tolist()
    mine = block[context + place]
    ids, blocks, at = [], [], -1
    for column, index in enumerate(block):
        if column < context and not trajectory.prompt_mask_BC[row, column]:
            continue
        if index > mine:
            continue
        if column < context:
            token, masked = int(trajectory.prompt_ids_BC[row, column]), hidden_prompt(column)
        else:
            p = column - context
            token = int(trajectory.completion_ids_BL[row, p])
            masked = bool(trajectory.unmask_step_BL[row, p] < 0) or (index == mine and hidden(p))
        at = len(ids) if column == context + place else at
        ids.append(policy.mask_token_id if masked else token)
        blocks.append(index)
    size = len(ids)
    mask = torch.tensor([[blocks[key] <= blocks[query] for key in range(size)] for query in range(size)])
    logits = policy.logits(torch.tensor([ids]), attention_mask=mask[None, None], position_ids=torch.arange(size)[None])
    return _pick(policy, trajectory, logits[0, at], row, place)


def _pick(policy: Policy, trajectory: Trajectory, logits_V: Tensor, row: int, place: int) -> Tensor:
    allowed = set(range(policy.vocab_size)) - {policy.mask_token_id, policy.pad_token_id}
    if trajectory.support_ids_BLK is not None:
        allowed &= set(trajectory.support_ids_BLK[row, place].tolist())
    scaled = logits_V / (trajectory.decoding.temperature or 1.0)
    token = int(trajectory.completion_ids_BL[row, place])
    return scaled[token] - torch.logsumexp(torch.stack([scaled[v] for v in sorted(allowed)]), 0)


def slow_trace(policy: Policy, trajectory: Trajectory) -> Tensor:
    """[B, L], each valid token in the state that revealed it."""
    step = trajectory.unmask_step_BL

    def score(row: int, place: int) -> Tensor:
        return slow_score(policy, trajectory, row, place, lambda p: bool(step[row, p] >= step[row, place]))

    return slow_all(trajectory, score)


def slow_all(trajectory: Trajectory, score: Callable[[int, int], Tensor]) -> Tensor:
    batch, length = trajectory.completion_ids_BL.shape
    zero = torch.zeros((), dtype=torch.float64)
    return torch.stack([
        torch.stack([score(b, p) if trajectory.completion_mask_BL[b, p] else zero for p in range(length)])
        for b in range(batch)
    ])  # fmt: skip


def gradients(policy: Policy, value: Tensor) -> list[Tensor]:
    """Gradients of a scalar for all weights."""
    return list(torch.autograd.grad(value, list(policy.module.parameters()), allow_unused=True, materialize_grads=True))


def assert_same(fast: Tensor, slow: Tensor, policy: Policy, *, tolerance: float) -> None:
    """Equal values, and equal gradients of a sum in which every token counts differently."""
    assert fast.shape == slow.shape
    assert (fast - slow).abs().max() <= tolerance
    if not bool((slow != 0).any()):
        return
    tilt = torch.linspace(-1.0, 2.0, fast.numel(), dtype=fast.dtype).view_as(fast)
    pairs = zip(gradients(policy, (fast * tilt).sum()), gradients(policy, (slow * tilt).sum()), strict=True)
    largest = 0.0
    for ours, theirs in pairs:
        assert (ours - theirs).abs().max() <= tolerance * max(1.0, float(theirs.abs().max()))
        largest = max(largest, float(theirs.abs().max()))
    assert largest > 1e-3


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    """The tools above; a fixture because test modules here cannot import one another."""
    return SimpleNamespace(
        policy=build_policy, trajectory=build_trajectory, slow_trace=slow_trace, slow_score=slow_score,
        slow_all=slow_all, gradients=gradients, assert_same=assert_same,
    )  # fmt: skip
