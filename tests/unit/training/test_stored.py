"""Rollouts on disk: what comes back, and what a kill, a missing share or a torn file leaves behind."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from steprs.errors import RunFolderError
from steprs.states import denoising_progress, state_at
from steprs.training.folder import RunFolder
from steprs.training.stored import forget_rollouts_after, is_due, read_rollouts, store_rollouts
from steprs.types import Decoding, Rewards, Trajectory

ALONE = SimpleNamespace(process_index=0, num_processes=1)
GROUP, LENGTH = 2, 3


def made(prompts: int, seed: int = 0) -> tuple[Trajectory, Rewards, torch.Tensor]:
    """Rollouts whose fields all differ, so that none can stand for another."""
    rows, draw = prompts * GROUP, torch.Generator().manual_seed(seed)
    numbers = lambda high: torch.randint(0, high, (rows, LENGTH), generator=draw)  # noqa: E731
    trajectory = Trajectory(
        prompt_ids_BC=torch.ones(rows, 4, dtype=torch.int64),
        prompt_mask_BC=torch.ones(rows, 4, dtype=torch.bool),
        completion_ids_BL=numbers(100),
        unmask_step_BL=numbers(4) - 1,
        block_index_BL=numbers(2),
        completion_mask_BL=numbers(2).bool(),
        sampling_logprobs_BL=-torch.rand(rows, LENGTH, generator=draw),
        entropies_BL=torch.rand(rows, LENGTH, generator=draw),
        num_steps_B=torch.randint(1, 5, (rows,), generator=draw),
        mask_token_id=101,
        decoding=Decoding(kind="block", length=LENGTH, steps=3, block_size=1, temperature=0.7, threshold=0.2),
        group_size=GROUP,
        selection_exact=True,
        steps_fixed=False,
    )
    rewards = Rewards(
        rewards_PG=torch.rand(prompts, GROUP, generator=draw, dtype=torch.float64),
        valid_PG=torch.randint(0, 2, (prompts, GROUP), generator=draw).bool(),
        verdicts=(),
        binary=False,
    )
    return trajectory, rewards, torch.randint(-(2**62), 2**62, (rows,), generator=draw)


def store(folder: Path, update: int, prompts: int, accelerator=ALONE, seed: int = 0):
    trajectory, rewards, keys_B = made(prompts, seed)
    ids = [f"toy/{seed}-{p}" for p in range(prompts)]
    store_rollouts(
        RunFolder(folder), update, trajectory, rewards, row_keys_B=keys_B, problem_ids=ids, accelerator=accelerator
    )
    return trajectory, rewards, keys_B


def assert_same(found: Trajectory, wanted: Trajectory) -> None:
    for field in dataclasses.fields(Trajectory):
        a, b = getattr(found, field.name), getattr(wanted, field.name)
        if field.name.startswith("prompt_"):
            assert a.shape == (b.shape[0], 0)
        elif isinstance(b, torch.Tensor):
            assert a.dtype == b.dtype
            assert a.equal(b), field.name
        else:
            assert a == b, field.name


def test_everything_but_the_prompts_comes_back(tmp_path):
    trajectory, rewards, keys_B = store(tmp_path, 20, 3)
    (found,) = read_rollouts(tmp_path)
    assert_same(found.trajectory, trajectory)
    assert found.rewards.rewards_PG.equal(rewards.rewards_PG)
    assert found.rewards.valid_PG.equal(rewards.valid_PG)
    assert found.rewards.binary is False
    assert found.row_keys_B.equal(keys_B)
    assert (found.update, found.problem_ids) == (20, ("toy/0-0", "toy/0-1", "toy/0-2"))
    assert state_at(found.trajectory, 1).equal(state_at(trajectory, 1))
    assert denoising_progress(found.trajectory).equal(denoising_progress(trajectory))


def test_the_shares_of_processes_are_put_together_in_order(tmp_path):
    shares = [SimpleNamespace(process_index=i, num_processes=2) for i in range(2)]
    second = store(tmp_path, 5, 3, shares[1], seed=2)
    first = store(tmp_path, 5, 2, shares[0], seed=1)
    (found,) = read_rollouts(tmp_path)
    assert found.row_keys_B.equal(torch.cat([first[2], second[2]]))
    assert found.rewards.rewards_PG.equal(torch.cat([first[1].rewards_PG, second[1].rewards_PG]))
    assert found.trajectory.unmask_step_BL.equal(torch.cat([first[0].unmask_step_BL, second[0].unmask_step_BL]))
    assert found.problem_ids == ("toy/1-0", "toy/1-1", "toy/2-0", "toy/2-1", "toy/2-2")


def test_an_update_that_lacks_a_share_is_passed_over_by_name(tmp_path):
    store(tmp_path, 1, 2)
    store(tmp_path, 5, 2, SimpleNamespace(process_index=0, num_processes=2))
    with pytest.warns(UserWarning, match="update 5 .* lack the share"):
        assert [stored.update for stored in read_rollouts(tmp_path)] == [1]


def test_a_kill_while_writing_leaves_the_file_before(tmp_path, monkeypatch):
    before = store(tmp_path, 1, 2, seed=1)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store(tmp_path, 1, 2, seed=2)
    with pytest.raises(KeyboardInterrupt):
        store(tmp_path, 2, 2, seed=2)
    monkeypatch.undo()
    (found,) = read_rollouts(tmp_path)
    assert found.row_keys_B.equal(before[2])
    forget_rollouts_after(RunFolder(tmp_path), 1)
    assert [file.name for file in (tmp_path / "rollouts").iterdir()] == ["update-000001.safetensors"]


def test_later_updates_are_forgotten_whoever_wrote_them(tmp_path):
    for update in (1, 10, 20):
        store(tmp_path, update, 2)
        store(tmp_path, update, 2, SimpleNamespace(process_index=1, num_processes=2))
    (tmp_path / "rollouts" / "notes.txt").write_text("mine")
    forget_rollouts_after(RunFolder(tmp_path), 10)
    assert sorted(file.name for file in (tmp_path / "rollouts").iterdir()) == [
        "notes.txt", "update-000001.2-of-2.safetensors", "update-000001.safetensors",
        "update-000010.2-of-2.safetensors", "update-000010.safetensors",
    ]  # fmt: skip


def test_a_torn_or_foreign_file_is_an_error_that_names_it(tmp_path):
    store(tmp_path, 1, 2)
    file = tmp_path / "rollouts" / "update-000001.safetensors"
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(RunFolderError, match=r"update-000001.*cannot be read"):
        list(read_rollouts(tmp_path))
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, file)
    with pytest.raises(RunFolderError, match="format None"):
        list(read_rollouts(tmp_path))


def test_a_run_without_rollouts_is_one_error_that_names_the_setting(tmp_path):
    with pytest.raises(RunFolderError, match="train.store_rollouts=20"):
        list(read_rollouts(tmp_path))


def test_the_first_update_and_every_so_many_are_due():
    assert [update for update in range(1, 11) if is_due(update, 5)] == [1, 5, 10]
    assert not any(is_due(update, 0) for update in range(11))
