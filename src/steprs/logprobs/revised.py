"""Rollouts that revised their tokens, scored in the recorded states that last fixed each of them.

A state of a revised canvas is more than the tokens shown in it: it is conditioned on what the policy said in the state
before (self-conditioning). The canvases alone do not rebuild that. Replaying the whole chain would, but a chain
amplifies rounding: a difference of 1e-6 in one state can be one of 1e-1 ten states later. So the conditioning of the
states that matter is part of the record, and each of them is read by itself, whatever else is in the micro-batch.

The ratio of two policies is then that of their probabilities in the same state, conditioning included; no gradient
flows into it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ArgumentError, ConfigError
from ..policies.base import Policy
from ..policies.canvas_states import CanvasStates, canvas_behind
from ..policies.distribution import canvas_temperatures
from ..types import Revisions, Trajectory

RATIO_TOLERANCE = 1e-4
"""Largest gap, in nats (relative beyond one nat), between recorded log-probabilities and those of the scoring."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RevisedRows:
    """One model input, and the tokens read off it, state after state and row-major inside a state.

    Attributes:
        states: what the model reads.
        row_N, pos_N: int64, rollout and completion position of each token.
        weight_N: float32 importance weight.
        temperature_N: of the step that drew it.
    """

    states: CanvasStates
    row_N: Tensor
    pos_N: Tensor
    weight_N: Tensor
    temperature_N: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class RevisedBatch:
    """States of some canvases that go through the model together.

    Attributes:
        row_R, canvas_R: int64, rollout and number of each canvas.
        kept_RS: int64, the states of each, by their place in `Revisions.kept_step_BK`; -1 where a row has fewer.
        context: clean positions of the longest row.
        scored_BL: bool, the tokens to score, of all rollouts.
        weight_B: float32 importance weights, of all rollouts.
    """

    row_R: Tensor
    canvas_R: Tensor
    kept_RS: Tensor
    context: int
    scored_BL: Tensor
    weight_B: Tensor

    def pack(self, trajectory: Trajectory) -> RevisedRows:
        """Gather clean text, canvases, conditioning and scored tokens."""
        revisions, width = revisions_of(trajectory), trajectory.decoding.block_size
        row_R1, place_RS = self.row_R[:, None], self.kept_RS.clamp(min=0)
        # A padding state repeats the row's first kept one; nothing is read off it.
        step_RS = revisions.kept_step_BK[row_R1, place_RS].clamp(min=0)
        position_RW = self.canvas_R[:, None] * width + torch.arange(width, device=self.row_R.device)
        wanted_RW = self.scored_BL[row_R1, position_RW]
        drawn_RSW = trajectory.unmask_step_BL[row_R1, position_RW][:, None] == step_RS[:, :, None]
        select_RSW = drawn_RSW & wanted_RW[:, None] & (self.kept_RS >= 0)[:, :, None]
        state_N, row_N, column_N = select_RSW.transpose(0, 1).nonzero(as_tuple=True)
        first_R = revisions.first_step_BN[self.row_R, self.canvas_R]
        temperatures = torch.tensor(canvas_temperatures(trajectory.decoding), device=state_N.device)
        clean_ids_RC, clean_valid_RC = self._clean(trajectory)
        return RevisedRows(
            states=canvas_behind(
                clean_ids_RC, clean_valid_RC, revisions.canvas_BSW[row_R1, step_RS].long().clamp(min=0),
                conditioning_RSWH=revisions.conditioning_BKWH[row_R1, place_RS], select_RSW=select_RSW,
            ),
            row_N=self.row_R[row_N],
            pos_N=position_RW[row_N, column_N],
            weight_N=self.weight_B[self.row_R[row_N]],
            temperature_N=temperatures[step_RS[row_N, state_N] - first_R[row_N]],
        )  # fmt: skip

    def _clean(self, trajectory: Trajectory) -> tuple[Tensor, Tensor]:
        """Prompt and finished canvases of each row, left-padded to `context` positions."""
        end_R1 = trajectory.prompt_ids_BC.shape[1] + self.canvas_R[:, None] * trajectory.decoding.block_size
        source_RC = end_R1 - self.context + torch.arange(self.context, device=end_R1.device)
        ids_RT = torch.cat((trajectory.prompt_ids_BC, trajectory.completion_ids_BL), dim=1)[self.row_R]
        real_BL = torch.ones_like(trajectory.completion_mask_BL)
        valid_RT = torch.cat((trajectory.prompt_mask_BC, real_BL), dim=1)[self.row_R]
        inside_RC = source_RC.clamp(min=0)
        return ids_RT.gather(1, inside_RC), valid_RT.gather(1, inside_RC) & (source_RC >= 0)


def plan_revised(
    trajectory: Trajectory, policy: Policy, scored_BL: Tensor, weight_B: Tensor, token_budget: int
) -> list[RevisedBatch]:
    """Micro-batches that score every token of `scored_BL` exactly once, canvases of many states first.

    Args:
        trajectory: with revisions.
        policy: with canvas attention.
        scored_BL: bool, completion tokens to score.
        weight_B: float32 importance weight of each rollout's scored tokens.
        token_budget: most positions of one forward, clean text and states together; one state that is larger is a
            batch of its own.

    Raises:
        ArgumentError: the budget is below 1, or the policy has another attention or canvas.
        ConfigError: the policy computes in half precision.
    """
    if token_budget < 1:
        raise ArgumentError(f"token_budget is {token_budget}; give the number of positions one forward may hold, >= 1")
    width = trajectory.decoding.block_size
    if policy.attention != "canvas" or policy.block_size != width:
        raise ArgumentError(
            f"the rollouts revised canvases of {width} tokens, but this policy's attention is {policy.attention} with "
            f"block size {policy.block_size}; score with the policy that decoded them"
        )
    check_precision(policy)
    device = scored_BL.device
    batches = []
    for part in _groups(_units(trajectory, scored_BL, token_budget), width, token_budget):
        states = max(len(unit.kept) for unit in part)
        kept = [[*unit.kept, *[-1] * (states - len(unit.kept))] for unit in part]
        batches.append(
            RevisedBatch(
                row_R=torch.tensor([unit.row for unit in part], device=device),
                canvas_R=torch.tensor([unit.canvas for unit in part], device=device),
                kept_RS=torch.tensor(kept, device=device),
                context=max(unit.context for unit in part),
                scored_BL=scored_BL,
                weight_B=weight_B,
            )
        )
    return batches


def empty_revised(trajectory: Trajectory) -> RevisedBatch:
    """A batch that scores nothing: one state of the first rollout, whose loss is an empty sum (see `pad_plan`)."""
    zero_1 = torch.zeros(1, dtype=torch.int64, device=trajectory.completion_ids_BL.device)
    return RevisedBatch(
        row_R=zero_1,
        canvas_R=zero_1,
        kept_RS=zero_1[:, None],
        context=trajectory.prompt_ids_BC.shape[1],
        scored_BL=torch.zeros_like(trajectory.completion_mask_BL),
        weight_B=torch.zeros_like(trajectory.num_steps_B, dtype=torch.float32),
    )


def revisions_of(trajectory: Trajectory) -> Revisions:
    """The record of the states.

    Raises:
        ArgumentError: there is none, as in rollouts that were stored for weighing alone.
    """
    if trajectory.revisions is None:
        raise ArgumentError("these rollouts have no record of revisions, so their states cannot be rebuilt")
    return trajectory.revisions


def check_precision(policy: Policy) -> None:
    """Refuse half precision, in which the same state gives other numbers in another batch.

    Raises:
        ConfigError: names the setting.
    """
    if policy.compute_dtype != torch.float32:
        raise ConfigError(
            f"policy.dtype is {str(policy.compute_dtype).removeprefix('torch.')}, in which scoring a revised rollout "
            "does not give the log-probabilities it was sampled with, so the ratio would not be 1; set "
            "policy.dtype=float32"
        )


def check_ratio(scored_N: Tensor, sampled_N: Tensor) -> None:
    """Refuse to train on revised rollouts that the very weights that sampled them score otherwise.

    Args:
        scored_N: log-probabilities of the scoring forward, nats.
        sampled_N: those recorded with the rollout.

    Raises:
        ConfigError: says by how much, and what may be the cause.
    """
    gap_N = (scored_N - sampled_N).abs() / sampled_N.abs().clamp(min=1.0)
    worst = float(gap_N.max()) if len(gap_N) else 0.0
    if not worst <= RATIO_TOLERANCE:
        raise ConfigError(
            f"scoring the revised rollouts gives log-probabilities that differ from the sampled ones by up to "
            f"{worst:.1e} (allowed: {RATIO_TOLERANCE:.0e}), so the ratio is not 1 and no step was made. Compute in "
            "float32 and switch TF32 off; an expert chosen by a hair's breadth may also change between two batches"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unit:
    """States of one canvas with tokens to score: rollout, number, clean positions, places among the kept steps."""

    row: int
    canvas: int
    context: int
    kept: tuple[int, ...]


def _units(trajectory: Trajectory, scored_BL: Tensor, token_budget: int) -> list[_Unit]:
    """Canvases with something to score, cut where their states exceed the budget; many states first."""
    kept_step_BK, width = revisions_of(trajectory).kept_step_BK, trajectory.decoding.block_size
    row_N, pos_N = scored_BL.nonzero(as_tuple=True)
    match_NK = kept_step_BK[row_N] == trajectory.unmask_step_BL[row_N, pos_N][:, None]
    if not bool(match_NK.any(1).all()):
        raise ArgumentError("a token to score was fixed in a step whose conditioning was not kept")
    triples = torch.stack((row_N, pos_N // width, match_NK.int().argmax(1)), dim=1).unique(dim=0)
    found: dict[tuple[int, int], list[int]] = {}
    for row, canvas, place in triples.tolist():
        found.setdefault((row, canvas), []).append(place)
    prompts = trajectory.prompt_mask_BC.sum(1).tolist()
    units = []
    for (row, canvas), places in found.items():
        context = prompts[row] + canvas * width
        most = max(1, (token_budget - context) // width)
        # Pieces of equal size leave less padding than full ones and a rest.
        each = -(-len(places) // -(-len(places) // most))
        for start in range(0, len(places), each):
            units.append(_Unit(row=row, canvas=canvas, context=context, kept=tuple(places[start : start + each])))
    return sorted(units, key=lambda unit: (-len(unit.kept), -unit.context, unit.row))


def _groups(units: list[_Unit], width: int, token_budget: int) -> Iterator[list[_Unit]]:
    """Runs of units that fit into one forward, each padded to the most states and the longest context of its run."""
    part: list[_Unit] = []
    for unit in units:
        context = max([unit.context, *(other.context for other in part)])
        if part and (len(part) + 1) * (context + len(part[0].kept) * width) > token_budget:
            yield part
            part = []
        part.append(unit)
    if part:
        yield part
