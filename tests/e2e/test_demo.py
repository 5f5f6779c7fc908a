"""The demo from end to end on an untrained policy, stopped by a signal in the middle and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from steprs.policies.tiny import create_tiny
from steprs.tasks import get_task

pytestmark = pytest.mark.slow


def test_a_stopped_demo_goes_on(tmp_path):
    create_tiny(
        get_task("countdown").vocabulary(), seed=0, hidden_size=16, intermediate_size=16, layers=1, heads=2,
        decoding_defaults={"length": 12, "steps": 12, "block_size": 4},
    ).save(tmp_path / "policy")  # fmt: skip
    out = tmp_path / "demo"
    command = [
        sys.executable, "-m", "steprs", "demo", "-o", str(out), "--updates", "40", "--problems", "4", "--samples", "4",
        f"policy.path={tmp_path / 'policy'}", "risk.scale=1", "train.prompts_per_update=2", "train.group_size=4",
        "eval.problems=4", "train.eval_every=0", "train.save_every=0",
    ]  # fmt: skip
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    log = out / "centred" / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while not (log.is_file() and log.read_bytes().count(b"\n") >= 3):
        assert first.poll() is None and time.monotonic() < deadline, first.stdout.read().decode()
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGINT)
    assert first.wait(120) == 130
    assert not (out / "report.md").exists()

    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "going on with the unfinished demo" in done.stdout and str(out / "report.md") in done.stdout
    for arm in ("centred", "decreasing", "increasing"):
        updates = [json.loads(line)["update"] for line in (out / arm / "metrics.jsonl").read_text().splitlines()]
        assert updates == list(range(1, 41)), arm
    page = (out / "report.md").read_text()
    for label in ("base, greedy", "centred GRPO", "StepRS decreasing", "StepRS increasing"):
        assert f"| {label} |" in page
