"""A stopped run goes on bit for bit, wherever it was stopped."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from support import records, same_weights, small_config, weights, without_seconds

from steprs import build
from steprs.errors import ConfigError, RunFolderError
from steprs.training import loop
from steprs.training.interrupt import RunInterrupted


class StopAt:
    """Stands in for the signal flag: asked for at the n-th time the loop looks."""

    def __init__(self, looks):
        self.left = looks

    @property
    def requested(self):
        self.left -= 1
        return self.left == 0


def stop_after(monkeypatch, looks):
    from contextlib import contextmanager

    @contextmanager
    def pretend():
        yield StopAt(looks)

    monkeypatch.setattr(loop, "stop_request", pretend)


@pytest.mark.parametrize("looks", [1, 2, 3, 4, 5])
def test_stop_and_resume_is_bitwise_the_run_without_the_stop(tmp_path, monkeypatch, looks):
    config = small_config(
        "loss.inner_updates=3", "loss.kl_coef=0.02", "train.updates=2", "eval.samples=4", "train.eval_every=1"
    )
    straight = build.train(config, output=tmp_path / "straight")
    stop_after(monkeypatch, looks)
    with pytest.raises(RunInterrupted, match="--resume"):
        build.train(config, output=tmp_path / "stopped")
    monkeypatch.undo()
    resumed = build.train(None, resume=True, output=tmp_path / "stopped")
    assert same_weights(weights(straight, 2), weights(resumed, 2))
    for name in ("metrics.jsonl", "dev.jsonl", "rollouts.jsonl"):
        assert without_seconds(records(straight, name)) == without_seconds(records(resumed, name))
    assert (straight / "result.json").read_text() == (resumed / "result.json").read_text()


def test_resume_of_a_lora_run_is_bitwise(tmp_path, monkeypatch):
    pytest.importorskip("peft")
    config = small_config("policy.lora={rank: 4}", "train.learning_rate=0.01", "loss.kl_coef=0.02")
    straight = build.train(config, output=tmp_path / "straight")
    stop_after(monkeypatch, 2)
    with pytest.raises(RunInterrupted):
        build.train(config, output=tmp_path / "stopped")
    monkeypatch.undo()
    resumed = build.train(None, resume=True, output=tmp_path / "stopped")
    one, other = (weights(folder, 3, "adapter_model.safetensors") for folder in (straight, resumed))
    assert same_weights(one, other) and any(tensor.any() for name, tensor in one.items() if "lora_B" in name)
    assert without_seconds(records(straight)) == without_seconds(records(resumed))


def test_inner_updates_do_not_change_which_prompts_come_next(tmp_path):
    one = build.train(small_config(), output=tmp_path / "one")
    three = build.train(small_config("loss.inner_updates=3"), output=tmp_path / "three")
    prompts = [[line["problem"] for line in records(folder, "rollouts.jsonl")] for folder in (one, three)]
    assert prompts[0] == prompts[1]


def test_a_real_process_killed_at_any_moment_resumes_bitwise(tmp_path):
    arguments = ["train.updates=6", "loss.inner_updates=2"]
    straight = build.train(small_config(*arguments), output=tmp_path / "straight")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from support import small_config; from steprs import build; from pathlib import Path\n"
        "folder = Path(sys.argv[2]); build.train(small_config(*sys.argv[3:]), resume=folder.exists(), output=folder)"
    )
    folder = tmp_path / "killed"
    command = [sys.executable, "-c", script, os.path.dirname(__file__), str(folder), *arguments]
    for lines in (1, 3):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        metrics = folder / "metrics.jsonl"
        while not (metrics.exists() and metrics.read_text().count("\n") >= lines) and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
    resumed = build.train(None, resume=True, output=folder)
    assert same_weights(weights(straight, 6), weights(resumed, 6))
    assert without_seconds(records(straight)) == without_seconds(records(resumed))


def test_other_settings_are_refused_by_name(tmp_path):
    build.train(small_config("train.updates=1"), output=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"train\.learning_rate: 0\.0002 in the folder, 0\.5 now"):
        build.train(small_config("train.updates=1", "train.learning_rate=0.5"), resume=True, output=tmp_path / "run")


def test_resuming_a_finished_run_changes_nothing(tmp_path, capsys):
    folder = build.train(small_config("train.updates=1"), output=tmp_path / "run")
    before = records(folder)
    build.train(None, resume=True, output=folder)
    assert "nothing to do" in capsys.readouterr().out
    assert records(folder) == before


def test_a_finished_run_without_checkpoints_is_not_trained_again(tmp_path):
    folder = build.train(small_config("train.updates=1"), output=tmp_path / "run")
    shutil.rmtree(folder / "checkpoints")
    before = records(folder)
    with pytest.raises(RunFolderError, match="without a whole checkpoint"):
        build.train(None, resume=True, output=folder)
    assert records(folder) == before


@pytest.mark.parametrize("content", ["", "[]", "{", "{}"])
def test_a_run_whose_settings_are_gone_is_not_guessed(tmp_path, content):
    folder = build.train(small_config("train.updates=1"), output=tmp_path / "run")
    (folder / "config.json").write_text(content)
    for action in (lambda: build.evaluate(folder), lambda: build.train(None, resume=True, output=folder)):
        with pytest.raises(RunFolderError, match=r"config\.json"):
            action()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(RunFolderError, match="choose another folder"):
        build.train(small_config(), output=tmp_path / "run")


def test_a_run_in_the_folder_is_not_started_over(tmp_path, monkeypatch):
    folder = build.train(small_config("train.updates=1"), output=tmp_path / "run")
    with pytest.raises(RunFolderError, match=r"already holds a run; add --resume"):
        build.train(small_config("train.updates=1"), output=folder)
    assert len(records(folder)) == 1

    def fails(*_, **__):
        raise MemoryError

    monkeypatch.setattr(loop, "collect_batch", fails)
    with pytest.raises(MemoryError):
        build.train(small_config(), output=tmp_path / "failed")
    with pytest.raises(RunFolderError, match="made no update, so nothing is lost if you delete the folder"):
        build.train(small_config(), output=tmp_path / "failed")
