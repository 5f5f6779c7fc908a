"""Drawing tokens from logits: the distribution, an inverse-CDF draw from given uniforms, and what is recorded of it.

The distribution itself is defined once, in `policies.distribution`, for samplers and scoring alike: temperature, then
no mask and no padding token (their logits are removed), then top-k, then top-p, renormalised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ..errors import NonFiniteError
from ..policies.distribution import forbidden_ids, sampling_logits, token_logprobs, truncation_support
from ..types import Decoding

__all__ = [
    "Draws", "draw", "forbidden_ids", "is_truncated", "likeliest", "pad_support", "row_chunks", "sample_tokens",
]  # fmt: skip

_CHUNK_ELEMENTS = 1 << 25


@dataclass(frozen=True, kw_only=True, slots=True)
class Draws:
    """N drawn tokens.

    Attributes:
        ids_N: int64.
        logprobs_N: float32 log-probability under the distribution the token was drawn from.
        entropies_N: float32 entropy (nats) of that distribution.
        support_NK: int64 ids with positive probability, padded with -1; None where nothing is truncated or it was
            not asked for.
    """

    ids_N: Tensor
    logprobs_N: Tensor
    entropies_N: Tensor
    support_NK: Tensor | None = None

    def at(self, index_M: Tensor) -> Draws:
        """The draws at `index_M`."""
        support_MK = None if self.support_NK is None else self.support_NK[index_M]
        return Draws(
            ids_N=self.ids_N[index_M],
            logprobs_N=self.logprobs_N[index_M],
            entropies_N=self.entropies_N[index_M],
            support_NK=support_MK,
        )


def is_truncated(decoding: Decoding) -> bool:
    """Whether top-k or top-p cuts the distribution; argmax decoding draws from none.

    >>> is_truncated(Decoding(kind="masked", length=4, steps=4, block_size=4, top_k=5))
    True
    """
    return decoding.temperature > 0 and (decoding.top_k > 0 or decoding.top_p < 1.0)


def sample_tokens(
    logits_NV: Tensor,
    uniforms_N: Tensor,
    decoding: Decoding,
    *,
    forbidden: Sequence[int],
    store_support: bool = False,
) -> Draws:
    """Draw one token from each row of logits.

    At temperature 0 the token is the argmax; the log-probability and entropy recorded are then those of temperature
    1, which is what scoring uses.

    Args:
        logits_NV: floating [N, V].
        uniforms_N: float64 [N] in (0, 1), one number a draw.
        decoding: temperature, top_k and top_p are read.
        forbidden: ids that must have probability zero (`forbidden_ids`).
        store_support: return the ids a truncated distribution could give.
    """
    chunks = [
        _sample_chunk(logits_NV[rows], uniforms_N[rows], decoding, forbidden, store_support)
        for rows in row_chunks(logits_NV)
    ]
    if len(chunks) == 1:
        return chunks[0]
    supports = [chunk.support_NK for chunk in chunks if chunk.support_NK is not None]
    width = max((support.shape[-1] for support in supports), default=0)
    return Draws(
        ids_N=torch.cat([chunk.ids_N for chunk in chunks]),
        logprobs_N=torch.cat([chunk.logprobs_N for chunk in chunks]),
        entropies_N=torch.cat([chunk.entropies_N for chunk in chunks]),
        support_NK=torch.cat([pad_support(support, width) for support in supports]) if supports else None,
    )


def draw(logprobs_NV: Tensor, uniforms_N: Tensor) -> Tensor:
    """Inverse-CDF draw: the first id whose cumulative probability exceeds u.

    Summed in float64 and scaled by the sum, so that rounding neither runs past the last id nor lands on an id of
    probability zero.

    Args:
        logprobs_NV: [N, V] normalised log-probabilities, -inf where an id cannot be drawn.
        uniforms_N: float64 [N] in (0, 1).

    Returns:
        int64 [N].

    >>> draw(torch.tensor([[0.25, 0.0, 0.75]]).log().expand(3, 3), torch.tensor([0.2, 0.25, 0.999])).tolist()
    [0, 2, 2]
    """
    cumulative_NV = logprobs_NV.double().exp().cumsum(-1)
    total_N1 = cumulative_NV[:, -1:]
    # An id of probability zero repeats its neighbour's sum and cannot be the first above the target; the target is
    # kept under the total, which u * total may round up to.
    below_N1 = torch.nextafter(total_N1, torch.zeros_like(total_N1))
    target_N1 = torch.minimum(uniforms_N.double()[:, None] * total_N1, below_N1)
    return torch.searchsorted(cumulative_NV, target_N1, right=True).squeeze(-1)


def likeliest(logits_NV: Tensor, forbidden: Sequence[int]) -> Tensor:
    """The likeliest allowed token of each row, int64 [N].

    >>> likeliest(torch.tensor([[1.0, 3.0, 2.0]]), (1,)).tolist()
    [2]
    """
    chunks = [
        sampling_logits(logits_NV[rows], temperature=1.0, forbidden_ids=forbidden).argmax(-1)
        for rows in row_chunks(logits_NV)
    ]
    return torch.cat(chunks)


def row_chunks(logits_NV: Tensor) -> list[slice]:
    """Slices of rows that bound the float copies made of [N, V] logits at a vocabulary of 10^5 words."""
    rows, vocabulary = logits_NV.shape
    size = max(1, _CHUNK_ELEMENTS // vocabulary)
    return [slice(start, start + size) for start in range(0, max(rows, 1), size)]


def pad_support(support_NK: Tensor, width: int) -> Tensor:
    """The same sets of ids in `width` columns, with -1 in the new ones."""
    return functional.pad(support_NK, (0, width - support_NK.shape[-1]), value=-1)


def _sample_chunk(
    logits_NV: Tensor, uniforms_N: Tensor, decoding: Decoding, forbidden: Sequence[int], store_support: bool
) -> Draws:
    logprobs_NV = token_logprobs(logits_NV, temperature=decoding.temperature, forbidden_ids=forbidden)
    _refuse_nan(logprobs_NV)
    support_NK = None
    if is_truncated(decoding):
        support_NK = truncation_support(logprobs_NV, top_p=decoding.top_p, top_k=decoding.top_k)
        logprobs_NV = token_logprobs(
            logits_NV, temperature=decoding.temperature, forbidden_ids=forbidden, support_ids_NK=support_NK
        )
    ids_N = logprobs_NV.argmax(-1) if decoding.temperature == 0 else draw(logprobs_NV, uniforms_N)
    return Draws(
        ids_N=ids_N,
        logprobs_N=logprobs_NV.gather(-1, ids_N[:, None]).squeeze(-1).float(),
        entropies_N=torch.special.entr(logprobs_NV.exp()).sum(-1).float(),
        support_NK=support_NK if store_support else None,
    )


def _refuse_nan(logprobs_NV: Tensor) -> None:
    """One bad logit makes its whole row NaN after the softmax, so one column tells."""
    bad_N = logprobs_NV[:, 0].isnan()
    if bool(bad_N.any()):
        raise NonFiniteError(
            f"the model's logits are not finite at {int(bad_N.sum())} of {len(bad_N)} positions; "
            "nothing can be sampled from them: check the weights, or compute in float32"
        )
