"""A run folder survives kills, refuses a second run, and never loads a torn checkpoint."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from steprs.errors import RunFolderError
from steprs.training.folder import RunFolder, checkpoint_problem


def write_checkpoint(folder: RunFolder, name: str, text: str = "weights") -> Path:
    part = folder.begin_checkpoint(name)
    (part / "model.bin").write_text(text)
    (part / "trainer").mkdir()
    (part / "trainer" / "position.json").write_text("{}")
    return folder.finish_checkpoint(part)


def test_the_newest_whole_checkpoint_is_found(tmp_path):
    folder = RunFolder(tmp_path)
    write_checkpoint(folder, "update-000002")
    newest = write_checkpoint(folder, "update-000010")
    assert folder.newest_checkpoint() == newest
    assert checkpoint_problem(newest) is None


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda p: (p / "model.bin").write_text("wrong"), "model.bin has changed"),
        (lambda p: (p / "trainer" / "position.json").unlink(), "position.json is missing"),
        (lambda p: (p / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda p: (p / "manifest.json").write_text('{"model'), "manifest.json is not JSON"),
        (lambda p: (p / "manifest.json").write_text("{}"), "names no checkpoint's files"),
        (lambda p: (p / "manifest.json").write_bytes(b"\xff"), "manifest.json is not JSON"),
    ],
)
def test_a_damaged_checkpoint_is_named_and_passed_over(tmp_path, damage, said):
    folder = RunFolder(tmp_path)
    good = write_checkpoint(folder, "update-000001")
    damage(write_checkpoint(folder, "update-000002"))
    with pytest.warns(UserWarning, match=rf"update-000002 is torn \(.*{said}"):
        assert folder.newest_checkpoint() == good


def test_kill_while_saving_leaves_the_previous_checkpoint(tmp_path):
    write_checkpoint(RunFolder(tmp_path), "update-000001")
    script = (
        "import sys, time; from steprs.training.folder import RunFolder\n"
        f"part = RunFolder({str(tmp_path)!r}).begin_checkpoint('update-000002')\n"
        "(part / 'model.bin').write_text('half'); print('writing', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "writing"
    process.send_signal(signal.SIGKILL)
    process.wait()
    with pytest.warns(UserWarning, match=r"update-000002.part is torn \(its writing was cut off"):
        assert RunFolder(tmp_path).newest_checkpoint().name == "update-000001"
    # The next save of the same name starts from an empty folder.
    again = write_checkpoint(RunFolder(tmp_path), "update-000002", "whole")
    assert (again / "model.bin").read_text() == "whole"


def test_a_folder_in_use_is_refused_and_free_again_after_a_kill(tmp_path):
    script = (
        "import time; from steprs.training.folder import RunFolder\n"
        f"with RunFolder({str(tmp_path)!r}).locked():\n    print('locked', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "locked"
    with pytest.raises(RunFolderError, match=f"in use by process {process.pid}"), RunFolder(tmp_path).locked():
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            with RunFolder(tmp_path).locked():
                assert (tmp_path / "lock").read_text() == str(os.getpid())
                return
        except RunFolderError:
            time.sleep(0.05)
    raise AssertionError("the lock of a killed process was never released")


def test_pruning_keeps_the_last_and_the_best(tmp_path):
    folder = RunFolder(tmp_path)
    for update in range(1, 7):
        write_checkpoint(folder, f"update-{update:06d}")
    folder.prune(2, "update-000003")
    assert [path.name for path in folder.checkpoints()] == ["update-000003", "update-000005", "update-000006"]


def test_a_torn_last_line_is_left_out_and_later_lines_are_dropped_on_request(tmp_path):
    folder = RunFolder(tmp_path)
    for update in (1, 2, 3):
        folder.append_jsonl("metrics.jsonl", {"update": update})
    with (tmp_path / "metrics.jsonl").open("a") as handle:
        handle.write('{"update": 4, "rew')
    assert [r["update"] for r in folder.read_jsonl("metrics.jsonl")] == [1, 2, 3]
    folder.keep_lines("metrics.jsonl", lambda record: record["update"] <= 2)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"update": 1}\n{"update": 2}\n'


def test_json_that_holds_nan_is_refused_rather_than_written(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        RunFolder(tmp_path).write_json("result.json", {"loss": float("nan")})
    assert not (tmp_path / "result.json").exists()
