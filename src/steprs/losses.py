"""Loss terms per token, and the weights that make their sum a mean.

Everything here is the underlying trainer: it sees log-probabilities, advantages and masks, never rewards, schedules
or models. A loss is always `sum(weights * token_loss) / count` with `count` summed over all rows, micro-batches and
processes of the update, so no way of splitting the work can change it.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from .errors import ArgumentError, unknown_name

Aggregation = Literal["token-mean", "state-mean", "sequence-mean"]
KLKind = Literal["k1", "k2", "k3"]


def policy_gradient_loss(logprobs: Tensor, advantages: Tensor) -> Tensor:
    """REINFORCE without a ratio: `-A log pi`.

    Its gradient is `-A grad log pi`, the same as `ppo_clip_loss` has at the first inner update.

    Args:
        logprobs: log-probabilities in nats, any shape.
        advantages: same shape; detached here, so no gradient reaches them.

    Returns:
        The loss of each token, same shape.

    >>> policy_gradient_loss(torch.tensor([-2.0]), torch.tensor([0.5]))
    tensor([1.])
    """
    return -advantages.detach() * logprobs


def ppo_clip_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor, Tensor]:
    """PPO's pessimistic surrogate with separate bounds: `-min(rho A, clip(rho, 1 - low, 1 + high) A)`.

    `rho = exp(logprobs - old_logprobs)`, both from scoring forwards (Schulman et al. 2017, eq. 7; two bounds as in
    DAPO, Yu et al. 2025). A token is clipped where the bound is the smaller of the two, and then has no gradient.

    Args:
        logprobs: current log-probabilities in nats, any shape.
        old_logprobs: those before the first inner update, same shape; detached here.
        advantages: same shape; detached here.
        clip_low: in (0, 1), how far the ratio may fall while the advantage is negative.
        clip_high: > 0, how far it may rise while the advantage is positive.

    Returns:
        `(loss, clipped, ratio)`, each of the same shape; `clipped` is bool.

    Raises:
        ArgumentError: a bound is outside its range.

    >>> loss, clipped, ratio = ppo_clip_loss(
    ...     torch.tensor([0.5, -0.5]).exp().log(), torch.zeros(2), torch.tensor([1.0, 1.0]), clip_low=0.2, clip_high=0.3
    ... )
    >>> loss, clipped
    (tensor([-1.3000, -0.6065]), tensor([ True, False]))
    """
    if not (0 < clip_low < 1 and clip_high > 0):
        raise ArgumentError(f"clip_low {clip_low} must lie in (0, 1) and clip_high {clip_high} above 0")
    advantages = advantages.detach()
    ratio = (logprobs - old_logprobs.detach()).exp()
    low, high = 1 - clip_low, 1 + clip_high
    clipped = ((advantages > 0) & (ratio > high)) | ((advantages < 0) & (ratio < low))
    return -advantages * torch.where(clipped, ratio.detach().clamp(low, high), ratio), clipped, ratio


def truncated_is_loss(
    logprobs: Tensor, sampling_logprobs: Tensor, advantages: Tensor, *, ratio_cap: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Policy gradient with truncated importance weights: `-min(rho, cap) A log pi`, no gradient through `rho`.

    `rho = exp(logprobs - sampling_logprobs)`, to the log-probabilities that the sampler itself recorded. With the
    filter of `off_policy_rows` it is F-TIS (arXiv 2605.22537), as described in secondary sources.

    Args:
        logprobs: current log-probabilities in nats, any shape.
        sampling_logprobs: those of the generator, same shape; detached here.
        advantages: same shape; detached here.
        ratio_cap: > 0, the largest importance weight.

    Returns:
        `(loss, cut, ratio)`, each of the same shape; `cut` is bool, `ratio` detached.

    Raises:
        ArgumentError: the cap is not positive.

    >>> truncated_is_loss(torch.tensor([-1.0]), torch.tensor([-2.0]), torch.tensor([1.0]), ratio_cap=2.0)[0]
    tensor([2.])
    """
    if not ratio_cap > 0:
        raise ArgumentError(f"ratio_cap is {ratio_cap}; it must be above 0")
    ratio = (logprobs.detach() - sampling_logprobs.detach()).exp()
    return -ratio.clamp(max=ratio_cap) * advantages.detach() * logprobs, ratio > ratio_cap, ratio


def off_policy_rows(
    logprobs_BL: Tensor, sampling_logprobs_BL: Tensor, advantages_BL: Tensor, weights_BL: Tensor, *, limit: float
) -> Tensor:
    """Rollouts that F-TIS leaves out: without a positive advantage, and too far from the policy; bool [B].

    Far is a weighted mean of `sampling_logprobs - logprobs` over the rollout's scored tokens above `limit`: an estimate
    of KL(generator || policy) in nats a token.

    Args:
        logprobs_BL: current log-probabilities.
        sampling_logprobs_BL: those of the generator.
        advantages_BL: of the tokens; a rollout counts as positive if their sum is.
        weights_BL: importance weights of the scored tokens, 0 where a token was not scored or does not count.
        limit: nats a token.

    >>> now, then = torch.tensor([[-3.0], [-3.0], [-1.1]]), torch.full((3, 1), -1.0)
    >>> off_policy_rows(now, then, torch.tensor([[1.0], [-1.0], [-1.0]]), torch.ones(3, 1), limit=0.5).tolist()
    [False, True, False]
    """
    weights_BL = weights_BL.to(logprobs_BL)
    gap_BL = (sampling_logprobs_BL - logprobs_BL).masked_fill(weights_BL == 0, 0.0)
    divergence_B = (gap_BL * weights_BL).sum(1) / weights_BL.sum(1).clamp(min=1e-12)
    return ((advantages_BL * weights_BL).sum(1) <= 0) & (divergence_B > limit)


def kl_estimate(logprobs: Tensor, ref_logprobs: Tensor, kind: KLKind) -> Tensor:
    """Per-token estimate of `KL(pi || ref)` from tokens sampled by pi (J. Schulman, "Approximating KL divergence").

    With `d = logprobs - ref_logprobs`:

    | kind | value | expectation | expected gradient |
    |---|---|---|---|
    | `k1` | `d` | `KL(pi, ref)` | that of `KL(pi, ref)` |
    | `k2` | `d^2 / 2` | second order | that of `KL(pi, ref)` |
    | `k3` | `exp(-d) - 1 + d` | `KL(pi, ref)`, each term >= 0 | that of `KL(ref, pi)` |

    `d` itself would have expected gradient 0 (a score function) and regularise nothing, so `k1` takes the gradient of
    `k2`, which is the right one; its value stays `d`.

    Args:
        logprobs: log-probabilities under pi in nats, any shape.
        ref_logprobs: under the frozen reference, same shape; detached here.
        kind: `k1`, `k2` or `k3`.

    Returns:
        The estimate of each token, same shape.

    Raises:
        ArgumentError: the kind is unknown.

    >>> kl_estimate(torch.tensor([-1.0]), torch.tensor([-2.0]), "k3")
    tensor([0.3679])
    """
    difference = logprobs - ref_logprobs.detach()
    if kind == "k3":
        return torch.expm1(-difference) + difference
    square = 0.5 * difference.square()
    if kind == "k2":
        return square
    if kind == "k1":
        return difference.detach() + (square - square.detach())
    raise ArgumentError(unknown_name("KL kind", kind, get_args(KLKind)))


def aggregation_weights(mask_BL: Tensor, unmask_step_BL: Tensor, aggregation: Aggregation) -> tuple[Tensor, float]:
    """Weights and denominator with which a sum over tokens becomes the mean that was asked for.

    | aggregation | weight of a token | count | the mean over |
    |---|---|---|---|
    | `token-mean` | 1 | tokens | tokens |
    | `sequence-mean` | 1 / tokens of its row | rows with tokens | rollouts of the mean over their tokens |
    | `state-mean` | 1 / tokens of its row and state | such states | states of the mean over their tokens |

    Args:
        mask_BL: bool [B, L], the tokens that count.
        unmask_step_BL: int64 [B, L], the state a token was revealed in; >= 0 wherever the mask is true.
        aggregation: one of the three names.

    Returns:
        `(weights_BL, count)`: float32 weights, 0 outside the mask, which sum to `count`; an empty mask has count 0.
        Add the counts of all parts of an update, then divide.

    Raises:
        ArgumentError: the name is unknown, shapes differ, or a counted token was never revealed.

    >>> mask, step = torch.tensor([[True, True, True]]), torch.tensor([[0, 0, 1]])
    >>> aggregation_weights(mask, step, "state-mean")
    (tensor([[0.5000, 0.5000, 1.0000]]), 2.0)
    """
    if aggregation not in get_args(Aggregation):
        raise ArgumentError(unknown_name("aggregation", aggregation, get_args(Aggregation)))
    if mask_BL.shape != unmask_step_BL.shape or mask_BL.dim() != 2:
        raise ArgumentError(
            f"mask {tuple(mask_BL.shape)} and unmask_step {tuple(unmask_step_BL.shape)} must both be [B, L]"
        )
    mask_BL = mask_BL.bool()
    if aggregation == "token-mean":
        return mask_BL.float(), float(mask_BL.sum())
    if aggregation == "sequence-mean":
        tokens_B1 = mask_BL.sum(1, keepdim=True)
        weights_BL = mask_BL / tokens_B1.clamp(min=1).double()
        return weights_BL.float(), float((tokens_B1 > 0).sum())
    return _state_mean(mask_BL, unmask_step_BL)


def _state_mean(mask_BL: Tensor, unmask_step_BL: Tensor) -> tuple[Tensor, float]:
    """Weights over (row, state) pairs; a pair is one bin of a flat count."""
    if bool((mask_BL & (unmask_step_BL < 0)).any()):
        raise ArgumentError("a token inside the mask has unmask_step -1 (never revealed); clear it in the mask")
    width = int(unmask_step_BL.clamp(min=0).max()) + 1 if unmask_step_BL.numel() else 1
    row_B1 = torch.arange(mask_BL.shape[0], device=mask_BL.device)[:, None]
    bin_BL = row_B1 * width + unmask_step_BL.clamp(min=0)
    tokens_S = torch.bincount(bin_BL[mask_BL], minlength=mask_BL.shape[0] * width)
    weights_BL = mask_BL / tokens_S[bin_BL].clamp(min=1).double()
    return weights_BL.float(), float((tokens_S > 0).sum())
