"""The loss of one micro-batch. It sees advantages and weights, never rewards, groups or schedules."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import losses
from ..logprobs import RevisedBatch, ScoringBatch, check_ratio, plan_coupled, plan_one_step, plan_trace, score_batch
from ..policies.base import Policy
from .batch import UpdateBatch
from .records import Tally
from .settings import LossSettings


def plan_scoring(
    batch: UpdateBatch, policy: Policy, settings: LossSettings, token_budget: int
) -> Sequence[ScoringBatch | RevisedBatch]:
    """Micro-batches for the active rows, each within the token budget. The same for every inner update."""
    rows = batch.active_B.nonzero().flatten()
    if settings.logprobs == "one-step":
        return plan_one_step(
            batch.trajectory, policy, rows=rows, token_budget=token_budget,
            prompt_mask_rate=settings.prompt_mask_rate, keys_B=batch.noise_keys_B,
        )  # fmt: skip
    if settings.logprobs == "coupled":
        return plan_coupled(batch.trajectory, policy, rows=rows, token_budget=token_budget, keys_B=batch.noise_keys_B)
    return plan_trace(
        batch.trajectory, policy, rows=rows, token_budget=token_budget,
        states_per_rollout=settings.states_per_rollout, keys_B=batch.noise_keys_B,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroLoss:
    """One micro-batch's share of the update's loss, with its graph, and its log-probabilities, without."""

    loss: Tensor
    logprobs_N: Tensor
    row_N: Tensor
    pos_N: Tensor


def micro_loss(
    policy: Policy,
    reference: Policy | None,
    batch: UpdateBatch,
    scoring: ScoringBatch | RevisedBatch,
    settings: LossSettings,
    tally: Tally,
) -> MicroLoss:
    """sum over the micro-batch of weight * (policy loss + kl_coef * KL) / the update's one normaliser."""
    scores = score_batch(policy, batch.trajectory, scoring)
    at = (scores.row_N, scores.pos_N)
    advantages_N = batch.advantages_BL[at]
    weights_N = batch.weights_BL[at] * scores.weight_N / batch.normaliser
    detached_N = scores.logprobs_N.detach()
    old_N = detached_N if batch.old_logprobs_BL is None else batch.old_logprobs_BL[at]
    if settings.kind == "ppo-clip":
        token_loss_N, clipped_N, ratio_N = losses.ppo_clip_loss(
            scores.logprobs_N, old_N, advantages_N, clip_low=settings.clip_low, clip_high=settings.clip_high
        )
    elif settings.kind == "f-tis":
        token_loss_N, clipped_N, ratio_N = losses.truncated_is_loss(
            scores.logprobs_N, batch.trajectory.sampling_logprobs_BL[at], advantages_N, ratio_cap=settings.ratio_cap
        )
    else:
        token_loss_N = losses.policy_gradient_loss(scores.logprobs_N, advantages_N)
        ratio_N = torch.exp(detached_N - old_N)
        clipped_N = torch.zeros_like(ratio_N, dtype=torch.bool)
    loss = (weights_N * token_loss_N).sum()
    kl_N = torch.zeros_like(detached_N)
    if settings.kl_coef > 0:
        reference_N = _reference_logprobs(policy, reference, batch, scoring)
        kl_N = losses.kl_estimate(scores.logprobs_N, reference_N, settings.kl_kind)
        loss = loss + settings.kl_coef * (weights_N * kl_N).sum()
    _count(tally, weights_N, token_loss_N, kl_N, clipped_N, ratio_N, scores.entropies_N, batch.progress_BL[at])
    sampled_N = batch.trajectory.sampling_logprobs_BL[at]
    gap_N = (old_N - sampled_N).abs() * (weights_N > 0)
    if batch.trajectory.revisions is not None and batch.old_logprobs_BL is None:
        check_ratio(old_N[weights_N > 0], sampled_N[weights_N > 0])
    tally.add("logprob_gap/mean", gap_N, weights_N > 0)
    tally.most("logprob_gap/max", gap_N)
    return MicroLoss(loss=loss, logprobs_N=detached_N, row_N=scores.row_N, pos_N=scores.pos_N)


@torch.no_grad()
def without_off_policy_rows(
    policy: Policy, batch: UpdateBatch, plan: Sequence[ScoringBatch | RevisedBatch], limit: float
) -> tuple[Tensor, float]:
    """Advantages with 0 for the rollouts that F-TIS leaves out, and their number; costs a forward without gradient."""
    sampled_BL = batch.trajectory.sampling_logprobs_BL
    now_BL, weights_BL = sampled_BL.clone().float(), torch.zeros_like(sampled_BL)
    policy.train(False)
    for scoring in plan:
        scores = score_batch(policy, batch.trajectory, scoring)
        now_BL[scores.row_N, scores.pos_N] = scores.logprobs_N.float()
        # Padding rows of the plan weigh nothing, and drawn states stand for the others.
        weights_BL[scores.row_N, scores.pos_N] += scores.weight_N * (batch.weights_BL[scores.row_N, scores.pos_N] > 0)
    policy.train(True)
    far_B = losses.off_policy_rows(now_BL, sampled_BL, batch.advantages_BL, weights_BL, limit=limit)
    return batch.advantages_BL.masked_fill(far_B[:, None], 0.0), float(far_B.sum())


def _reference_logprobs(
    policy: Policy, reference: Policy | None, batch: UpdateBatch, scoring: ScoringBatch | RevisedBatch
) -> Tensor:
    """Scores of the frozen reference: its own model, or this one with the adapter switched off."""
    with torch.no_grad(), policy.no_adapter() if reference is None else nullcontext():
        return score_batch(reference or policy, batch.trajectory, scoring).logprobs_N


def _count(
    tally: Tally,
    weights_N: Tensor,
    token_loss_N: Tensor,
    kl_N: Tensor,
    clipped_N: Tensor,
    ratio_N: Tensor,
    entropies_N: Tensor,
    progress_N: Tensor,
) -> None:
    counted_N = weights_N > 0
    tally.add("loss/policy", weights_N * token_loss_N.detach(), None)
    tally.add("kl/mean", kl_N.detach() * counted_N, counted_N)
    tally.add("ratio/clip_frac", clipped_N & counted_N, counted_N)
    tally.add("ratio/mean", ratio_N.detach() * counted_N, counted_N)
    tally.most("ratio/max", ratio_N.detach() * counted_N)
    tally.add("entropy", entropies_N * counted_N, counted_N)
    tally.add("tokens/scored", counted_N, None)
    values = {"entropy": entropies_N, "clip_frac": clipped_N, "ratio": ratio_N.detach()}
    tally.by_progress(values, counted_N, progress_N)
