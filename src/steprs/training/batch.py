"""One update's data: rollouts, rewards, advantages, and which rows a forward is spent on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from .. import losses
from ..advantages import dead_groups
from ..estimators.base import Estimator, EstimatorBatch, Memory
from ..estimators.pipeline import estimate
from ..states import denoising_progress, merge_steps, progress_is_predictable
from ..types import Advantages, Decoding, Revisions, Rewards, Trajectory
from .distributed import sum_over_processes
from .records import Tally, grids
from .settings import AdvantageSettings, LoopSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateBatch:
    """What the inner updates need; all of it can be written to disk between two of them.

    Attributes:
        trajectory: this process's rollouts, with reveal steps merged if `shrinkage` asks for it.
        advantages_BL: 0 outside the completion and in dead groups.
        weights_BL: aggregation weights, 0 where a token does not count.
        progress_BL: denoising progress of each token, for what is logged by it.
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
    progress_BL: Tensor
    normaliser: float
    active_B: Tensor
    noise_keys_B: Tensor
    old_logprobs_BL: Tensor | None
    metrics: Mapping[str, Any]
    samples: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenWeights:
    """Which tokens count, where in denoising they were revealed, and with what weight the loss takes them.

    `dead_P` are groups of equal rewards; `silent_P` those that cannot move the policy, which are the same unless an
    estimator gives dead groups advantages.
    """

    mask_BL: Tensor
    progress_BL: Tensor
    weights_BL: Tensor
    count: float
    dead_P: Tensor
    silent_P: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Weighting:
    """Token weights, the advantages computed with them, and what the estimator remembers of it."""

    tokens: TokenWeights
    advantages: Advantages
    memory: Memory


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """What was gathered for an estimator beside the rollouts: fields of `EstimatorBatch`, and what that cost."""

    fields: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    costs: Mapping[str, float] = dataclasses.field(default_factory=dict)


def token_weights(
    trajectory: Trajectory, rewards: Rewards, settings: LoopSettings, *, alive: bool = False
) -> TokenWeights:
    """The loss aggregation's weights: the ones that controls are matched with.

    `alive`: the estimator gives groups of equal rewards advantages too, so none is left out.
    """
    mask_BL = trajectory.completion_mask_BL & rewards.valid_PG.flatten()[:, None]
    dead_P = _dead(rewards)
    silent_P = dead_P & (not alive)
    silent_B = silent_P.repeat_interleave(trajectory.group_size)
    counted_BL = mask_BL if settings.loss.count_dead_groups else mask_BL & ~silent_B[:, None]
    weights_BL, count = losses.aggregation_weights(counted_BL, trajectory.unmask_step_BL, settings.loss.aggregation)
    progress_BL = denoising_progress(trajectory, settings.advantage.coordinate, settings.advantage.scope)
    return TokenWeights(
        mask_BL=mask_BL, progress_BL=progress_BL, weights_BL=weights_BL, count=count, dead_P=dead_P, silent_P=silent_P
    )


def weigh(
    trajectory: Trajectory,
    rewards: Rewards,
    estimator: Estimator,
    memory: Memory,
    settings: LoopSettings,
    accelerator: Accelerator | None,
    *,
    row_keys_B: Tensor,
    update: int = 1,
    collected: Collected | None = None,
) -> Weighting:
    """Rewards and recorded states become one advantage a token. The only place where an estimator is consulted.

    `row_keys_B` names each rollout by update, prompt and number, so that a shuffled control shuffles it the same way
    on any process and beside any other rollout. Without an accelerator these rollouts are the whole batch.
    """
    tokens = token_weights(trajectory, rewards, settings, alive=estimator.spec.alive)
    shared = accelerator is not None and accelerator.num_processes > 1
    components_K = torch.tensor(list(settings.advantage.components.values()), dtype=torch.float64)

    def by_prompt(tensor_BL: Tensor) -> Tensor:
        return tensor_BL.view(*rewards.rewards_PG.shape, *tensor_BL.shape[1:])

    batch = EstimatorBatch(
        rewards_PG=rewards.rewards_PG,
        valid_PG=rewards.valid_PG,
        mask_PGL=by_prompt(tokens.mask_BL),
        state_PGL=by_prompt(trajectory.unmask_step_BL),
        num_states_PG=by_prompt(trajectory.num_steps_B),
        progress_PGL=by_prompt(tokens.progress_BL),
        weights_PGL=by_prompt(tokens.weights_BL),
        logprobs_PGL=by_prompt(trajectory.sampling_logprobs_BL),
        entropies_PGL=by_prompt(trajectory.entropies_BL),
        block_PGL=by_prompt(trajectory.block_index_BL),
        update=update,
        updates=settings.updates,
        seed=settings.seed,
        row_keys_PG=by_prompt(row_keys_B),
        all_reduce=partial(sum_over_processes, accelerator=accelerator) if shared else None,
        component_weights_K=components_K.to(rewards.rewards_PG.device),
        **({} if collected is None else collected.fields),
    )
    advantages, memory = estimate(
        estimator, batch, memory, rms_match=settings.advantage.rms_match, normalisation=settings.advantage.normalise
    )
    return Weighting(tokens=tokens, advantages=advantages, memory=memory)


def weighting_metrics(
    trajectory: Trajectory,
    rewards: Rewards,
    weighting: Weighting,
    settings: AdvantageSettings,
    accelerator: Accelerator,
    costs: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, Any]:
    """What is logged of an update's advantages, over all processes; `costs` of what was collected for them."""
    tokens, advantages = weighting.tokens, weighting.advantages
    counted_BL, tally = tokens.weights_BL > 0, Tally()
    tally.add("groups/dead", tokens.dead_P, torch.ones_like(tokens.dead_P))
    tally.add("advantage/abs_mean", advantages.values_PGL.abs(), counted_BL)
    counted_values_BL = advantages.values_PGL.reshape(counted_BL.shape) * counted_BL
    tally.add("advantage/rms", counted_values_BL.square(), counted_BL)
    tally.add("advantage/nonzero_frac", counted_values_BL != 0, counted_BL)
    one = torch.ones(1, device=counted_BL.device)
    for name, value in advantages.metrics.items():
        if name.startswith("estimator/"):
            tally.add(name, one * value, one)
    for name, value in costs.items():
        tally.add(f"collect/{name}", one * value, None)
    predictable = progress_is_predictable(trajectory, settings.coordinate, settings.scope)
    binary = rewards.binary and advantages.metrics["binary_exact"]
    for name, holds in (("risk/tau_predictable", predictable), ("risk/binary_exact", binary)):
        tally.least(name, torch.tensor([float(holds)], device=counted_BL.device))
    hits = torch.tensor([advantages.metrics["cap_hits"]], device=counted_BL.device)
    tally.add("risk/cap_share", hits, counted_BL)
    metrics: dict[str, Any] = tally.result(accelerator)
    metrics["advantage/rms"] **= 0.5
    metrics["risk/rms_scale"] = advantages.metrics["rms_scale"]
    metrics["rollout/selection_exact"] = float(trajectory.selection_exact)
    shape = counted_BL.shape
    values_BL, risk_coef_BL = advantages.values_PGL.reshape(shape), advantages.risk_coef_PGL.reshape(shape)
    return metrics | grids(rewards, tokens.progress_BL, values_BL, risk_coef_BL, tokens.weights_BL, accelerator)


def _dead(rewards: Rewards) -> Tensor:
    """Groups without signal: all counted rewards equal, or fewer than two counted."""
    few_P = rewards.valid_PG.sum(1) < 2
    # A masked sample takes the reward of a counted one, so that it cannot make its group look alive.
    first_P = rewards.valid_PG.to(torch.int8).argmax(1)
    stand_in_P1 = rewards.rewards_PG.gather(1, first_P[:, None])
    return few_P | dead_groups(torch.where(rewards.valid_PG, rewards.rewards_PG, stand_in_P1))


def make_batch(
    trajectory: Trajectory, weighting: Weighting, settings: LoopSettings, accelerator: Accelerator, **extra: Any
) -> UpdateBatch:
    """Collect what the inner updates need, with the denominator taken over all processes."""
    tokens = weighting.tokens
    total = torch.tensor(float(tokens.count), dtype=torch.float64, device=trajectory.completion_ids_BL.device)
    live_B = ~tokens.silent_P.repeat_interleave(trajectory.group_size)
    advantages_BL = weighting.advantages.values_PGL.reshape(trajectory.completion_mask_BL.shape).to(torch.float32)
    # Rewards that differ by rounding alone are equal here, whatever the advantage made of them.
    advantages_BL = advantages_BL.masked_fill(~live_B[:, None], 0.0)
    # Whole groups: one without any advantage costs no forward.
    moving_P = (advantages_BL != 0).view(-1, trajectory.group_size * advantages_BL.shape[1]).any(1)
    moving_B = moving_P.repeat_interleave(trajectory.group_size)
    active_B = (live_B & moving_B | (settings.loss.kl_coef > 0)) & (tokens.weights_BL > 0).any(1)
    return UpdateBatch(
        trajectory=trajectory,
        advantages_BL=advantages_BL,
        weights_BL=tokens.weights_BL.to(torch.float32),
        progress_BL=tokens.progress_BL,
        normaliser=float(sum_over_processes(total, accelerator)),
        active_B=active_B,
        old_logprobs_BL=None,
        **extra,
    )


def ended_rows(trajectory: Trajectory, eos_token_id: int) -> Tensor:
    """Rollouts that ended by themselves, bool [B].

    Only a revealed end token ends a text: what was never reached may hold padding that is the same token.
    """
    return ((trajectory.completion_ids_BL == eos_token_id) & trajectory.completion_mask_BL).any(1)


def merged(trajectory: Trajectory, shrinkage: int) -> Trajectory:
    """The trajectory on the merged order that states, progress and loss are defined on."""
    return trajectory if shrinkage == 1 else merge_steps(trajectory, shrinkage)


def batch_to_tensors(batch: UpdateBatch) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An in-flight batch as tensors and JSON, for the checkpoint between two inner updates."""
    tensors: dict[str, Tensor] = {}
    rest: dict[str, Any] = {}
    records: list[tuple[Any, str]] = [(batch.trajectory, "trajectory."), (batch, "")]
    if batch.trajectory.revisions is not None:
        records.append((batch.trajectory.revisions, "revisions."))
    for record, prefix in records:
        for field in dataclasses.fields(record):
            value = getattr(record, field.name)
            if isinstance(value, Tensor):
                tensors[prefix + field.name] = value.detach().cpu().contiguous()
            elif not isinstance(value, Trajectory | Revisions):
                rest[prefix + field.name] = dataclasses.asdict(value) if isinstance(value, Decoding) else value
    return tensors, rest


def batch_from_tensors(tensors: Mapping[str, Tensor], rest: Mapping[str, Any], device: torch.device) -> UpdateBatch:
    """The inverse of `batch_to_tensors`."""
    everything = {**rest, **{name: tensor.to(device) for name, tensor in tensors.items()}}
    everything["trajectory.decoding"] = Decoding(**everything["trajectory.decoding"])

    def under(prefix: str) -> dict[str, Any]:
        found = [name for name in everything if name.startswith(prefix)]
        return {name.removeprefix(prefix): everything.pop(name) for name in found}

    inner, events = under("trajectory."), under("revisions.")
    inner["revisions"] = Revisions(**events) if events else None
    return UpdateBatch(trajectory=Trajectory(**inner), **everything)
