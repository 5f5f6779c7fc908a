"""What is logged: means over every process, and the grids and rows that show what happens where in denoising.

Every key is explained in docs/metrics.md; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from ..types import Problem, Rewards, Trajectory, Verdict
from .distributed import max_over_processes, sum_over_processes

GRID_EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
BINS = len(GRID_EDGES) - 1
COUNTS = "tokens_by_progress"


class Tally:
    """Sums, counts and maxima of one update. Every process must name the same keys in the same order."""

    def __init__(self) -> None:
        self._sums: dict[str, list[Tensor]] = {}
        self._maxima: dict[str, Tensor] = {}
        self._least: set[str] = set()  # kept as the maxima of their negatives
        self._rows: dict[str, Tensor] = {}  # sums by progress bin, and under COUNTS the tokens they are sums of

    def add(self, name: str, values: Tensor, count: Tensor | None) -> None:
        """Add `values`; the mean divides by the sum of `count`, or is the plain sum when it is None."""
        one = torch.zeros((), dtype=torch.float64, device=values.device)
        total, counted = self._sums.setdefault(name, [one, one if count is not None else one + torch.nan])
        self._sums[name] = [total + values.double().sum(), counted if count is None else counted + count.double().sum()]

    def most(self, name: str, values: Tensor) -> None:
        """Keep the largest of `values`."""
        now = values.double().max() if values.numel() else torch.zeros((), dtype=torch.float64, device=values.device)
        before = self._maxima.get(name)
        self._maxima[name] = now if before is None else torch.maximum(before, now)

    def least(self, name: str, values: Tensor) -> None:
        """Keep the smallest of `values`."""
        self._least.add(name)
        self.most(name, -values)

    def by_progress(self, values: Mapping[str, Tensor], counted_N: Tensor, progress_N: Tensor) -> None:
        """Add each of `values` (shape [N]) to the sum of its progress bin, and the tokens themselves to `COUNTS`."""
        counted_N = counted_N.double()
        columns = {COUNTS: counted_N} | {f"{name}_by_progress": value.double() for name, value in values.items()}
        sums_KS = counted_N.new_zeros(len(columns), BINS)
        sums_KS.index_add_(1, progress_bin(progress_N), torch.stack(list(columns.values())) * counted_N)
        for name, sums_S in zip(columns, sums_KS, strict=True):
            self._rows[name] = self._rows[name] + sums_S if name in self._rows else sums_S

    def result(self, accelerator: Accelerator) -> dict[str, Any]:
        """Means, sums and maxima over all processes; a mean of nothing is 0, one of an empty bin None."""
        named: dict[str, Any] = {}
        if self._sums:
            packed = torch.stack([torch.stack(pair) for pair in self._sums.values()]).to(accelerator.device)
            for name, (total, count) in zip(self._sums, sum_over_processes(packed, accelerator).tolist(), strict=True):
                plain = count != count  # NaN marks a plain sum
                named[name] = total if plain else total / count if count else 0.0
        if self._maxima:
            packed = torch.stack(list(self._maxima.values())).to(accelerator.device)
            found = max_over_processes(packed, accelerator).tolist()
            named |= {k: -v if k in self._least else v for k, v in zip(self._maxima, found, strict=True)}
        if self._rows:
            packed = torch.stack(list(self._rows.values())).to(accelerator.device)
            rows = dict(zip(self._rows, sum_over_processes(packed, accelerator).tolist(), strict=True))
            counts = rows.pop(COUNTS)
            named |= {name: _means(sums, counts) for name, sums in rows.items()} | {COUNTS: counts}
        return named


def progress_bin(progress: Tensor) -> Tensor:
    """Index of the bin of `GRID_EDGES` that denoising progress lies in, int64 of the same shape; the last holds 1."""
    return (progress * BINS).long().clamp(0, BINS - 1)


def _means(sums: Sequence[float], counts: Sequence[float]) -> list[float | None]:
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def rollout_tally(
    trajectory: Trajectory, rewards: Rewards, texts: Sequence[str], *, ends_with_eos: bool, ended_B: Tensor
) -> Tally:
    """What the rollouts look like before any update is made from them."""
    tally = Tally()
    device = rewards.rewards_PG.device
    groups = rewards.valid_PG.shape[0]
    per_group = torch.ones(groups, device=device)
    right_PG = torch.tensor([v.status == "right" for v in rewards.verdicts], device=device).view(groups, -1)
    right_P, counted_P = (right_PG & rewards.valid_PG).sum(1), rewards.valid_PG.sum(1)
    size = trajectory.group_size
    tally.add("reward/mean", rewards.rewards_PG, rewards.valid_PG)
    tally.add("reward/pass_rate", right_P, counted_P)
    tally.add("groups/all_right", (right_P == counted_P) & (counted_P > 0), per_group)
    tally.add("groups/all_wrong", (right_P == 0) & (counted_P > 0), per_group)
    tally.add("rewards/masked", ~rewards.valid_PG, None)
    unparsed = torch.tensor([v.status == "unparsed" for v in rewards.verdicts], device=device)
    tally.add("completions/unparsed", unparsed, torch.ones_like(unparsed))
    truncated = ~ended_B if ends_with_eos else torch.zeros_like(ended_B)
    tally.add("completions/truncated", truncated, torch.ones_like(truncated))
    unique = [len(set(texts[i : i + size])) / size for i in range(0, len(texts), size)]
    tally.add("completions/unique_frac", torch.tensor(unique, dtype=torch.float64, device=device), per_group)
    tally.add("completions/tokens", trajectory.completion_mask_BL, torch.ones_like(unparsed))
    tally.add("rollout/steps", trajectory.num_steps_B, torch.ones_like(unparsed))
    return tally


def grids(
    rewards: Rewards,
    progress_BL: Tensor,
    advantages_BL: Tensor,
    risk_coef_BL: Tensor,
    weights_BL: Tensor,
    accelerator: Accelerator,
) -> dict[str, Any]:
    """Where the advantage goes: rows are bins of the group's pass rate, columns bins of denoising progress.

    Over active tokens (a weight, and a reward that is not the group's mean): `scale_grid` holds the mean of
    |A| / |r - mean(r)| (for binary rewards exactly c(p, b(tau)) under the full control), `risk_coef_grid` the mean
    coefficient b(tau), `mass_grid` the share of the update's sum of weight * |A|. None where no active token fell.
    """
    rewards_PG = rewards.rewards_PG.to(advantages_BL.device)
    valid_PG = rewards.valid_PG.to(advantages_BL.device)
    mean_P1 = (rewards_PG * valid_PG).sum(1, keepdim=True) / valid_PG.sum(1, keepdim=True).clamp(min=1)
    centred_B1 = ((rewards_PG - mean_P1) * valid_PG).abs().flatten()[:, None]
    active_BL = (weights_BL > 0) & (centred_B1 > 1e-12)
    row_BL = progress_bin(mean_P1).expand_as(rewards_PG).flatten()[:, None].expand_as(active_BL)
    cell_N = (row_BL * BINS + progress_bin(progress_BL))[active_BL]
    magnitude_BL = advantages_BL.abs().double()
    columns = (
        torch.ones_like(magnitude_BL),
        magnitude_BL / centred_B1.clamp(min=1e-12),
        risk_coef_BL.to(magnitude_BL),
        magnitude_BL * weights_BL,
    )
    sums = torch.zeros(len(columns), BINS * BINS, dtype=torch.float64, device=advantages_BL.device)
    sums.index_add_(1, cell_N, torch.stack(columns)[:, active_BL])
    count, scale, coefficient, mass = sum_over_processes(sums, accelerator).tolist()
    whole = sum(mass) or 1.0
    cells = {
        "scale_grid": _means(scale, count),
        "risk_coef_grid": _means(coefficient, count),
        "mass_grid": [m / whole if n else None for m, n in zip(mass, count, strict=True)],
    }
    return {name: [flat[i * BINS : (i + 1) * BINS] for i in range(BINS)] for name, flat in cells.items()}


def sample_records(
    update: int,
    problems: Sequence[Problem],
    texts: Sequence[str],
    verdicts: Sequence[Verdict],
    group_size: int,
    count: int,
) -> list[dict[str, Any]]:
    """The first rollout of each of the first `count` prompts, for a person to read."""
    return [
        {
            "update": update,
            "problem": problem.id,
            "prompt": problem.prompt,
            "completion": texts[i * group_size],
            "reward": verdicts[i * group_size].reward,
            "status": verdicts[i * group_size].status,
            "answer": verdicts[i * group_size].answer_key,
        }
        for i, problem in enumerate(problems[:count])
    ]
