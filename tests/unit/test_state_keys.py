"""Keys of canvases against the canvases themselves."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from steprs.state_keys import state_keys
from steprs.states import merge_steps, state_at
from steprs.types import Decoding, Trajectory

MASK = 2


def drawn(seed: int, rows: int = 40, length: int = 6, steps: int = 6) -> Trajectory:
    """Rollouts over two words, so that canvases are often shared; some positions are never revealed."""
    draw = torch.Generator().manual_seed(seed)
    step = torch.randint(0, steps, (rows, length), generator=draw)
    # Renumbered so that every step reveals something.
    step = torch.stack([row.unique(return_inverse=True)[1] for row in step])
    step = torch.where((torch.rand(rows, length, generator=draw) < 0.1) & (step == step.amax(1, True)), -1, step)
    ids = torch.randint(5, 7, (rows, length), generator=draw)
    prompt = torch.full((rows, 1), 4)
    return Trajectory(
        prompt_ids_BC=prompt, prompt_mask_BC=prompt > 0, completion_ids_BL=ids, unmask_step_BL=step,
        block_index_BL=torch.zeros_like(step), completion_mask_BL=step >= 0, sampling_logprobs_BL=step * 0.0,
        entropies_BL=step * 0.0, num_steps_B=step.amax(1) + 1, mask_token_id=MASK, group_size=rows,
        decoding=Decoding(kind="masked", length=length, steps=steps, block_size=length), selection_exact=True,
        steps_fixed=True,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shrinkage", [1, 2])
def test_keys_are_equal_exactly_where_canvases_are(seed, shrinkage):
    trajectory = merge_steps(drawn(seed), shrinkage)
    keys = state_keys(trajectory)
    assert keys.dtype == torch.int64 and keys.shape == (40, int(trajectory.num_steps_B.max()) + 1)
    key_of: dict[tuple[int, ...], int] = {}
    visits = 0
    for state in range(keys.shape[1]):
        for row, canvas in enumerate(state_at(trajectory, state).tolist()):
            visits += 1
            assert key_of.setdefault(tuple(canvas), int(keys[row, state])) == int(keys[row, state])
    assert len(set(key_of.values())) == len(key_of) < visits


def test_order_does_not_matter_and_position_does():
    one = drawn(0, rows=1, length=4)
    forwards = dataclasses.replace(
        one, completion_ids_BL=torch.tensor([[5, 6, 5, 5]]), unmask_step_BL=torch.tensor([[0, 1, 2, 3]]),
        num_steps_B=torch.tensor([4]),
    )  # fmt: skip
    backwards = dataclasses.replace(forwards, unmask_step_BL=torch.tensor([[1, 0, 3, 2]]))
    swapped = dataclasses.replace(forwards, completion_ids_BL=torch.tensor([[6, 5, 5, 5]]))
    keys, back, swap = (state_keys(one)[0].tolist() for one in (forwards, backwards, swapped))
    assert [a == b for a, b in zip(keys, back, strict=True)] == [True, False, True, False, True]
    assert [a == b for a, b in zip(keys, swap, strict=True)] == [True, False, False, False, False]


def test_the_finished_rollout_is_repeated_and_prompts_do_not_count():
    trajectory = drawn(1)
    keys = state_keys(trajectory)
    for row, steps in enumerate(trajectory.num_steps_B.tolist()):
        assert len(set(keys[row, steps:].tolist())) == 1
        assert len(set(keys[row, : steps + 1].tolist())) == steps + 1
    other = dataclasses.replace(trajectory, prompt_ids_BC=trajectory.prompt_ids_BC + 1)
    assert torch.equal(state_keys(other), keys) and not keys[:, 0].any()
