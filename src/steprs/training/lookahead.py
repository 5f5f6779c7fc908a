"""State rewards: what the verifier says about the greedy completion of every denoising state."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..policies.base import Policy
from ..rollout.collect import decode_completions
from ..rollout.distinct import distinct_rows
from ..rollout.lookahead import complete_states, completion_texts
from ..rollout.record import up_to_end
from ..tasks.base import AbstractTask
from ..tasks.scoring import BadRewards, score_rollouts
from ..types import Problem, Rewards, Trajectory


def collect_state_rewards(
    policy: Policy,
    task: AbstractTask,
    problems: Sequence[Problem],
    trajectory: Trajectory,
    rewards: Rewards,
    *,
    max_rows: int = 1024,
    bad_rewards: BadRewards = "error",
) -> tuple[Tensor, dict[str, float]]:
    """`EstimatorBatch.state_rewards_PGS` of rollouts, and what it cost.

    Args:
        policy: that made the rollouts.
        task: scores the completions.
        problems: P of them.
        trajectory: B = P * G rollouts, on the order of states that advantages are for (merged, if the loss merges).
        rewards: of the rollouts themselves; states are never shaped, as a finished rollout's `rewards_PG` may be.
        max_rows: rows of one forward.
        bad_rewards: as in `score_rollouts`; with "mask" a state whose completion cannot be scored takes the reward of
            the state after it.

    Returns:
        float64 [P, G, S + 1] on the device of the rewards; and `extra_forwards` (rows read by the model),
        `verifier_calls`, and `unscored_states`.

    Raises:
        RewardError: see `score_rollouts`.
    """
    looked = complete_states(policy, trajectory, max_rows=max_rows)
    there_BN = looked.ids_BNL[..., 0] >= 0
    row_M = there_BN.nonzero()[:, 0]
    found_M, calls = _scores(policy, task, problems, trajectory, rewards, looked.ids_BNL[there_BN], row_M, bad_rewards)
    value_BN = torch.full(there_BN.shape, torch.nan, dtype=torch.float64, device=there_BN.device)
    value_BN[there_BN] = found_M.to(value_BN.device)
    value_BS = value_BN.gather(1, looked.moment_BS.clamp(max=value_BN.shape[1] - 1))
    own_B1 = rewards.rewards_PG.to(value_BN).flatten()[:, None]
    ended_BS = torch.arange(value_BS.shape[1], device=value_BN.device) >= trajectory.num_steps_B[:, None]
    value_BT = torch.cat([torch.where(ended_BS, own_B1, value_BS), own_B1], dim=1)
    unscored = int(value_BT.isnan().sum())
    info = {"extra_forwards": looked.forwards, "verifier_calls": calls, "unscored_states": unscored}
    values_PGT = _with_the_next(value_BT).view(*rewards.rewards_PG.shape, -1).to(rewards.rewards_PG.device)
    return values_PGT, {name: float(value) for name, value in info.items()}


def _scores(
    policy: Policy,
    task: AbstractTask,
    problems: Sequence[Problem],
    trajectory: Trajectory,
    rewards: Rewards,
    ids_ML: Tensor,
    row_M: Tensor,
    bad_rewards: BadRewards,
) -> tuple[Tensor, int]:
    """Rewards of M completions of the rollouts `row_M`, NaN where masked, and how many texts the verifier read."""
    problem_M = row_M // trajectory.group_size
    seen_ML = up_to_end(ids_ML, torch.ones_like(ids_ML, dtype=torch.bool), policy.eos_token_id)
    kinds = distinct_rows(torch.cat([problem_M[:, None], ids_ML.masked_fill(~seen_ML, -1)], dim=1))
    texts = completion_texts(policy, ids_ML[kinds.rows_U])
    asked = list(zip(problem_M[kinds.rows_U].tolist(), texts, strict=True))
    known: dict[tuple[int, str], float] = {}
    own = decode_completions(policy, trajectory)
    valid_B = rewards.valid_PG.flatten().tolist()
    for row, (text, verdict, valid) in enumerate(zip(own, rewards.verdicts, valid_B, strict=True)):
        # The verdict's reward is the verifier's, whatever `rewards_PG` was shaped into afterwards.
        if valid:
            known[row // trajectory.group_size, text] = verdict.reward
    fresh = [pair for pair in dict.fromkeys(asked) if pair not in known]
    judged = score_rollouts(
        task, [problems[problem] for problem, _ in fresh], [text for _, text in fresh], 1, bad_rewards=bad_rewards
    )
    judged_N = torch.where(judged.valid_PG, judged.rewards_PG, torch.nan).flatten().tolist()
    known |= dict(zip(fresh, judged_N, strict=True))
    found_U = torch.tensor([known[pair] for pair in asked], dtype=torch.float64)
    return found_U[kinds.kind_R.cpu()], len(fresh)


def _with_the_next(value_BT: Tensor) -> Tensor:
    """Each NaN replaced by the next number in its row; the last entry is one."""
    index_T = torch.arange(value_BT.shape[1], device=value_BT.device)
    place_BT = torch.where(value_BT.isnan(), value_BT.shape[1] - 1, index_T)
    return value_BT.gather(1, place_BT.flip(1).cummin(1).values.flip(1))
