"""Rollouts as they come: unequal numbers of states and tokens, masked tokens and a masked rollout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from steprs.estimators import get_estimator
from steprs.estimators.base import EstimatorBatch
from steprs.estimators.pipeline import estimate
from steprs.testing.estimators import example_batch

P, G, L, S = 3, 6, 12, 6


def uneven(seed: int = 0, *, binary: bool = True) -> EstimatorBatch:
    """Three prompts of six rollouts that took one to six states."""
    draw = torch.Generator().manual_seed(seed)

    def integers(high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, generator=draw)

    states_PG = 1 + integers(S, P, G)
    # Every state reveals at least one token; the others fall anywhere.
    state_PGL = torch.where(torch.arange(L) < S, torch.arange(L), integers(S, P, G, L)) % states_PG[..., None]
    rewards_PG = integers(2, P, G).double() if binary else torch.rand(P, G, generator=draw, dtype=torch.float64)
    rewards_PG[:, 0], rewards_PG[:, 1] = 1.0, 0.0
    seen_PGT = integers(2, P, G, S + 1).double()
    rewards_PGT = torch.where(torch.arange(S + 1) >= states_PG[..., None], rewards_PG[..., None], seen_PGT)
    valid_PG = torch.ones(P, G, dtype=torch.bool)
    valid_PG[1, 3] = False
    rewards_PG = rewards_PG * valid_PG
    mask_PGL = (torch.rand(P, G, L, generator=draw) < 0.9) & valid_PG[..., None]
    # Canvases of a random tree: rollouts that part do not meet again.
    keys_PGT = (integers(2, P, G, S) * 2 ** torch.arange(S)).cumsum(-1) + 1000 * (1 + torch.arange(S))
    keys_PGT = torch.cat([torch.zeros(P, G, 1, dtype=torch.int64), keys_PGT], dim=-1)
    return example_batch(
        rewards_PG, length=L, seed=seed, valid_PG=valid_PG, mask_PGL=mask_PGL, weights_PGL=mask_PGL.double(),
        state_PGL=state_PGL, num_states_PG=states_PG, state_rewards_PGS=rewards_PGT, state_keys_PGS=keys_PGT,
        block_PGL=state_PGL // 2, regions_PGL=integers(3, P, G, L) - 1,
    )  # fmt: skip


def advantages(batch: EstimatorBatch, name: str, **settings: Any) -> Tensor:
    return estimate(get_estimator(name, **settings), batch, {})[0].values_PGL


def by_token(batch: EstimatorBatch, value: Callable[[int, int, int], float]) -> Tensor:
    """[P, G, L] of `value(p, i, t)` at each token's state t, 0 where a token does not count."""
    values_PGL = torch.zeros(batch.state_PGL.shape, dtype=torch.float64)
    for p in range(P):
        for i in range(G):
            for place in range(L):
                if batch.mask_PGL[p, i, place]:
                    values_PGL[p, i, place] = value(p, i, int(batch.state_PGL[p, i, place]))
    return values_PGL


def group(batch: EstimatorBatch, p: int) -> list[int]:
    """The rollouts of a prompt that count."""
    return [i for i in range(G) if batch.valid_PG[p, i]]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def close(found: Tensor, wanted: Tensor) -> bool:
    return torch.allclose(found, wanted, rtol=0, atol=1e-10)
