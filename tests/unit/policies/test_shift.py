"""Which row scores a position, against the definition written out, and what cannot be scored."""

import itertools

import pytest
import torch

from steprs.errors import ArgumentError
from steprs.policies.attention import block_causal_mask, full_mask, packed_mask
from steprs.policies.base import count_before
from steprs.policies.shift import rows_before


def test_the_position_before_in_a_packed_row_by_definition():
    generator = torch.Generator().manual_seed(3)
    block = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 1, 1, 2, 2, 2, 2]]).expand(2, -1)
    stream = torch.tensor([[0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3]]).expand(2, -1)
    position = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 3, 4, 5, 6, 5, 6]]).expand(2, -1)
    mask = packed_mask(block, stream, torch.ones(2, 13, dtype=torch.bool))
    select = torch.rand(2, 13, generator=generator) < 0.7
    expected = []
    for b, t in itertools.product(range(2), range(13)):
        if select[b, t]:
            before = [s for s in range(13) if mask[b, 0, t, s] and position[b, s] == position[b, t] - 1]
            assert len(before) == (position[b, t] > 0)
            expected.append(13 * b + (before or [t])[0])
    assert rows_before(mask, position, select).tolist() == expected
    assert torch.equal(rows_before(mask, position, None).flatten()[select.flatten()], torch.tensor(expected))


def test_the_first_real_token_of_a_padded_row_keeps_its_own_row():
    valid = torch.tensor([[False, False, True, True], [True, True, True, True]])
    assert rows_before(full_mask(valid), count_before(valid), None).tolist() == [[0, 1, 2, 2], [4, 4, 5, 6]]


def test_one_mask_stands_for_all_rows_and_the_cached_columns_come_first():
    mask = torch.cat((torch.ones(1, 1, 3, 5, dtype=torch.bool), torch.ones(1, 1, 3, 3, dtype=torch.bool)), dim=-1)
    position = torch.tensor([[5, 6, 7]]).expand(2, -1)
    select = torch.tensor([[False, True, False], [False, True, True]])
    assert rows_before(mask, position, select).tolist() == [0, 3, 4]


@pytest.mark.parametrize("where", ["cached", "hidden"])
def test_a_row_that_is_not_in_the_input_is_asked_for(where):
    position = torch.tensor([[4, 5, 6, 7]])
    mask = torch.ones(1, 1, 4, 8, dtype=torch.bool)
    if where == "hidden":
        position = torch.arange(4)[None]
        mask = block_causal_mask(torch.tensor([[0, 0, 1, 1]]), torch.ones(1, 4, dtype=torch.bool))
        mask[0, 0, 2, 1] = False
    with pytest.raises(ArgumentError, match="does not see the position before it in this input"):
        rows_before(mask, position, None)
