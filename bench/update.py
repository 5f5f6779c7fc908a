"""What one update of the default costs: 16 prompts x 16 rollouts, 12 states, one thread.

Prints CPU seconds for rollouts and for scoring with backward and step, the floating-point operations of each, and the
share of this machine's own matrix-product rate, which is the number to compare between machines.

    python bench/update.py [updates]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from steprs.build.objects import (
    build_estimator,
    build_policy,
    build_sampler,
    build_task,
    loop_settings,
    needs_reference,
    resolve,
)
from steprs.config import RunConfig, load_config
from steprs.training import loop
from steprs.training.distributed import make_accelerator
from steprs.training.optim import make_optimizer


def matmul_rate(size: int = 1024, repeats: int = 10) -> float:
    """The best floating-point operations a second of a float32 product of two square matrices."""
    left, right = torch.randn(size, size), torch.randn(size, size)
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        left @ right
        seconds.append(time.process_time() - start)
    return 2 * size**3 / min(seconds)


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds and result."""
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def counted(function: Callable[[], Any]) -> float:
    """Floating-point operations of the matrix products in a call."""
    with FlopCounterMode(display=False) as counter:
        function()
    return float(counter.get_total_flops())


def make_run(config: RunConfig) -> loop.Run:
    """The run's objects, without a folder."""
    task = build_task(config.task)
    policy = build_policy(config.policy)
    config = resolve(config, policy, task)
    estimator = build_estimator(config, 1.5)
    return loop.Run(
        policy=policy,
        reference=build_policy(config.policy) if needs_reference(config, estimator) else None,
        task=task,
        sampler=build_sampler(config.sampler, policy),
        estimator=estimator,
        train_problems=task.problems("train"),
        dev_problems=[],
        settings=loop_settings(config),
    )


def main(updates: int = 5) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    config = load_config(None, ["risk.scale=1.5", "train.eval_every=0"], model=RunConfig)
    run = make_run(config)
    accelerator = make_accelerator()
    optimizer = make_optimizer(run.policy, run.settings.optim)
    memory, (rollouts, scoring, dead) = run.estimator.initial_memory(), ([], [], [])
    for update in range(1, updates + 2):
        first, (batch, memory) = timed(partial(loop.collect_batch, run, accelerator, update, memory))
        second, _ = timed(partial(loop.inner_update, run, run.policy, optimizer, batch, accelerator, update))
        if update > 1:  # the first one warms up
            rollouts.append(first)
            scoring.append(second)
            dead.append(batch.metrics["groups/dead"])
    flops_rollout = counted(partial(loop.collect_batch, run, accelerator, updates + 1, memory))
    flops_scoring = counted(partial(loop.inner_update, run, run.policy, optimizer, batch, accelerator, updates + 1))
    rate = matmul_rate()
    weights = sum(weight.numel() for weight in run.policy.parameters())
    print(f"{weights:,} weights, {config.train.prompts_per_update} x {config.train.group_size} rollouts, one thread")
    print(f"float32 matrix products: {rate / 1e9:.1f} GFLOP/s; all-equal groups skipped: {statistics.mean(dead):.0%}")
    print(f"{'part':<22}{'CPU s':>8}{'GFLOP':>8}{'of the rate':>13}")
    rows = (("rollouts, rewards", rollouts, flops_rollout), ("scoring, backward, step", scoring, flops_scoring))
    for name, seconds, flops in rows:
        middle = statistics.median(seconds)
        print(f"{name:<22}{middle:>8.2f}{flops / 1e9:>8.1f}{flops / middle / rate:>13.0%}")
    whole = statistics.median(map(sum, zip(rollouts, scoring, strict=True)))
    total = flops_rollout + flops_scoring
    print(f"{'one update':<22}{whole:>8.2f}{total / 1e9:>8.1f}{total / whole / rate:>13.0%}")
    print(f"floor at the full rate: {total / rate:.2f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
