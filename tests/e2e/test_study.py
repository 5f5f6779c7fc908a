"""Studies as people meet them: real processes, one of them killed; and every shipped study through real updates."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from steprs.experiments import worker
from steprs.experiments.presets import PRESETS, preset
from steprs.experiments.runner import base_jobs, calibrations, is_finished, lay_out, pretrainings, run_jobs_of
from steprs.experiments.store import Store
from steprs.experiments.study import pretrain_config

STUDY = """
name: small
baseline: centred
fields:
  policy.dtype: float32
  train.updates: 12
  train.prompts_per_update: 2
  train.group_size: 4
  train.eval_every: 6
  train.save_every: 2
  eval.problems: 4
  eval.samples: 4
  eval.k: [1, 4]
seeds: [1]
arms:
  - {label: centred, fields: {risk.scale: 0}}
  - {label: decreasing, fields: {risk.scale: 1.5}}
measure: {problems: 8, samples: 4, k: [1, 4], base_temperatures: {base: null}, traces: 2, backslides: 0}
"""


def start(folder: Path, jobs: int = 1) -> subprocess.Popen[str]:
    (folder.parent / "small.yaml").write_text(STUDY)
    return subprocess.Popen(
        [
            sys.executable, "-m", "steprs", "study", "run", str(folder.parent / "small.yaml"),
            "-o", str(folder), "--jobs", str(jobs),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.is_file() else 0


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the worker through /proc")
def test_a_killed_study_goes_on_and_says_the_same(tmp_path):
    whole, broken = tmp_path / "whole" / "study", tmp_path / "broken" / "study"
    for folder in (whole, broken):
        folder.parent.mkdir()
    undisturbed = start(whole, jobs=2)
    process = start(broken)
    store = tmp_path / "broken" / "store"
    deadline = time.monotonic() + 600
    while True:  # until one run is finished and another is past its first checkpoint
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "the study did not get that far"
        logs = [lines(log) for log in store.glob("run-*/metrics.jsonl")]
        if len(logs) >= 2 and 3 <= min(logs) < 11:
            break
        time.sleep(0.02)
    workers = children(process.pid)
    for victim in (process.pid, *workers):
        os.kill(victim, signal.SIGKILL)
    process.communicate()
    kept = {log.parent for log in store.glob("run-*/metrics.jsonl") if (log.parent / "measured.json").is_file()}
    stamps = {folder: (folder / "eval.json").stat().st_mtime_ns for folder in kept}
    torn = {log.parent for log in store.glob("run-*/metrics.jsonl")} - kept
    assert kept and torn
    again = start(broken)
    said, _ = again.communicate(timeout=600)
    assert again.returncode == 0, said
    assert {folder: (folder / "eval.json").stat().st_mtime_ns for folder in kept} == stamps, "finished runs are kept"
    job_log = (broken / "jobs" / f"{next(iter(torn)).name}.log").read_text()
    assert "training" in job_log and "12/12" not in job_log, "the torn run went on, it did not start afresh"
    said, _ = undisturbed.communicate(timeout=600)
    assert undisturbed.returncode == 0, said
    tables = sorted((whole / "report" / "tables").glob("*.csv"))
    assert {"main.csv", "differences.csv"} <= {table.name for table in tables}
    for table in tables:
        if "cost" not in table.name:  # seconds differ from run to run
            assert (broken / "report" / "tables" / table.name).read_text() == table.read_text(), table.name
    for run in (tmp_path / "whole" / "store").glob("run-*"):
        other = store / run.name
        assert json.loads((other / "eval.json").read_text()) == json.loads((run / "eval.json").read_text())
        assert lines(other / "metrics.jsonl") == 12


TWO_UPDATES = {
    "train.updates": 2, "train.prompts_per_update": 2, "train.eval_every": 0, "train.warmup_updates": 1,
    "eval.problems": 2, "eval.samples": 2, "eval.k": [1], "risk.calibration.prompts": 8, "risk.calibration.samples": 4,
}  # fmt: skip


@pytest.mark.parametrize("name", PRESETS)
def test_every_shipped_study_trains(name, tmp_path, monkeypatch):
    small = preset(name).smoke()
    measure = small.measure.model_copy(update={"problems": 2, "samples": 2, "k": (1,), "traces": 1})
    contexts = tuple(
        context.model_copy(
            update={
                "fields": {**context.fields, **TWO_UPDATES},
                "pretrain": context.pretrain
                and context.pretrain.model_copy(update={"fields": {**context.pretrain.fields, "updates": 2}}),
            }
        )
        for context in small.contexts
    )
    small = small.model_copy(update={"seeds": small.seeds[:1], "measure": measure, "contexts": contexts})
    store = Store(tmp_path / "store")
    made = {store.policy(pretrain_config(context.pretrain)): context for context in small.contexts if context.pretrain}
    for job in pretrainings(made):
        worker.pretrain(json.loads(json.dumps(job.spec)))
    layout = lay_out(small, store)
    for job in (*calibrations(layout), *base_jobs(layout), *run_jobs_of(layout)):
        worker.JOBS[job.spec["job"]](json.loads(json.dumps(job.spec)))
        assert job.done() == job.units, job.name
    assert all(is_finished(run, small) for run in layout.runs)
    for run in layout.runs:
        records = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
        assert [record["update"] for record in records] == [1, 2]
