"""Log-probabilities of a micro-batch, without ever holding its logits.

The head runs on scored positions only, a chunk of them at a time; each chunk's logits are recomputed in the backward
pass, so the largest tensor over the vocabulary has one chunk's rows whatever the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..errors import ArgumentError, ConfigError
from ..policies.base import Policy
from ..policies.distribution import forbidden_ids, picked_logprobs
from ..types import Decoding, Trajectory
from .plan import ScoringBatch
from .revised import RevisedBatch

HEAD_ELEMENTS = 2**24
"""Most logits alive at once: 64 MiB in float32, 132 rows of a vocabulary of 126,464."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenScores:
    """Scores of N tokens.

    Attributes:
        logprobs_N: differentiable, nats, under the distribution the tokens were sampled from.
        entropies_N: of that distribution, nats, detached.
        row_N, pos_N: rollout and completion position of each token.
        weight_N: importance weight; 1 unless states were drawn.
    """

    logprobs_N: Tensor
    entropies_N: Tensor
    row_N: Tensor
    pos_N: Tensor
    weight_N: Tensor


def score_batch(
    policy: Policy, trajectory: Trajectory, batch: ScoringBatch | RevisedBatch, *, head_elements: int = HEAD_ELEMENTS
) -> TokenScores:
    """Score one micro-batch of a plan.

    The distribution is the sampler's: its temperature (1 where it decoded greedily), no mask or padding token, and
    the stored support where it truncated. Truncation without a stored support is repeated on the scoring logits,
    which is right as long as the weights are the ones that sampled (see `check_scorable`).

    Args:
        policy: gradients flow into its weights.
        trajectory: the rollouts the plan was made from.
        batch: one element of the plan.
        head_elements: most logits to hold at once.

    Raises:
        ArgumentError: a stored support lacks the token that was sampled.
    """
    device = policy.device
    revised = batch.pack(trajectory) if isinstance(batch, RevisedBatch) else None
    packed = batch.pack() if isinstance(batch, ScoringBatch) else None
    rows = revised or packed
    assert rows is not None
    at = (rows.row_N, rows.pos_N)
    support_BLK = trajectory.support_ids_BLK
    score = _scorer(
        trajectory.decoding,
        trajectory.completion_ids_BL[at].to(device),
        None if support_BLK is None else support_BLK[at].to(device),
        forbidden_ids(policy),
        temperature_N=None if revised is None else revised.temperature_N.to(device),
    )

    def reduce(head: Callable[[Tensor], Tensor], hidden_NH: Tensor) -> Tensor:
        return _in_chunks(score, head, hidden_NH, max(1, head_elements // policy.vocab_size))

    if packed is None:
        assert revised is not None
        scores_N2 = policy.read_canvas(revised.states.to(device), reduce)
    else:
        scores_N2 = policy.logits(
            packed.ids_RT.to(device),
            attention_mask=packed.mask_R1TT.to(device),
            position_ids=packed.position_ids_RT.to(device),
            select_BT=packed.select_RT.to(device),
            reduce=reduce,
        )
    return TokenScores(
        logprobs_N=scores_N2[:, 0],
        entropies_N=scores_N2[:, 1].detach(),
        row_N=rows.row_N.to(device),
        pos_N=rows.pos_N.to(device),
        weight_N=rows.weight_N.to(device),
    )


def score_plan(policy: Policy, trajectory: Trajectory, plan: Iterable[ScoringBatch | RevisedBatch]) -> Tensor:
    """Log-probabilities of a whole plan as one differentiable [B, L]; 0 where a token was not scored."""
    parts = [score_batch(policy, trajectory, batch) for batch in plan]
    shape = trajectory.completion_ids_BL.shape
    if not parts:
        return torch.zeros(shape, device=policy.device)
    logprobs_N = torch.cat([part.logprobs_N for part in parts])
    at = (torch.cat([part.row_N for part in parts]), torch.cat([part.pos_N for part in parts]))
    return logprobs_N.new_zeros(shape).index_put(at, logprobs_N)


def check_scorable(trajectory: Trajectory, inner_updates: int) -> None:
    """Refuse what cannot be scored under the sampling distribution.

    Without a stored support, the truncation of a rollout can only be repeated under the weights that sampled it; the
    second inner update has others.

    Raises:
        ConfigError: truncated rollouts without a stored support and more than one inner update.
    """
    decoding = trajectory.decoding
    if inner_updates > 1 and trajectory.support_ids_BLK is None and _truncates(decoding):
        raise ConfigError(
            f"loss.inner_updates is {inner_updates} but the rollouts were truncated (top_p {decoding.top_p}, top_k "
            f"{decoding.top_k}) without storing what the truncation kept; sample with store_support=True, switch "
            "truncation off, or set loss.inner_updates to 1"
        )


def _truncates(decoding: Decoding) -> bool:
    return decoding.temperature > 0 and (decoding.top_p < 1.0 or decoding.top_k > 0)


def _scorer(
    decoding: Decoding,
    token_N: Tensor,
    support_NK: Tensor | None,
    forbidden: tuple[int, ...],
    temperature_N: Tensor | None = None,
) -> Callable[[Tensor, slice], Tensor]:
    """A function from logits of some of the tokens to [n, 2]: log-probability and entropy.

    With `temperature_N` each token has a temperature of its own, and the one of `decoding` counts no more.
    """
    if support_NK is not None and not bool((support_NK == token_N[:, None]).any(-1).all()):
        raise ArgumentError("a stored support lacks the token that was sampled from it; store it with the rollout")
    repeat = support_NK is None and _truncates(decoding)

    def score(logits_NV: Tensor, part: slice) -> Tensor:
        if temperature_N is not None:
            logits_NV = logits_NV / temperature_N[part, None]
        return picked_logprobs(
            logits_NV,
            token_N[part],
            temperature=decoding.temperature if temperature_N is None else 1.0,
            forbidden_ids=forbidden,
            support_ids_NK=None if support_NK is None else support_NK[part],
            top_p=decoding.top_p if repeat else 1.0,
            top_k=decoding.top_k if repeat else 0,
        )

    return score


def _in_chunks(
    score: Callable[[Tensor, slice], Tensor], head: Callable[[Tensor], Tensor], hidden_NH: Tensor, rows: int
) -> Tensor:
    """`score(head(hidden))`, at most `rows` rows of logits alive at a time."""

    def run(hidden: Tensor, part: slice) -> Tensor:
        return score(head(hidden), part)

    total = hidden_NH.shape[0]
    if total <= rows:
        return run(hidden_NH, slice(0, total))
    parts = [slice(start, min(start + rows, total)) for start in range(0, total, rows)]
    if not torch.is_grad_enabled():
        return torch.cat([run(hidden_NH[part], part) for part in parts])
    return torch.cat([checkpoint(run, hidden_NH[part], part, use_reentrant=False) for part in parts])
