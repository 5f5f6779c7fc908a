"""What an estimator needs beside rollouts and rewards, collected only when it asks for it, with what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from accelerate import Accelerator
from torch import Tensor

from ..state_keys import state_keys
from ..types import Problem, Rewards, Trajectory
from .batch import Collected, ended_rows
from .folder import RunFolder
from .lookahead import collect_state_rewards
from .references import reference_rewards

if TYPE_CHECKING:
    from .loop import Run


def collect_fields(
    run: Run,
    trajectory: Trajectory,
    rewards: Rewards,
    problems: Sequence[Problem],
    folder: RunFolder | None,
    accelerator: Accelerator,
) -> Collected:
    """The fields of `EstimatorBatch` that the run's estimator requires, for this process's groups."""
    fields: dict[str, Tensor] = {}
    costs: dict[str, float] = {}
    wanted = run.estimator.requires()
    shape = rewards.rewards_PG.shape
    if "state_keys_PGS" in wanted:
        fields["state_keys_PGS"] = state_keys(trajectory).view(*shape, -1)
    if "answer_ids_PG" in wanted:
        fields["answer_ids_PG"] = answer_ids(rewards)
    if "components_PGK" in wanted:
        names = run.settings.advantage.components
        ended_B = ended_rows(trajectory, run.policy.eos_token_id)
        fields["components_PGK"] = components(rewards, names, ended_B if run.task.ends_with_eos else None)
    if "regions_PGL" in wanted:
        parts = len(run.settings.advantage.components)
        fields["regions_PGL"] = regions(trajectory.block_index_BL, parts).view(*shape, -1)
    if "state_rewards_PGS" in wanted:
        fields["state_rewards_PGS"], cost = collect_state_rewards(
            run.policy, run.task, problems, trajectory, rewards,
            max_rows=run.settings.max_rows, bad_rewards=run.settings.bad_rewards,
        )  # fmt: skip
        costs |= cost
    if "reference_rewards_PM" in wanted:
        fields["reference_rewards_PM"], cost = reference_rewards(run, problems, folder, accelerator)
        costs |= cost
    return Collected(fields=fields, costs=costs)


def answer_ids(rewards: Rewards) -> Tensor:
    """A number for each final answer of a group, int64 [P, G]; -1 where none could be read."""
    group = rewards.rewards_PG.shape[1]
    ids: list[int] = []
    for start in range(0, len(rewards.verdicts), group):
        seen: dict[str, int] = {}
        for verdict in rewards.verdicts[start : start + group]:
            key = verdict.answer_key
            ids.append(-1 if key is None else seen.setdefault(key, len(seen)))
    return torch.tensor(ids, device=rewards.rewards_PG.device).view(rewards.rewards_PG.shape)


def components(rewards: Rewards, names: Mapping[str, float], ended_B: Tensor | None) -> Tensor:
    """Several rewards of each rollout, float64 [P, G, K] in the order of `names`.

    `right` is the verdict, `parsed` whether an answer could be read, `ended` whether the text ended by itself (always,
    where texts have a fixed length).
    """
    shape, device = rewards.rewards_PG.shape, rewards.rewards_PG.device
    status = [verdict.status for verdict in rewards.verdicts]
    known = {
        "right": torch.tensor([found == "right" for found in status], device=device),
        "parsed": torch.tensor([found != "unparsed" for found in status], device=device),
        "ended": torch.ones(len(status), dtype=torch.bool, device=device) if ended_B is None else ended_B.to(device),
    }
    return torch.stack([known[name].double().view(shape) for name in names], dim=-1)


def regions(block_index_BL: Tensor, parts: int) -> Tensor:
    """Which component each token belongs to where every text block has its own reward, int64 [B, L].

    The decoding blocks are divided evenly, in order, among the components as they are named.

    >>> regions(torch.tensor([[0, 0, 1, 1, 2, 2, 3, 3]]), 2).tolist()
    [[0, 0, 0, 0, 1, 1, 1, 1]]
    """
    blocks = int(block_index_BL.max()) + 1
    return block_index_BL * parts // blocks
