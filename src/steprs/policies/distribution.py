"""The distribution a token is sampled from, shared by the samplers and by scoring.

Both sides must agree to the last bit of definition: the ratio between two scoring forwards is 1 only if the
distribution scored is the one sampled. It is the softmax of `logits / temperature` over the vocabulary without the
forbidden ids (mask, padding), cut down to a support where the rollout was truncated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..types import Decoding


class SpecialTokens(Protocol):
    """What `forbidden_ids` needs to know of a policy."""

    @property
    def mask_token_id(self) -> int:
        """The id that stands for "not yet revealed"."""

    @property
    def eos_token_id(self) -> int:
        """End of text."""

    @property
    def pad_token_id(self) -> int:
        """Padding; may be the same as end of text."""


def forbidden_ids(policy: SpecialTokens) -> tuple[int, ...]:
    """Ids that no completion may contain: the mask token, and the padding token unless it doubles as end-of-text.

    >>> from types import SimpleNamespace
    >>> forbidden_ids(SimpleNamespace(mask_token_id=2, eos_token_id=1, pad_token_id=0))
    (0, 2)
    >>> forbidden_ids(SimpleNamespace(mask_token_id=2, eos_token_id=1, pad_token_id=1))
    (2,)
    """
    ids = {policy.mask_token_id, policy.pad_token_id} - {policy.eos_token_id}
    return tuple(sorted(ids))


def canvas_temperatures(decoding: Decoding) -> tuple[float, ...]:
    """Temperature of each step of a canvas whose tokens are revised.

    In step i of N (from 0) it is `final + (first - final) * (N - i) / N`, the schedule of DiffusionGemma's published
    sampler: the first step has the first temperature, and the final one is approached. Argmax decoding has
    temperature 1 for what conditions the next step.

    >>> decoding = Decoding(kind="revise", length=8, steps=8, block_size=4, temperature=0.8, final_temperature=0.4)
    >>> [round(temperature, 1) for temperature in canvas_temperatures(decoding)]
    [0.8, 0.7, 0.6, 0.5]
    """
    steps = decoding.steps * decoding.block_size // decoding.length
    first = decoding.temperature or 1.0
    final = first if decoding.final_temperature is None else decoding.final_temperature
    return tuple(final + (first - final) * (steps - index) / steps for index in range(steps))


def token_logprobs(
    logits_NV: Tensor,
    *,
    temperature: float,
    forbidden_ids: Sequence[int] = (),
    support_ids_NK: Tensor | None = None,
) -> Tensor:
    """Log-probabilities of the sampling distribution: `log_softmax(logits / temperature)` over what may be sampled.

    Args:
        logits_NV: [N, V], any floating dtype; half precision is lifted to float32 first.
        temperature: a number >= 0. At 0 the sampler takes the argmax, which has no density: temperature 1 is used.
        forbidden_ids: ids with probability 0.
        support_ids_NK: int64 [N, K] ids that may be sampled, padded with -1; None = all but the forbidden ones.

    Returns:
        [N, V] in float32 (float64 for float64 logits); -inf where the probability is 0.

    Raises:
        ArgumentError: the temperature is negative.

    >>> logits = torch.tensor([[0.0, 1.0, 2.0]])
    >>> token_logprobs(logits, temperature=1.0, forbidden_ids=(1,)).exp()
    tensor([[0.1192, 0.0000, 0.8808]])
    """
    scaled_NV = sampling_logits(logits_NV, temperature=temperature, forbidden_ids=forbidden_ids)
    if support_ids_NK is not None:
        scaled_NV = scaled_NV.masked_fill(~_support_mask(support_ids_NK, scaled_NV.shape[-1]), float("-inf"))
    return torch.log_softmax(scaled_NV, dim=-1)


def sampling_logits(logits_NV: Tensor, *, temperature: float, forbidden_ids: Sequence[int] = ()) -> Tensor:
    """`logits / temperature` in at least float32, -inf at the forbidden ids (the untruncated distribution's logits).

    >>> sampling_logits(torch.tensor([[1.0, 2.0]]), temperature=0.5, forbidden_ids=(0,))
    tensor([[-inf, 4.]])
    """
    if temperature < 0:
        raise ArgumentError(f"temperature is {temperature}; give a number >= 0 (0 decodes greedily)")
    scaled_NV = logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()
    if temperature not in (0, 1):
        scaled_NV = scaled_NV / temperature
    if not forbidden_ids:
        return scaled_NV
    columns = torch.tensor(list(forbidden_ids), device=scaled_NV.device)
    return scaled_NV.index_fill(-1, columns, float("-inf"))


def truncation_support(logprobs_NV: Tensor, *, top_p: float = 1.0, top_k: int = 0) -> Tensor:
    """Ids that top-k, then top-p (nucleus) truncation keep, most probable first.

    Top-p keeps the smallest set of most probable ids whose renormalised probability reaches `top_p`, at least one.

    Args:
        logprobs_NV: [N, V], of the untruncated distribution (temperature included).
        top_p: in (0, 1]; 1 keeps everything.
        top_k: a count; 0 keeps everything.

    Returns:
        int64 [N, K], K the largest number kept, padded with -1. Ids of probability 0 are never kept.

    >>> truncation_support(torch.tensor([[0.1, 0.6, 0.3], [0.05, 0.9, 0.05]]).log(), top_p=0.8)
    tensor([[ 1,  2],
            [ 1, -1]])
    """
    logprobs_NV = logprobs_NV.detach()
    size = min(top_k, logprobs_NV.shape[-1]) if top_k > 0 else logprobs_NV.shape[-1]
    sorted_NK, ids_NK = logprobs_NV.topk(size, dim=-1)
    probs_NK = torch.softmax(sorted_NK, dim=-1)
    before_NK = probs_NK.cumsum(-1) - probs_NK
    keep_NK = sorted_NK > float("-inf")
    if top_p < 1.0:
        keep_NK &= before_NK < top_p
    keep_NK[:, :1] = True
    width = int(keep_NK.sum(-1).amax()) if keep_NK.shape[0] else 0
    return ids_NK.masked_fill(~keep_NK, -1)[:, :width]


def picked_logprobs(
    logits_NV: Tensor,
    token_N: Tensor,
    *,
    temperature: float,
    forbidden_ids: Sequence[int] = (),
    support_ids_NK: Tensor | None = None,
    top_p: float = 1.0,
    top_k: int = 0,
) -> Tensor:
    """Log-probability of one token a row, and the entropy of the row: `token_logprobs` without its [N, V] result.

    Args:
        logits_NV: [N, V].
        token_N: int64 [N], ids inside the support.
        temperature: as in `token_logprobs`.
        forbidden_ids: as in `token_logprobs`.
        support_ids_NK: as in `token_logprobs`.
        top_p: truncate by the logits themselves where no support is given; the token is always kept.
        top_k: likewise.

    Returns:
        [N, 2] in float32 (float64 for float64 logits), nats: the log-probability, differentiable, and the entropy,
        detached.

    >>> picked_logprobs(torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([2]), temperature=1.0, forbidden_ids=(1,))
    tensor([[-0.1269, 0.3653]])
    """
    scaled_NV = sampling_logits(logits_NV, temperature=temperature, forbidden_ids=forbidden_ids)
    token_N1 = token_N[:, None]
    if support_ids_NK is None and (top_p < 1.0 or top_k > 0):
        support_ids_NK = truncation_support(torch.log_softmax(scaled_NV.detach(), dim=-1), top_p=top_p, top_k=top_k)
        kept_N1 = (support_ids_NK == token_N1).any(-1, keepdim=True)
        support_ids_NK = torch.cat((support_ids_NK, token_N1.masked_fill(kept_N1, -1)), dim=1)
    picked_N = scaled_NV.gather(-1, token_N1)[:, 0]
    if support_ids_NK is not None:
        inside_NK = scaled_NV.gather(-1, support_ids_NK.clamp(min=0))
        scaled_NV = inside_NK.masked_fill(support_ids_NK < 0, float("-inf"))
    normaliser_N = torch.logsumexp(scaled_NV, dim=-1)
    return torch.stack((picked_N - normaliser_N, _entropy(scaled_NV.detach(), normaliser_N.detach())), dim=-1)


def _entropy(scaled_NV: Tensor, normaliser_N: Tensor) -> Tensor:
    """`log Z - E[logit]`; logits of -inf have probability 0 and count for nothing."""
    probs_NV = (scaled_NV - normaliser_N[:, None]).exp_()
    probs_NV *= scaled_NV.clamp(min=torch.finfo(scaled_NV.dtype).min)
    return normaliser_N - probs_NV.sum(-1)


def _support_mask(support_ids_NK: Tensor, vocabulary: int) -> Tensor:
    """Bool [N, V], true on the ids listed; the padding -1 lands in an extra column that is dropped."""
    mask = torch.zeros(support_ids_NK.shape[0], vocabulary + 1, dtype=torch.bool, device=support_ids_NK.device)
    columns = support_ids_NK.masked_fill(support_ids_NK < 0, vocabulary)
    return mask.scatter_(1, columns, True)[:, :vocabulary]
