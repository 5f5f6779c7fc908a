"""Scoring every state of a rollout in one packed row, against one row a state; and the best micro-batch size.

The default's shape: 256 rollouts, 5 prompt tokens, 3 blocks of 4, 12 states, a stock Llama of width 128. Forward and
backward, CPU seconds of one thread, and the share of the machine's own matrix-product rate.

    python bench/scoring.py [rollouts]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from steprs.logprobs import plan_trace, score_batch
from steprs.logprobs.plan import ScoringBatch
from steprs.policies.base import Policy
from steprs.policies.distribution import forbidden_ids, picked_logprobs
from steprs.policies.tiny import create_tiny
from steprs.states import state_at
from steprs.types import Decoding, Trajectory

PROMPT, LENGTH, BLOCK = 5, 12, 4
BUDGETS = (512, 1024, 2048, 4096, 8192, 16384, 32768)


def make_policy(attention: Literal["bidirectional", "block_causal"]) -> Policy:
    return create_tiny(
        [str(word) for word in range(34)], seed=0, attention=attention, block_size=BLOCK, hidden_size=128,
        intermediate_size=256, layers=4, heads=4,
    )  # fmt: skip


def make_trajectory(policy: Policy, rollouts: int) -> Trajectory:
    """Random tokens, one revealed a step, in a random order inside each block."""
    generator = torch.Generator().manual_seed(0)
    block = policy.block_layout(torch.ones(rollouts, PROMPT, dtype=torch.bool), LENGTH)[:, PROMPT:]
    order = (torch.rand(rollouts, LENGTH, generator=generator) + block).argsort(1)
    full = policy.attention == "bidirectional"
    return Trajectory(
        prompt_ids_BC=torch.randint(3, 37, (rollouts, PROMPT), generator=generator),
        prompt_mask_BC=torch.ones(rollouts, PROMPT, dtype=torch.bool),
        completion_ids_BL=torch.randint(3, 37, (rollouts, LENGTH), generator=generator),
        unmask_step_BL=order.argsort(1),
        block_index_BL=block - block.min(),
        completion_mask_BL=torch.ones(rollouts, LENGTH, dtype=torch.bool),
        sampling_logprobs_BL=torch.zeros(rollouts, LENGTH),
        entropies_BL=torch.zeros(rollouts, LENGTH),
        num_steps_B=torch.full((rollouts,), LENGTH),
        mask_token_id=policy.mask_token_id,
        decoding=Decoding(
            kind="masked" if full else "block", length=LENGTH, steps=LENGTH, block_size=LENGTH if full else BLOCK
        ),
        group_size=1,
        selection_exact=True,
        steps_fixed=True,
    )


def packed(policy: Policy, trajectory: Trajectory, budget: int) -> Iterator[Tensor]:
    """Loss of each micro-batch of the library's plan."""
    for batch in plan_trace(trajectory, policy, token_budget=budget):
        yield score_batch(policy, trajectory, batch).logprobs_N.sum()


def plain(policy: Policy, trajectory: Trajectory, budget: int) -> Iterator[Tensor]:
    """Loss of each micro-batch when a row is one state of the whole sequence."""
    block_BW = policy.block_layout(trajectory.prompt_mask_BC, LENGTH)
    rows = max(1, budget // (PROMPT + LENGTH))
    for step in range(LENGTH):
        ids_BW = torch.cat((trajectory.prompt_ids_BC, state_at(trajectory, step)), 1)
        revealed_BL = trajectory.unmask_step_BL == step
        select_BW = torch.cat((torch.zeros_like(trajectory.prompt_mask_BC), revealed_BL), 1)
        for part in torch.arange(len(ids_BW)).split(rows):
            logits = policy.logits(ids_BW[part], select_BT=select_BW[part], block_BT=block_BW[part])
            token_N = trajectory.completion_ids_BL[part][revealed_BL[part]]
            yield picked_logprobs(logits, token_N, temperature=1.0, forbidden_ids=forbidden_ids(policy))[:, 0].sum()


def cpu_seconds(policy: Policy, losses: Callable[[], Iterator[Tensor]], repeats: int = 3) -> tuple[float, float]:
    """The best time for forward and backward of all micro-batches, and their total loss."""
    times, total = [], 0.0
    for _ in range(repeats):
        policy.module.zero_grad(set_to_none=True)
        start, total = time.process_time(), 0.0
        for loss in losses():
            loss.backward()
            total += loss.item()
        times.append(time.process_time() - start)
    return min(times), total


def matmul_rate(size: int = 1024) -> float:
    left, right = torch.randn(size, size), torch.randn(size, size)
    seconds = []
    for _ in range(8):
        start = time.process_time()
        left @ right
        seconds.append(time.process_time() - start)
    return 2 * size**3 / min(seconds)


def main(rollouts: int = 256) -> None:
    torch.set_num_threads(1)
    rate = matmul_rate()
    print(f"matrix product, float32, one thread: {rate / 1e9:.0f} GFLOP/s")
    policy = make_policy("block_causal")
    trajectory = make_trajectory(policy, rollouts)
    start = time.process_time()
    plan = plan_trace(trajectory, policy)
    planning = time.process_time() - start
    start = time.process_time()
    tokens = sum(batch.pack().ids_RT.numel() for batch in plan if isinstance(batch, ScoringBatch))
    print(f"plan {1e3 * planning:.1f} ms, packing {1e3 * (time.process_time() - start):.1f} ms for {tokens} tokens")
    with FlopCounterMode(display=False) as counter:
        for loss in packed(policy, trajectory, 16384):
            loss.backward()
    flops = float(counter.get_total_flops())
    print(f"{'token_budget':>12} {'packed s':>9} {'share of rate':>14} {'one row a state s':>18} {'ratio':>6}")
    for budget in BUDGETS:
        fast, value = cpu_seconds(policy, partial(packed, policy, trajectory, budget))
        slow, expected = cpu_seconds(policy, partial(plain, policy, trajectory, budget), repeats=1)
        if abs(value - expected) > 1e-4 * abs(expected):
            raise SystemExit(f"the two forms disagree: {value} and {expected}")
        print(f"{budget:>12} {fast:>9.2f} {flops / fast / rate:>14.0%} {slow:>18.2f} {slow / fast:>6.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
