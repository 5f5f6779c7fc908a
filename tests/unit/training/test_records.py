"""What an update logs by progress and pass rate, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from accelerate import Accelerator

from steprs.advantages import stepwise_advantages
from steprs.schedules import LinearSchedule
from steprs.training.records import Tally, grids
from steprs.types import Rewards, Verdict


@pytest.fixture(scope="module")
def accelerator():
    return Accelerator(cpu=True)


def rewards_of(rows):
    verdicts = tuple(
        Verdict(reward=r, status="right" if r else "wrong", answer_key=str(r)) for row in rows for r in row
    )
    values = torch.tensor(rows, dtype=torch.float64)
    return Rewards(rewards_PG=values, valid_PG=torch.ones_like(values).bool(), verdicts=verdicts, binary=True)


def test_rows_by_progress_are_means_over_counted_tokens(accelerator):
    tally = Tally()
    progress = torch.tensor([0.0, 0.19, 0.5, 1.0, 0.99])
    counted = torch.tensor([True, True, True, True, False])
    tally.by_progress(
        {"entropy": torch.tensor([1.0, 2.0, 4.0, 8.0, math.e]), "clip_frac": torch.tensor([1, 0, 0, 1, 1]).bool()},
        counted,
        progress,
    )
    # A second micro-batch adds one token to the first bin.
    tally.by_progress(
        {"entropy": torch.tensor([6.0]), "clip_frac": torch.tensor([False])}, torch.tensor([True]), torch.zeros(1)
    )
    record = tally.result(accelerator)
    assert record["tokens_by_progress"] == [3.0, 0.0, 1.0, 0.0, 1.0]
    assert record["entropy_by_progress"] == [3.0, None, 4.0, None, 8.0]
    assert record["clip_frac_by_progress"] == [pytest.approx(1 / 3), None, 0.0, None, 1.0]


def test_a_padding_batch_without_tokens_adds_nothing(accelerator):
    tally = Tally()
    empty = torch.zeros(0)
    tally.by_progress({"ratio": empty}, empty.bool(), empty)
    tally.by_progress({"ratio": torch.ones(2)}, torch.ones(2).bool(), torch.tensor([0.3, 0.3]))
    assert tally.result(accelerator)["ratio_by_progress"] == [None, 1.0, None, None, None]


def test_grids_by_hand(accelerator):
    # Pass rates 1/4 and 1 (dead); coefficients 2 at tau 0, 1 at 1/2, 0 at 1.
    rewards = rewards_of([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    progress = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64).expand(2, 4, 3)
    mask = torch.ones(2, 4, 3).bool()
    made = stepwise_advantages(rewards.rewards_PG, progress, LinearSchedule(2.0, 0.0), mask_PGL=mask)
    flat = (8, 3)
    found = grids(
        rewards,
        progress.reshape(flat),
        made.values_PGL.reshape(flat),
        made.risk_coef_PGL.reshape(flat),
        torch.ones(flat),
        accelerator,
    )
    scales = [math.expm1(b) / (b * (1 + math.expm1(b) / 4)) for b in (2.0, 1.0)] + [1.0]
    row = 1  # pass rate 1/4 lies in [0.2, 0.4)
    assert found["risk_coef_grid"][row] == [2.0, None, 1.0, None, 0.0]
    assert found["scale_grid"][row] == pytest.approx([scales[0], None, scales[1], None, scales[2]])
    assert found["mass_grid"][row] == pytest.approx(
        [scales[0] / sum(scales), None, scales[1] / sum(scales), None, 1 / sum(scales)]
    )
    others = [cell for name in found for r in (0, 2, 3, 4) for cell in found[name][r]]
    assert others == [None] * len(others), "a dead group is in no grid"
