"""Statistics over denoising states, decoding blocks and other units of a group's rollouts."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from ..errors import ArgumentError, unknown_name
from .base import EstimatorBatch, refuse_unfit

Norm = Literal["joint", "state", "none"]

READ_OFF = (
    "none where the whole sequence is decoded at once with full attention, whose own logits hold the greedy "
    "completions; else one at each block border of each different beginning"
)
VERIFIED = "one for each different greedy completion of a problem"


def present(batch: EstimatorBatch, states: int) -> Tensor:
    """Which of that many states each valid rollout went through, bool [P, G, S]."""
    index_S = torch.arange(states, device=batch.num_states_PG.device)
    return (index_S < batch.num_states_PG.unsqueeze(-1)) & batch.valid_PG.unsqueeze(-1)


def state_rewards(batch: EstimatorBatch) -> Tensor:
    """`state_rewards_PGS` as float64 [P, G, S + 1]."""
    assert batch.state_rewards_PGS is not None
    return batch.state_rewards_PGS.double()


def gains(batch: EstimatorBatch) -> Tensor:
    """g_t = r_{t+1} - r_t, what each state's tokens added to the reward, float64 [P, G, S]; 0 behind the end.

    They telescope: sum_t g_t = R - r_0.
    """
    return state_rewards(batch).diff(dim=-1)


def discounted_to_go(values_PGS: Tensor, discount: float) -> Tensor:
    """sum_{k >= t} discount^(k - t) values_k.

    >>> discounted_to_go(torch.tensor([[[1.0, 2.0, 4.0]]]), 0.5).tolist()
    [[[3.0, 4.0, 4.0]]]
    """
    columns = [values_PGS[..., -1]] if values_PGS.shape[-1] else []
    for column in reversed(values_PGS.unbind(-1)[:-1]):
        columns.append(column + discount * columns[-1])
    return torch.stack(columns[::-1], dim=-1) if columns else values_PGS


def check_norm(norm: str) -> None:
    """Refuse an unknown norm.

    Raises:
        ArgumentError: names the allowed ones.
    """
    if norm not in get_args(Norm):
        raise ArgumentError(unknown_name("norm", norm, get_args(Norm)))


def normalised(values_PGS: Tensor, present_PGS: Tensor, norm: Norm, *, eps: float = 1e-4) -> Tensor:
    """(value - mean) / (std + eps) over the states of all rollouts together, or over the rollouts at each state.

    Standard deviations have ddof 1; what there are fewer than two of becomes 0. With "none" values stay as they are.
    """
    present_PGS = present_PGS.double()
    if norm == "none":
        return values_PGS * present_PGS
    over = (1, 2) if norm == "joint" else (1,)
    count = present_PGS.sum(over, keepdim=True)
    mean = (values_PGS * present_PGS).sum(over, keepdim=True) / count.clamp(min=1)
    difference_PGS = (values_PGS - mean) * present_PGS
    std = (difference_PGS.square().sum(over, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    return torch.where(count > 1, difference_PGS / (std + eps), 0.0)


def unit_means(values_PGL: Tensor, unit_PGL: Tensor, counted_PGL: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over the counted tokens of each unit, float64 [P, G, U], and which units have any, bool [P, G, U]."""
    unit_PGL, counted_PGL = unit_PGL.clamp(min=0), counted_PGL.double()
    units = int(unit_PGL.max()) + 1 if unit_PGL.numel() else 0
    empty_PGU = counted_PGL.new_zeros((*unit_PGL.shape[:2], units))
    count_PGU = empty_PGU.scatter_add(2, unit_PGL, counted_PGL)
    sum_PGU = empty_PGU.scatter_add(2, unit_PGL, values_PGL.double() * counted_PGL)
    return sum_PGU / count_PGU.clamp(min=1), count_PGU > 0


def highest(score: Tensor, among: Tensor, count: Tensor | int) -> Tensor:
    """The `count` units of highest score on the last axis, bool; ties go to the lowest index.

    Args:
        score: floating [..., U].
        among: bool [..., U], units that are there.
        count: of each row, a number or [..., 1].

    >>> highest(torch.tensor([1.0, 3.0, 3.0, 9.0]), torch.tensor([True, True, True, False]), 1).tolist()
    [False, True, False, False]
    """
    order = score.masked_fill(~among, -math.inf).sort(dim=-1, descending=True, stable=True).indices
    place = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    rank = torch.empty_like(order).scatter_(-1, order, place)
    return among & (rank < count)


def sums_of_equals(values: Tensor, labels: tuple[Tensor, ...], among: Tensor) -> tuple[Tensor, Tensor]:
    """Sum and number of the entries that share all labels with each entry, float64; 0 where not `among`.

    Args:
        values: float64 of any shape.
        labels: of that shape; entries are together if all their labels are equal.
        among: bool of that shape, entries that exist.
    """
    kind = torch.zeros_like(among, dtype=torch.int64)
    for label in labels:
        kinds, inverse = label.expand_as(among).unique(return_inverse=True)
        kind = (kind * len(kinds) + inverse).unique(return_inverse=True)[1]
    total = int(kind.max()) + 1 if kind.numel() else 0
    index, among = kind.flatten(), among.double()
    empty = among.new_zeros(total)
    sums = empty.index_add(0, index, (values * among).flatten())[index].view_as(among)
    counts = empty.index_add(0, index, among.flatten())[index].view_as(among)
    return sums * among, counts * among


def of_high_entropy(batch: EstimatorBatch, states: float) -> Tensor:
    """Tokens of each rollout's `states` states of highest mean entropy, bool [P, G, L]; ties go to the earlier state.

    A number below 1 is a share of the rollout's states, rounded up.
    """
    entropy_PGS, present_PGS = unit_means(batch.entropies_PGL, batch.state_PGL, batch.mask_PGL)
    count: Tensor | int = int(min(states, present_PGS.shape[2]))
    if states < 1:
        count = (states * present_PGS.sum(2, keepdim=True) - 1e-9).ceil()
    return highest(entropy_PGS, present_PGS, count).gather(2, batch.state_PGL.clamp(min=0))


def check_states(states: float) -> None:
    """Refuse a number of states that is none.

    Raises:
        ArgumentError: neither a count nor a share.
    """
    fit = 0 < states < 1 or (states >= 1 and states == int(states))
    refuse_unfit(fit, f"states is {states}; give a count of 1 or more, or a share below 1")
