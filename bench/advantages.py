"""Time and memory of stepwise advantages: 64 prompts x 16 rollouts x 1024 tokens on one thread.

The plain form computes every member's exponential at every token, [P, G, L] for each of the G members. Run:
    python bench/advantages.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from steprs.advantages import stepwise_advantages, stepwise_advantages_flat
from steprs.risk import entropic_advantages, general_advantages
from steprs.schedules import AbstractSchedule, CosineSchedule, LinearSchedule, PassRateSchedule, PowerSchedule, scaled

PROMPTS, GROUP, LENGTH = 64, 16, 1024


def cpu_ms(function: Callable[[], object], repeats: int) -> float:
    """Least CPU milliseconds of a call: other work on the machine only ever adds."""
    function()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append((time.process_time() - start) * 1e3)
    return min(times)


def peak_mib(function: Callable[[], object]) -> float:
    """Peak of what torch allocated and had not yet freed during the call, in MiB."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    held = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak / 2**20


def main() -> None:
    """Print one row per form."""
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)
    rates = torch.rand(PROMPTS, 1, generator=draw)
    rewards = (torch.rand(PROMPTS, GROUP, generator=draw) < rates).float()
    progress = torch.rand(PROMPTS, GROUP, LENGTH, generator=draw, dtype=torch.float64)
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (PROMPTS, GROUP, 1), generator=draw)
    mask = torch.arange(LENGTH) < lengths
    full = torch.ones_like(mask)
    linear = LinearSchedule(3.0, 0.0)
    ids = torch.randperm(PROMPTS * GROUP, generator=draw) % PROMPTS

    def plain() -> torch.Tensor:
        values = general_advantages(rewards.double(), linear(progress))
        return torch.where(mask, values, 0.0).float()

    def flat() -> object:
        rows = rewards.flatten(), ids, progress.flatten(0, 1)
        return stepwise_advantages_flat(*rows, linear, mask_BL=mask.flatten(0, 1))

    def with_(schedule: AbstractSchedule, mask: torch.Tensor = mask, **options: Any) -> Callable[[], object]:
        return lambda: stepwise_advantages(rewards, progress, schedule, mask_PGL=mask, **options)

    rows = {
        "linear": (with_(linear), 25),
        "linear, every token active": (with_(linear, full), 25),
        "linear, arbitrary groups": (flat, 25),
        "cosine": (with_(CosineSchedule(3.0, 0.0)), 25),
        "power": (with_(PowerSchedule(3.0, 0.0)), 25),
        "by pass rate": (with_(scaled(PassRateSchedule(), 3.0)), 25),
        "linear, both signs": (with_(LinearSchedule(2.0, -2.0)), 25),
        "linear, RMS matched": (with_(linear, rms_match="batch"), 9),
        "linear, reversed control": (with_(linear, control="reverse"), 9),
        "entropic_advantages, [P, G, L]": (lambda: entropic_advantages(rewards, linear(progress)), 9),
        "plain form, member by member": (plain, 5),
    }
    measured = {name: (cpu_ms(function, repeats), peak_mib(function)) for name, (function, repeats) in rows.items()}
    reference = measured["plain form, member by member"][0]
    print(f"{PROMPTS} prompts x {GROUP} rollouts x {LENGTH} tokens, one thread, torch {torch.__version__}")
    print(f"{'form':34} {'CPU ms':>8} {'plain / this':>13} {'peak MiB':>9}")
    for name, (cost, peak) in measured.items():
        print(f"{name:34} {cost:8.1f} {reference / cost:13.1f} {peak:9.1f}")


if __name__ == "__main__":
    main()
