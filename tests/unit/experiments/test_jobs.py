"""The pool of processes: order, limits, failures, and a stop that lets every process finish its checkpoint."""

from __future__ import annotations

import json

import pytest

from steprs.errors import RunFolderError
from steprs.experiments import jobs
from steprs.experiments.jobs import Job, run_jobs

# Stands in for the real worker: notes when it begins and ends, and what it is asked to do.
STUB = """
import json, pathlib, signal, sys, time
spec = json.loads(pathlib.Path(sys.argv[1]).read_text())
out = pathlib.Path(spec["out"])
def note(what):
    with (out / "events").open("a") as events:
        events.write(f"{what} {spec['name']}\\n")
def stopped(*_):
    note("checkpoint"); sys.exit(130)
signal.signal(signal.SIGTERM, stopped)
note("begin")
time.sleep(spec["seconds"])
if spec.get("fails"):
    print("first line"); print("it broke here", file=sys.stderr); sys.exit(3)
(out / spec["name"]).write_text("done")
note("end")
"""


@pytest.fixture
def pool(tmp_path, monkeypatch):
    stub = tmp_path / "stub.py"
    stub.write_text(STUB)
    monkeypatch.setattr(jobs, "WORKER", (str(stub),))
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0.02)

    def job(name, seconds=0.0, **more):
        spec = {"name": name, "out": str(tmp_path), "seconds": seconds, **more}
        return Job(name=name, spec=spec, units=1, done=lambda: int((tmp_path / name).is_file()))

    return job, tmp_path


def events(folder):
    file = folder / "events"
    return file.read_text().splitlines() if file.is_file() else []


def test_in_order_and_never_more_than_asked(pool):
    job, folder = pool
    run_jobs([job("a", 0.2), job("b", 0.2), job("c", 0.2)], folder, title="t", at_once=1)
    assert events(folder) == [f"{what} {name}" for name in "abc" for what in ("begin", "end")]


def test_two_at_once_overlap(pool):
    job, folder = pool
    run_jobs([job("a", 1.0), job("b", 1.0)], folder, title="t", at_once=2)
    assert {line.split()[0] for line in events(folder)[:2]} == {"begin"}


def test_what_is_done_is_kept(pool):
    job, folder = pool
    (folder / "a").write_text("done")
    run_jobs([job("a"), job("b")], folder, title="t", at_once=2)
    assert events(folder) == ["begin b", "end b"]


def test_a_failure_names_its_log_and_costs_no_other_run(pool):
    job, folder = pool
    jobs = [job("bad", fails=True), job("long", 1.0), job("worse", fails=True), job("later")]
    with pytest.raises(RunFolderError) as caught:
        run_jobs(jobs, folder, title="t", at_once=2)
    said = str(caught.value)
    for name in ("bad", "worse"):
        assert f"{name} ended with exit status 3; its log {folder / 'jobs' / name}.log ends with:\n" in said
    assert said.count("it broke here") == 2
    assert "end long" in events(folder) and "end later" in events(folder)


def test_what_ended_well_is_told(pool):
    job, folder = pool
    told = []
    with pytest.raises(RunFolderError):
        run_jobs([job("a"), job("b", fails=True)], folder, title="t", at_once=1, finished=lambda j: told.append(j.name))
    assert told == ["a"]


def test_ctrl_c_waits_for_checkpoints(pool):
    job, folder = pool

    def interrupted():
        if "begin long" in events(folder):
            raise KeyboardInterrupt
        return 0

    watcher = Job(
        name="watcher", spec={"name": "watcher", "out": str(folder), "seconds": 60.0}, units=1, done=interrupted
    )
    with pytest.raises(KeyboardInterrupt):
        run_jobs([watcher, job("long", 60.0)], folder, title="t", at_once=2)
    assert "checkpoint long" in events(folder)


def test_one_thread_a_process(pool, monkeypatch):
    job, folder = pool
    monkeypatch.setattr(
        jobs, "WORKER", ("-c", "import os, sys; open(sys.argv[1] + '.env', 'w').write(os.environ['OMP_NUM_THREADS'])")
    )
    one = job("a")
    run_jobs([one], folder, title="t", at_once=1)
    assert (folder / "jobs" / "a.json.env").read_text() == "1"
    assert json.loads((folder / "jobs" / "a.json").read_text())["name"] == "a"
