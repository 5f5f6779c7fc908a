"""One update's data: rollouts, rewards, advantages, and which rows a forward is spent on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from .. import losses
from ..advantages import dead_groups, stepwise_advantages, stepwise_advantages_flat
from ..schedules import AbstractSchedule
from ..states import denoising_progress, merge_steps
from ..types import Advantages, Decoding, Rewards, Trajectory
from .distributed import sum_over_processes
from .settings import LoopSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateBatch:
    """What the inner updates need; all of it can be written to disk between two of them.

    Attributes:
        trajectory: this process's rollouts, with reveal steps merged if `shrinkage` asks for it.
        advantages_BL: 0 outside the completion and in dead groups.
        weights_BL: aggregation weights, 0 where a token does not count.
        normaliser: the aggregation's denominator over all processes.
        active_B: rows that cost a forward.
        noise_keys_B: int64 keys of the mask noise and of sampled states: by rollout, never by batch position.
        old_logprobs_BL: scores of the first inner update; None before it.
        metrics: what there is to log about the rollouts, means over all processes.
        samples: completions for rollouts.jsonl.
    """

    trajectory: Trajectory
    advantages_BL: Tensor
    weights_BL: Tensor
    normaliser: float
    active_B: Tensor
    noise_keys_B: Tensor
    old_logprobs_BL: Tensor | None
    metrics: Mapping[str, Any]
    samples: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Weighting:
    """Progress and loss weights of the tokens that count, and the advantages computed from them."""

    progress_BL: Tensor
    weights_BL: Tensor
    count: float
    dead_P: Tensor
    advantages: Advantages


def weigh(
    trajectory: Trajectory,
    rewards: Rewards,
    schedule: AbstractSchedule,
    settings: LoopSettings,
    accelerator: Accelerator,
    *,
    seed: int,
) -> Weighting:
    """Rewards and recorded states become one advantage a token. The only place where a schedule is consulted."""
    shape = (*rewards.rewards_PG.shape, -1)
    valid_B = rewards.valid_PG.flatten()
    mask_BL = trajectory.completion_mask_BL & valid_B[:, None]
    dead_P = _dead(rewards)
    dead_B = dead_P.repeat_interleave(trajectory.group_size)
    counted_BL = mask_BL if settings.loss.count_dead_groups else mask_BL & ~dead_B[:, None]
    weights_BL, count = losses.aggregation_weights(counted_BL, trajectory.unmask_step_BL, settings.loss.aggregation)
    progress_BL = denoising_progress(trajectory, settings.advantage.coordinate, settings.advantage.scope)
    options: dict[str, Any] = {
        "control": settings.advantage.control,
        "base": settings.advantage.base,
        "baseline": settings.advantage.baseline,
        "rms_match": settings.advantage.rms_match,
        "reference_pass_rate": settings.advantage.reference_pass_rate,
        "seed": seed,
        "all_reduce": lambda value: sum_over_processes(value, accelerator),
    }
    if bool(valid_B.all()):
        advantages = stepwise_advantages(
            rewards.rewards_PG,
            progress_BL.view(shape),
            schedule,
            mask_PGL=mask_BL.view(shape),
            weights_PGL=weights_BL.view(shape),
            state_index_PGL=trajectory.unmask_step_BL.view(shape),
            **options,
        )
    else:
        advantages = _without_masked_samples(
            rewards, progress_BL, mask_BL, weights_BL, trajectory.unmask_step_BL, schedule, options
        )
    return Weighting(
        progress_BL=progress_BL, weights_BL=weights_BL, count=count, dead_P=dead_P, advantages=advantages
    )


def _dead(rewards: Rewards) -> Tensor:
    """Groups without signal: all counted rewards equal, or fewer than two counted."""
    few_P = rewards.valid_PG.sum(1) < 2
    # A masked sample takes the reward of a counted one, so that it cannot make its group look alive.
    first_P = rewards.valid_PG.to(torch.int8).argmax(1)
    stand_in_P1 = rewards.rewards_PG.gather(1, first_P[:, None])
    return few_P | dead_groups(torch.where(rewards.valid_PG, rewards.rewards_PG, stand_in_P1))


def _without_masked_samples(
    rewards: Rewards,
    progress_BL: Tensor,
    mask_BL: Tensor,
    weights_BL: Tensor,
    state_index_BL: Tensor,
    schedule: AbstractSchedule,
    options: Mapping[str, Any],
) -> Advantages:
    """Groups lose the samples whose verifier gave no number, so their sizes differ: the flat form."""
    prompts, group_size = rewards.rewards_PG.shape
    group_B = torch.arange(prompts, device=mask_BL.device).repeat_interleave(group_size)
    enough_P = rewards.valid_PG.sum(1) >= 2
    keep_B = rewards.valid_PG.flatten() & enough_P[group_B]
    flat = stepwise_advantages_flat(
        rewards.rewards_PG.flatten()[keep_B],
        group_B[keep_B],
        progress_BL[keep_B],
        schedule,
        mask_BL=mask_BL[keep_B],
        weights_BL=weights_BL[keep_B],
        state_index_BL=state_index_BL[keep_B],
        **options,
    )
    values_BL = torch.zeros(mask_BL.shape, dtype=flat.values_PGL.dtype, device=mask_BL.device)
    coef_BL = torch.zeros_like(values_BL, dtype=flat.risk_coef_PGL.dtype)
    values_BL[keep_B] = flat.values_PGL
    coef_BL[keep_B] = flat.risk_coef_PGL
    return dataclasses.replace(flat, values_PGL=values_BL, risk_coef_PGL=coef_BL)


def make_batch(
    trajectory: Trajectory, weighting: Weighting, settings: LoopSettings, accelerator: Accelerator, **extra: Any
) -> UpdateBatch:
    """Collect what the inner updates need, with the denominator taken over all processes."""
    total = torch.tensor(float(weighting.count), dtype=torch.float64, device=trajectory.completion_ids_BL.device)
    advantages_BL = weighting.advantages.values_PGL.reshape(trajectory.completion_mask_BL.shape).to(torch.float32)
    live_B = ~weighting.dead_P.repeat_interleave(trajectory.group_size)
    active_B = (live_B | (settings.loss.kl_coef > 0)) & (weighting.weights_BL > 0).any(1)
    return UpdateBatch(
        trajectory=trajectory,
        advantages_BL=advantages_BL,
        weights_BL=weighting.weights_BL.to(torch.float32),
        normaliser=float(sum_over_processes(total, accelerator)),
        active_B=active_B,
        old_logprobs_BL=None,
        **extra,
    )


def merged(trajectory: Trajectory, shrinkage: int) -> Trajectory:
    """The trajectory on the merged order that states, progress and loss are defined on."""
    return trajectory if shrinkage == 1 else merge_steps(trajectory, shrinkage)


def batch_to_tensors(batch: UpdateBatch) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An in-flight batch as tensors and JSON, for the checkpoint between two inner updates."""
    tensors: dict[str, Tensor] = {}
    rest: dict[str, Any] = {}
    for record, prefix in ((batch.trajectory, "trajectory."), (batch, "")):
        for field in dataclasses.fields(record):
            value = getattr(record, field.name)
            if isinstance(value, Tensor):
                tensors[prefix + field.name] = value.detach().cpu().contiguous()
            elif not isinstance(value, Trajectory):
                rest[prefix + field.name] = dataclasses.asdict(value) if isinstance(value, Decoding) else value
    return tensors, rest


def batch_from_tensors(
    tensors: Mapping[str, Tensor], rest: Mapping[str, Any], device: torch.device
) -> UpdateBatch:
    """The inverse of `batch_to_tensors`."""
    everything = {**rest, **{name: tensor.to(device) for name, tensor in tensors.items()}}
    everything["trajectory.decoding"] = Decoding(**everything["trajectory.decoding"])
    prefix = "trajectory."
    inner = {name.removeprefix(prefix): value for name, value in everything.items() if name.startswith(prefix)}
    outer = {name: value for name, value in everything.items() if not name.startswith(prefix)}
    return UpdateBatch(trajectory=Trajectory(**inner), **outer)

