"""The group-relative score of each row, before any coefficient acts: grouping, standardising, statistics by row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..controls import CONTROLS, RMS_MATCHES, AllReduce, Control, Groups, RmsMatch, distinct
from ..errors import ArgumentError, NormalisationError, unknown_name
from ..risk import Baseline, check_baseline, group_score
from ..schedules import AbstractSchedule

Base = Literal["centred", "standardised"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The choices that the public functions share, checked against each other."""

    control: Control
    rms_match: RmsMatch | None
    base: Base
    baseline: Baseline
    cap: float | None
    std_ddof: int
    reference_pass_rate: float | None
    seed: int | None
    all_reduce: AllReduce | None

    def __post_init__(self) -> None:
        if self.control not in CONTROLS:
            raise ArgumentError(unknown_name("control", self.control, CONTROLS))
        if self.rms_match is not None and self.rms_match not in RMS_MATCHES:
            raise ArgumentError(unknown_name("rms_match", self.rms_match, RMS_MATCHES))
        check_baseline(self.baseline, self.cap)
        if self.baseline != "group" and self.control not in ("full", "centred"):
            raise ArgumentError(
                f"control {self.control!r} matches the mass of the group normaliser; use it with baseline='group'"
            )
        if str(self.base) == "standardised-after":
            standardise(Score(values_PG=torch.empty(0), weighted=True), torch.empty(0))
        if self.base not in ("centred", "standardised"):
            raise ArgumentError(unknown_name("base", self.base, ("centred", "standardised")))
        if self.control == "constant" and self.reference_pass_rate is None:
            raise ArgumentError("control 'constant' needs reference_pass_rate, the base policy's pass rate")
        if self.control.startswith("shuffle") and self.seed is None:
            raise ArgumentError(f"control {self.control!r} needs seed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """A group-relative score and whether a weight such as c(p, b) is already in it."""

    values_PG: Tensor
    weighted: bool = False


def standardise(score: Score, rewards_PG: Tensor, *, ddof: int = 1, eps: float = 1e-4) -> Score:
    """Divide by the standard deviation of the group's rewards plus eps, as GRPO does (TRL: ddof 1, eps 1e-4).

    Raises:
        NormalisationError: the score is already weighted. For two-valued rewards any rescaling of a group after the
            transformation cancels c(p, b) exactly and gives plain GRPO back.

    >>> rewards = torch.tensor([[1.0, 0.0]])
    >>> standardise(Score(values_PG=rewards - rewards.mean(), weighted=True), rewards)
    Traceback (most recent call last):
    ...
    steprs.errors.NormalisationError: the score is already weighted: dividing by the group's standard deviation now \
would cancel c(p, b) exactly and leave plain GRPO; standardise the score first (base='standardised') or not at all
    """
    if score.weighted:
        raise NormalisationError(
            "the score is already weighted: dividing by the group's standard deviation now would cancel c(p, b) "
            "exactly and leave plain GRPO; standardise the score first (base='standardised') or not at all"
        )
    return Score(values_PG=score.values_PG / (rewards_PG.std(1, correction=ddof, keepdim=True) + eps))


def grouped(ids_B: Tensor, valid_B: Tensor | None) -> Groups:
    """Groups of equal ids; rows that are not valid, or alone with a valid row's id, are in no block."""
    names, index_B = distinct(ids_B)
    sizes_P = torch.bincount(index_B, minlength=names.numel())
    if valid_B is None:
        valid_B = torch.ones_like(index_B, dtype=torch.bool)
        if bool((sizes_P == 1).any()):
            alone = int(names[(sizes_P == 1).nonzero()[0, 0]])
            raise ArgumentError(
                f"group {alone} has one row; a group needs >= 2 rollouts to be compared, set group_size >= 2"
            )
    valid_B = valid_B.to(index_B.device)
    sizes_P = torch.bincount(index_B[valid_B], minlength=names.numel())
    order_N = torch.argsort(torch.where(valid_B, index_B, names.numel()), stable=True)
    starts_P = sizes_P.cumsum(0) - sizes_P
    blocks = []
    for size in sorted({size for size in sizes_P.tolist() if size >= 2}):
        starts_G = starts_P[sizes_P == size].unsqueeze(1)
        blocks.append(order_N[starts_G + torch.arange(size, device=index_B.device)])
    return Groups(index_B=index_B, count=names.numel(), blocks=tuple(blocks))


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Statistics of the groups, laid out by row; float64 unless said otherwise. Rows in no block keep the neutral fill.

    `score` is the centred reward over `sigma`; `live` (bool) rows have a non-zero score somewhere in their group;
    `general` (bool) rows are in groups that are not two-valued.
    """

    score_B: Tensor
    rate_B: Tensor
    share_B: Tensor
    width_B: Tensor
    sigma_B: Tensor
    bound_B: Tensor
    live_B: Tensor
    general_B: Tensor

    def share_for(self, schedule: AbstractSchedule, part: slice) -> Tensor | None:
        """Observed pass rates [R, 1] where the schedule looks at them."""
        if not schedule.uses_pass_rate:
            return None
        share_R = self.share_B[part]
        if not bool(((share_R >= 0) & (share_R <= 1) | ~self.general_B[part]).all()):
            raise ArgumentError(
                "the schedule uses the observed pass rate, but a group of graded rewards has its mean outside [0, 1]; "
                "rescale the rewards into [0, 1]"
            )
        # A group of equal rewards outside [0, 1] has no pass rate, and no advantage either.
        return share_R.clamp(0, 1).unsqueeze(1)

    @staticmethod
    def of(rewards_B: Tensor, groups: Groups, options: Options) -> Rows:
        """Fill block by block, so that equal groups give equal bits wherever their rows stand."""
        zeros_B = torch.zeros_like(rewards_B)
        rows = Rows(
            score_B=zeros_B.clone(), rate_B=zeros_B + 0.5, share_B=zeros_B.clone(), width_B=zeros_B + 1,
            sigma_B=zeros_B + 1, bound_B=zeros_B + math.inf, live_B=zeros_B.bool(), general_B=zeros_B.bool(),
        )  # fmt: skip
        for rows_PG in groups.blocks:
            rewards_PG = rewards_B[rows_PG]
            group = group_score(rewards_PG, options.baseline)
            score = Score(values_PG=group.centred_PG)
            if options.base == "standardised":
                rows.sigma_B[rows_PG] = rewards_PG.std(1, correction=options.std_ddof, keepdim=True) + 1e-4
                score = standardise(score, rewards_PG, ddof=options.std_ddof)
            rows.score_B[rows_PG] = score.values_PG
            rows.rate_B[rows_PG] = group.pass_rate_PG
            rows.share_B[rows_PG] = group.share_PG
            rows.width_B[rows_PG] = group.width_P1.expand_as(rewards_PG)
            rows.live_B[rows_PG] = (group.width_P1 > 0).expand_as(rewards_PG)
            rows.general_B[rows_PG] = ~group.two_valued_P.unsqueeze(1).expand_as(rewards_PG)
            if options.baseline == "leave-one-out":
                bound = rows_PG.shape[1] - 1.0 if options.cap is None else options.cap
                rows.bound_B[rows_PG] = bound / rows.sigma_B[rows_PG]
        return rows
