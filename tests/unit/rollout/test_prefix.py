"""The prefix cache against transformers' own, and what it holds while a group is decoded."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from transformers import DynamicCache

from steprs.rollout import block
from steprs.rollout.prefix import PrefixCache

from .helpers import decoding, sample
from .stand_in import TablePolicy

HEADS, WIDTH, LAYERS = 2, 3, 2


def states(generator: torch.Generator, rows: int, length: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    shape = (rows, HEADS, length, WIDTH)
    return [
        (torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)) for _ in range(LAYERS)
    ]  # fmt: skip


def append(cache: DynamicCache, new: list[tuple[torch.Tensor, torch.Tensor]]) -> list[torch.Tensor]:
    return [part for layer, pair in enumerate(new) for part in cache.update(*pair, layer)]


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_uses_reads_what_the_dynamic_cache_reads(seed: int) -> None:
    """Appended, cropped, rows dropped, repeated and reordered; buffers grow several times."""
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    ours, theirs, rows = PrefixCache(), DynamicCache(), 3
    for _ in range(30):
        new = states(generator, rows, rng.randint(1, 120))
        for one, other in zip(append(ours, new), append(theirs, new), strict=True):
            assert torch.equal(one, other)
        if rng.random() < 0.6:
            count = rng.randint(1, min(60, theirs.get_seq_length() - 1))
            ours.crop(-count), theirs.crop(-count)
        if rng.random() < 0.3:
            index = torch.tensor([rng.randrange(rows) for _ in range(rng.randint(1, 4))])
            rows = len(index)
            ours.batch_select_indices(index), theirs.batch_select_indices(index)
        assert ours.get_seq_length() == theirs.get_seq_length()


def test_a_step_and_its_removal_move_no_key() -> None:
    generator, cache = torch.Generator().manual_seed(0), PrefixCache()
    append(cache, states(generator, 2, 300))
    places = [layer.keys.data_ptr() for layer in cache.layers]
    kept = cache.layers[0].keys[:, :, :300].clone()
    for _ in range(5):
        read, _ = cache.update(*states(generator, 2, 4)[0], 0)
        assert read.shape[2] == 304 and read.data_ptr() == places[0], "a view of the buffer, not a copy"
        cache.layers[0].crop(-4)
    assert [layer.keys.data_ptr() for layer in cache.layers] == places
    assert torch.equal(cache.layers[0].keys[:, :, :300], kept)


def test_other_rows_are_read_and_nothing_is_left_behind() -> None:
    generator, cache = torch.Generator().manual_seed(0), PrefixCache()
    old = append(cache, states(generator, 3, 5))
    index, new = torch.tensor([2, 0, 2, 1]), states(generator, 4, 2)
    cache.read_rows(index)
    for before, pair, after in zip(old, itertools.chain(*new), append(cache, new), strict=True):
        assert torch.equal(after, torch.cat([before[index], pair], dim=2))
    cache.read_rows(None)
    assert cache.get_seq_length() == 5
    more = states(generator, 3, 1)
    for before, pair, after in zip(old, itertools.chain(*more), append(cache, more), strict=True):
        assert torch.equal(after, torch.cat([before, pair], dim=2))


def test_a_prompt_is_held_once_until_its_rollouts_part_and_ended_rollouts_take_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[PrefixCache] = []
    held: list[tuple[int, int]] = []

    class Watched(PrefixCache):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    class Policy(TablePolicy):
        def logits(self, ids_BT, **arguments):  # type: ignore[no-untyped-def]
            result = super().logits(ids_BT, **arguments)
            held.append((arguments["attention_mask"].shape[-1], made[0].layers[0].keys.shape[0]))
            return result

    monkeypatch.setattr(block, "PrefixCache", Watched)
    policy = Policy(attention="block_causal", block_size=4, eos_bias=-0.7)
    trajectory = sample(policy, decoding("block", 16, 16, 4), [[3, 4, 5, 6, 3], [4, 6]], 12)
    alive = [int((trajectory.num_steps_B > 4 * number).sum()) for number in range(4)]
    # Prompts of five columns, read with the first block; then a row for each different prefix.
    assert {rows for columns, rows in held if columns == 5 + 4} == {2}
    for number in range(1, 4):
        canvas = torch.cat([trajectory.prompt_ids_BC, trajectory.completion_ids_BL[:, : 4 * number]], dim=1)
        different = len(canvas[trajectory.num_steps_B > 4 * number].unique(dim=0))
        assert {rows for columns, rows in held if columns == 5 + 4 * (number + 1)} == {different}
        assert different <= alive[number]
    assert 0 < alive[-1] < alive[0] == 24
    assert made[0].nbytes == 2 * held[-1][1] * 256 * 6 * 8, "keys and values of one layer, six numbers of eight bytes"
