"""The stream: golden values, uniformity, independence along every word of the key, and no memory of the batch."""

from __future__ import annotations

import math

import pytest
import torch

from steprs.errors import ArgumentError
from steprs.randomness import row_keys, uniforms

# Changing these changes what every recorded seed means.
GOLDEN_KEYS = [7505178172097645494, 4704953875741021103]
GOLDEN_KEY_OF_EVAL = -2575679089292985815
GOLDEN_UNIFORMS = [
    "0x1.4a6aee5ecfe6bp-1",
    "0x1.0d2f9627fdefep-2",
    "0x1.73b220e5895d3p-1",
    "0x1.bdf20e0030786p-2",
    "0x1.91ed899a157abp-1",
    "0x1.3f3fc22d9462bp-1",
]


def keys(count: int, *, seed: int = 0, purpose: str = "train", update: int = 1) -> torch.Tensor:
    index = torch.arange(count)
    return row_keys(seed, purpose, update, index // 16, index % 16)


def correlation(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1])


def test_golden_values():
    made = row_keys(0, "train", 1, torch.tensor([0, 0]), torch.tensor([0, 1]))
    assert made.tolist() == GOLDEN_KEYS
    assert row_keys(7, "eval", 123, torch.tensor([5]), torch.tensor([9])).tolist() == [GOLDEN_KEY_OF_EVAL]
    assert [value.hex() for value in uniforms(made, 2, torch.arange(3)).flatten().tolist()] == GOLDEN_UNIFORMS


def test_uniform_by_chi_square_of_each_of_256_bins():
    values = uniforms(keys(4096), 0, torch.arange(64)).flatten()
    counts = torch.histc(values, bins=256, min=0, max=1)
    statistic = float(((counts - values.numel() / 256) ** 2 / (values.numel() / 256)).sum())
    assert abs(statistic - 255) < 5 * math.sqrt(2 * 255)


def test_every_bit_of_the_mantissa_is_fair():
    integers = (uniforms(keys(2048), 3, torch.arange(32)).flatten() * 2**52).long()
    for bit in range(52):
        share = float(((integers >> bit) & 1).double().mean())
        assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(integers.numel()), bit


@pytest.mark.parametrize("axis", ["row", "rollout", "position", "step", "stream", "purpose", "update", "seed"])
def test_neighbours_along_every_word_are_independent(axis):
    base, places = keys(2048), torch.arange(32)
    values = uniforms(base, 5, places)
    others = {
        "row": lambda: uniforms(base.roll(16), 5, places),
        "rollout": lambda: uniforms(base.roll(1), 5, places),
        "position": lambda: uniforms(base, 5, places + 1),
        "step": lambda: uniforms(base, 6, places),
        "stream": lambda: uniforms(base, 5, places, stream=1),
        "purpose": lambda: uniforms(keys(2048, purpose="eval"), 5, places),
        "update": lambda: uniforms(keys(2048, update=2), 5, places),
        "seed": lambda: uniforms(keys(2048, seed=1), 5, places),
    }
    other = others[axis]()
    if axis == "position":
        values, other = values[:, ::2], other[:, ::2]
    bound = 5 / math.sqrt(values.numel())
    assert abs(correlation(values, other)) < bound
    assert abs(correlation((values - 0.5) ** 2, (other - 0.5) ** 2)) < bound
    assert not bool((values == other).any())


def test_words_do_not_stand_in_for_each_other():
    """(step 1, position 0) is not (step 0, position 1), nor prompt for rollout."""
    one, two = torch.tensor([1]), torch.tensor([2])
    assert row_keys(0, "a", 0, one, two).item() != row_keys(0, "a", 0, two, one).item()
    assert row_keys(1, "a", 2, one, one).item() != row_keys(2, "a", 1, one, one).item()
    key = row_keys(0, "a", 0, one, one)
    table = torch.stack([uniforms(key, step, torch.arange(64)).squeeze(0) for step in range(64)])
    assert table.unique().numel() == 64 * 64


def test_no_memory_of_batch_order_or_size():
    base, places = keys(64), torch.arange(16)
    values = uniforms(base, 4, places)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(uniforms(base[order], 4, places), values[order])
    assert torch.equal(uniforms(base[5:6], 4, places[3:7]), values[5:6, 3:7])
    mixed = torch.arange(64) % 3
    by_row = torch.cat([uniforms(base[row : row + 1], int(mixed[row]), places) for row in range(64)])
    assert torch.equal(uniforms(base, mixed, places), by_row)
    assert torch.equal(uniforms(base, 4, places.expand(64, -1)), values)


def test_ends_of_the_interval_cannot_occur():
    """The smallest and largest 52-bit integers map inside (0, 1)."""
    assert (0 + 0.5) * 2.0**-52 > 0
    assert ((2**52 - 1) + 0.5) * 2.0**-52 < 1
    values = uniforms(keys(4096), 0, torch.arange(256))
    assert 0 < float(values.min()) < 1e-5 and 1 - 1e-5 < float(values.max()) < 1


def test_global_generator_is_not_touched():
    before = torch.get_rng_state()
    uniforms(keys(8), 0, torch.arange(8))
    assert torch.equal(torch.get_rng_state(), before)


def test_one_index_a_row():
    with pytest.raises(ArgumentError, match="one of each for every row"):
        row_keys(0, "a", 0, torch.arange(3), torch.arange(2))
