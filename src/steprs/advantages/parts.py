"""The factored form of every advantage: sequence score x token weight x state weight + state term, then a mask.

    A[i, l] = S[i] * w[i, l] * W[i, s(l)] + D[i, s(l)], bounded, then kept or not; s(l) is the state that revealed l

StepRS-GRPO is S = r - p with the weight c(p, b(tau)); its neighbours fill other places of the same form.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..errors import ArgumentError, NormalisationError, unknown_name

Normalise = Literal["none", "group-std"]
# Elements of one pass on a CPU: a few float64 temporaries of this size stay in the second-level cache.
CHUNK = 1 << 15


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvantageParts:
    """What an estimator makes of the rollouts of an update, before it is laid out over tokens.

    The leading axes `...` are [P, G], or [B] in flat form. A state axis of length 1 holds one value for all states.

    Attributes:
        sequence: float64 [...], the score S of a rollout.
        token_weight: float64 [..., L], w; None is 1.
        state_weight: float64 [..., S], W; None is 1.
        state_add: float64 [..., S], D; None is 0.
        keep: bool [..., L], tokens that have an advantage at all; None keeps all.
        bound: float64 [...], largest |A| of the rollout's tokens; None bounds nothing.
        weighted: whether S already holds a weight that depends on the group's rewards, as c(p, b) does. What is
            weighted is never normalised afterwards.
        unweighted: float64 [...], the score before any weight, which RMS matching takes for its measure; None is the
            centred reward.
        risk_coef: float64 [..., L], the risk coefficient each token was treated with, for records; None is 0.
    """

    sequence: Tensor
    token_weight: Tensor | None = None
    state_weight: Tensor | None = None
    state_add: Tensor | None = None
    keep: Tensor | None = None
    bound: Tensor | None = None
    weighted: bool = False
    unweighted: Tensor | None = None
    risk_coef: Tensor | None = None

    def with_lead(self, *lead: int) -> AdvantageParts:
        """The same parts under other leading axes, e.g. [P, G] in place of [B]."""
        count, changed = self.sequence.numel(), dict[str, Any]()
        for entry in dataclasses.fields(self):
            tensor = getattr(self, entry.name)
            if isinstance(tensor, Tensor):
                tail = () if entry.name in ("sequence", "bound", "unweighted") else tensor.shape[-1:]
                changed[entry.name] = tensor.reshape(*lead, *tail) if count else tensor.new_zeros((*lead, *tail))
        return dataclasses.replace(self, **changed)


def expand(parts: AdvantageParts, state: Tensor, mask: Tensor, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """One advantage a token: [..., L] of `dtype`, computed in float64, 0 outside the mask.

    Args:
        parts: of rollouts with the leading axes of `state`.
        state: int64 [..., L], the state that revealed each token; -1 where never, which the mask leaves out.
        mask: bool [..., L], tokens that count.
        dtype: of the result.

    Returns:
        The advantages. Rows keep their bits wherever they stand in the batch.

    Raises:
        ArgumentError: shapes that do not fit, or a counted token without a state where one is asked for.

    >>> parts = AdvantageParts(sequence=torch.tensor([0.5]).double(), state_weight=torch.tensor([[2.0, 0.0]]).double())
    >>> expand(parts, torch.tensor([[1, 0, -1]]), torch.tensor([[True, True, False]])).tolist()
    [[0.0, 1.0, 0.0]]
    """
    return expand_counting(parts, state, mask, dtype=dtype)[0]


def expand_counting(
    parts: AdvantageParts, state: Tensor, mask: Tensor, *, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, int]:
    """`expand`, and how many tokens hit their bound."""
    _check(parts, state, mask)
    shape, count = state.shape, parts.sequence.numel()
    flat, length = parts.with_lead(count), shape[-1]
    state_BL, mask_BL = state.reshape(count, length), mask.reshape(count, length)
    values_BL = torch.empty((count, length), dtype=dtype, device=state.device)
    step = count if state.device.type != "cpu" else max(1, CHUNK // max(1, length))
    hits = 0
    for start in range(0, count, max(1, step)):
        rows = slice(start, min(count, start + step))
        values_BL[rows], capped = _expand_rows(flat, rows, state_BL[rows], mask_BL[rows])
        hits += capped
    return values_BL.view(shape), hits


def _expand_rows(parts: AdvantageParts, rows: slice, state: Tensor, mask: Tensor) -> tuple[Tensor, int]:
    value = parts.sequence[rows].unsqueeze(1)
    if parts.token_weight is not None:
        value = value * parts.token_weight[rows]
    if parts.state_weight is not None:
        value = value * _at_state(parts.state_weight[rows], state)
    if parts.state_add is not None:
        value = value + _at_state(parts.state_add[rows], state)
    value = value.expand(mask.shape)
    hits = 0
    if parts.bound is not None and bool(torch.isfinite(parts.bound[rows]).any()):
        bound = parts.bound[rows].unsqueeze(1)
        hits = int(((value.abs() > bound) & mask).sum())
        value = torch.minimum(torch.maximum(value, -bound), bound)
    if parts.keep is not None:
        mask = mask & parts.keep[rows]
    # Adding 0 turns -0 into 0; multiplying is several times faster than filling, and what is masked is finite.
    return (value * mask.double()).add_(0.0), hits


def _at_state(values_RS: Tensor, state_RL: Tensor) -> Tensor:
    """The value of each token's state; a single state stands for all."""
    return values_RS if values_RS.shape[1] == 1 else values_RS.gather(1, state_RL.clamp(min=0))


def _check(parts: AdvantageParts, state: Tensor, mask: Tensor) -> None:
    lead, length = tuple(parts.sequence.shape), state.shape[-1]
    if tuple(state.shape[:-1]) != lead or state.shape != mask.shape:
        raise ArgumentError(
            f"state {list(state.shape)} and mask {list(mask.shape)} must both be {[*lead, 'L']}, as the sequence score"
        )
    for name in ("token_weight", "keep"):
        given = getattr(parts, name)
        if given is not None and given.shape != state.shape:
            raise ArgumentError(f"{name} has shape {list(given.shape)}; {[*lead, length]} is needed")
    for name in ("state_weight", "state_add"):
        given = getattr(parts, name)
        if given is None:
            continue
        if tuple(given.shape[:-1]) != lead:
            raise ArgumentError(f"{name} has shape {list(given.shape)}; {[*lead, 'S']} is needed")
        if given.shape[-1] == 1:
            continue
        if bool((mask & ((state < 0) | (state >= given.shape[-1]))).any()):
            raise ArgumentError(
                f"{name} has {given.shape[-1]} states, but a counted token was revealed in state "
                f"{int(state.masked_fill(~mask, 0).max())} or never; give every state a value"
            )


def normalise(
    parts: AdvantageParts, rewards_PG: Tensor, how: Normalise, *, valid_PG: Tensor | None = None
) -> AdvantageParts:
    """The explicit stage that divides by the standard deviation of a group's rewards (ddof 1, + 1e-4), or not.

    Raises:
        NormalisationError: the parts are weighted already. For two-valued rewards a group scaled to unit spread after
            a reweighting is plain GRPO again, to the last digit.
        ArgumentError: an unknown stage.
    """
    if how not in get_args(Normalise):
        raise ArgumentError(unknown_name("normalisation", how, get_args(Normalise)))
    if how == "none":
        return parts
    if parts.weighted or parts.state_weight is not None or parts.token_weight is not None:
        raise NormalisationError(
            "the advantage is already weighted: dividing it by its own spread in the group would cancel the weight and "
            "leave plain GRPO, dividing by that of the rewards would weigh it twice; set advantage.normalise=none"
        )
    sigma_P1 = group_std(rewards_PG, valid_PG) + 1e-4
    add = None if parts.state_add is None else parts.state_add / sigma_P1.unsqueeze(-1)
    return dataclasses.replace(parts, sequence=parts.sequence / sigma_P1, state_add=add)


def group_std(rewards_PG: Tensor, valid_PG: Tensor | None = None, *, ddof: int = 1) -> Tensor:
    """Standard deviation of each group's valid rewards, float64 [P, 1]; 0 where fewer than two are valid."""
    rewards_PG = rewards_PG.double()
    valid_PG = torch.ones_like(rewards_PG) if valid_PG is None else valid_PG.double()
    count_P1 = valid_PG.sum(1, keepdim=True)
    mean_P1 = (rewards_PG * valid_PG).sum(1, keepdim=True) / count_P1.clamp(min=1)
    squares_P1 = ((rewards_PG - mean_P1).square() * valid_PG).sum(1, keepdim=True)
    return (squares_P1 / (count_P1 - ddof).clamp(min=1)).sqrt()
