"""`accelerate launch` with two processes is the run of one process."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support import records, small_config, weights

from steprs import build
from steprs.training.stored import read_rollouts

# Five prompts on two processes: shares of two and three, with dead groups wherever they fall.
SETTINGS = ("train.updates=5", "train.prompts_per_update=5", "train.token_budget=400", "loss.aggregation=state-mean")
SETTINGS += ("train.store_rollouts=5",)
# Sums in another order differ by enough in bfloat16, where a machine prefers it, to flip a token after one update.
SETTINGS += ("policy.dtype=float32",)
LAUNCH = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
LAUNCH += ["--mixed_precision", "no", "--dynamo_backend", "no"]


def free_port() -> str:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return str(server.getsockname()[1])


def launch(folder: Path, *settings: str) -> subprocess.CompletedProcess:
    (folder.parent / "run.json").write_text(json.dumps(small_config(*settings).model_dump(mode="json")))
    script = folder.parent / "launched.py"
    script.write_text("from steprs.cli import main\nmain()\n")
    target = ["train", str(folder.parent / "run.json"), "-o", str(folder)]
    command = [sys.executable, *LAUNCH, "--main_process_port", free_port(), str(script), *target]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    one = build.train(small_config(*SETTINGS), output=folder / "one")
    done = launch(folder / "two", *SETTINGS)
    assert done.returncode == 0, done.stdout + done.stderr
    return one, folder / "two"


def test_the_two_processes_really_ran(both):
    assert json.loads((both[1] / "env.json").read_text())["processes"] == 2


def test_rewards_advantages_losses_and_gradient_norms_are_equal(both):
    one, two = (records(folder) for folder in both)
    assert len(one) == len(two) == 5
    assert any(0 < record["groups/dead"] < 1 for record in one), "the seed must give live and dead groups"
    for alone, shared in zip(one, two, strict=True):
        for key in ("reward/mean", "groups/dead", "completions/unique_frac", "advantage/abs_mean"):
            assert shared[key] == pytest.approx(alone[key], abs=1e-12), key
        for key in ("loss/policy", "grad_norm", "entropy", "logprob_gap/mean"):
            assert shared[key] == pytest.approx(alone[key], rel=1e-3, abs=1e-6), key
        for row in ("entropy_by_progress", "ratio_by_progress", "clip_frac_by_progress", "tokens_by_progress"):
            assert shared[row] == pytest.approx(alone[row], rel=1e-3, abs=1e-6), row
        for grid in ("scale_grid", "risk_coef_grid", "mass_grid"):
            flat_one, flat_two = ([cell for row in record[grid] for cell in row] for record in (alone, shared))
            assert [v is None for v in flat_one] == [v is None for v in flat_two]
            assert [v for v in flat_two if v is not None] == pytest.approx(
                [v for v in flat_one if v is not None], rel=1e-6
            )


def test_rollouts_kept_in_two_shares_are_those_of_one_process(both):
    assert sorted(file.name for file in (both[1] / "rollouts").iterdir()) == [
        f"update-{update:06d}.{share}-of-2.safetensors" for update in (1, 5) for share in (1, 2)
    ]
    one, two = (next(read_rollouts(folder)) for folder in both)
    assert two.problem_ids == one.problem_ids
    assert two.row_keys_B.equal(one.row_keys_B)
    assert two.rewards.rewards_PG.equal(one.rewards.rewards_PG)
    assert two.trajectory.completion_ids_BL.equal(one.trajectory.completion_ids_BL)
    assert two.trajectory.unmask_step_BL.equal(one.trajectory.unmask_step_BL)


def test_rescoring_two_shares_gives_what_both_processes_logged(both):
    logged = records(both[1])[4]
    found = build.rescore(both[1]).updates[1].metrics
    assert found["advantage/abs_mean"] == pytest.approx(logged["advantage/abs_mean"], rel=1e-12)
    for grid in ("scale_grid", "mass_grid"):
        flat, wanted = ([v for row in source[grid] for v in row if v is not None] for source in (found, logged))
        assert flat == pytest.approx(wanted, rel=1e-12)


def test_weights_after_five_updates_are_equal(both):
    one, two = (weights(folder, 5) for folder in both)
    start = weights(both[0], 1)
    for name in one:
        moved = (one[name] - start[name]).abs().max()
        assert (one[name] - two[name]).abs().max() <= max(1e-6, 1e-2 * float(moved)), name


def test_batch_rms_matching_spans_the_processes(tmp_path):
    settings = ("train.updates=1", "train.prompts_per_update=5", "risk.rms_match=batch", "risk.scale=4")
    one = records(build.train(small_config(*settings), output=tmp_path / "one"))[0]
    done = launch(tmp_path / "two", *settings)
    assert done.returncode == 0, done.stderr
    two = records(tmp_path / "two")[0]
    assert two["risk/rms_scale"] == pytest.approx(one["risk/rms_scale"], rel=1e-9)
    assert one["risk/rms_scale"] != pytest.approx(1.0, abs=0.02)


def test_shuffled_controls_shuffle_each_rollout_the_same_on_any_process(tmp_path):
    settings = ("train.updates=1", "train.prompts_per_update=5", "risk.control=shuffle-token", "risk.scale=4")
    one = records(build.train(small_config(*settings), output=tmp_path / "one"))[0]
    done = launch(tmp_path / "two", *settings)
    assert done.returncode == 0, done.stderr
    assert records(tmp_path / "two")[0]["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-4)


def test_a_launch_that_would_drop_processes_is_an_error(tmp_path, monkeypatch):
    from steprs.errors import ConfigError

    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(ConfigError, match="started one"):
        build.train(small_config(), output=tmp_path / "run")


def test_an_engine_that_is_not_run_is_an_error(tmp_path, monkeypatch):
    from steprs.errors import ConfigError

    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ConfigError, match="FSDP"):
        build.train(small_config(), output=tmp_path / "run")
