"""The pool's promises, on a stand-in worker that starts at once; then the real worker's limits."""

import importlib.util
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from steprs.errors import ArgumentError, StepRSError
from steprs.tasks.verifiers import math_worker_pool
from steprs.tasks.verifiers.math_worker_pool import MathWorkerPool

STAND_IN = """
import json, os, sys, time
time.sleep(START_DELAY)
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    item = json.loads(line)
    while item["answer"] == "hang":
        pass
    if item["answer"] == "stall":
        time.sleep(600)
    if item["answer"] == "die":
        os._exit(1)
    if item["answer"] == "slow":
        time.sleep(0.3)
    error = "ValueError" if item["answer"] == "raise" else None
    print(json.dumps({"id": item["id"], "same": item["gold"] == item["answer"], "error": error}), flush=True)
"""


@pytest.fixture
def make_pool(tmp_path, monkeypatch):
    monkeypatch.setattr(math_worker_pool, "require_math_verify", lambda: None)
    made = []

    def make(processes=1, *, start_delay=0.0, time_limit_s=10.0, script=STAND_IN):
        path = tmp_path / "worker.py"
        path.write_text(script.replace("START_DELAY", str(start_delay)))
        monkeypatch.setattr(math_worker_pool, "_SCRIPT", path)
        made.append(MathWorkerPool(processes, time_limit_s=time_limit_s))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def test_a_hanging_item_is_killed_and_the_next_one_served(make_pool):
    pool = make_pool(time_limit_s=0.5)
    assert pool.same("1", "1") is True
    start = time.monotonic()
    assert pool.same("1", "hang") is False
    assert time.monotonic() - start >= 0.5
    assert pool.same("1", "1") is True
    assert pool.counts == {"items": 3, "errors": 0, "timeouts": 1, "restarts": 1}


def test_an_item_that_waits_for_ever_is_killed_too(make_pool, monkeypatch):
    monkeypatch.setattr(math_worker_pool, "WALL_FACTOR", 3.0)
    pool = make_pool(time_limit_s=0.5)
    pool.same("1", "1")
    start = time.monotonic()
    assert pool.same("1", "stall") is False
    assert time.monotonic() - start >= 1.5
    assert pool.counts["timeouts"] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="CPU time of another process is read from /proc")
def test_a_slow_machine_does_not_make_an_answer_wrong(make_pool):
    """The item takes longer than the limit on the wall, and nearly no CPU time."""
    pool = make_pool(time_limit_s=0.1)
    assert pool.same("slow", "slow") is True
    assert pool.counts["timeouts"] == 0


def test_the_clock_starts_when_the_item_does(make_pool):
    pool = make_pool(start_delay=1.5, time_limit_s=1.0)
    assert pool.same("7", "7") is True
    assert pool.counts["timeouts"] == 0


def test_an_exception_is_wrong_and_counted(make_pool):
    pool = make_pool()
    assert pool.same("raise", "raise") is True
    assert pool.counts == {"items": 1, "errors": 1, "timeouts": 0, "restarts": 0}


def test_a_worker_that_dies_is_replaced(make_pool):
    pool = make_pool()
    assert pool.same("1", "die") is False
    assert pool.same("1", "1") is True
    assert pool.counts["restarts"] == 1


def test_threads_get_their_own_answers(make_pool):
    pool = make_pool(2)
    items = [(str(n), str(n + n % 3 % 2)) for n in range(60)]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda item: pool.same(*item), items))
    assert answers == [gold == answer for gold, answer in items]
    assert pool.counts["items"] == 60


def test_an_interrupted_item_does_not_answer_the_next(make_pool, monkeypatch):
    """Ctrl-C while waiting for a late "same": the reply must not be taken for the next item's."""
    pool = make_pool()
    pool.same("1", "1")
    worker = pool._slots.queue[-1]

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(worker, "_reply_in_time", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.same("slow", "slow")
    assert not worker.alive
    assert pool.same("1", "2") is False


def test_a_worker_that_cannot_start_says_how_to_see_why(make_pool):
    pool = make_pool(script="import a_module_that_is_not_there")
    with pytest.raises(StepRSError, match=r"run `.*worker\.py"):
        pool.same("1", "1")


def test_closing_leaves_no_process_and_no_thread(make_pool):
    pool = make_pool()
    pool.same("1", "1")
    worker = pool._slots.queue[-1]
    pool.close()
    worker._reader.join(timeout=10)
    assert not worker.alive
    assert worker._reader not in threading.enumerate()
    assert pool.same("1", "1") is True


@pytest.mark.parametrize("settings", [{"processes": 0}, {"time_limit_s": 0}, {"memory_limit_bytes": -1}])
def test_limits_must_be_positive(monkeypatch, settings):
    monkeypatch.setattr(math_worker_pool, "require_math_verify", lambda: None)
    with pytest.raises(ArgumentError, match="positive"):
        MathWorkerPool(**settings)


@pytest.fixture(scope="module")
def worker_script():
    path = Path(math_worker_pool.__file__).with_name("math_worker.py")
    spec = importlib.util.spec_from_file_location("math_worker_under_test", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", [MemoryError, RecursionError, ValueError])
def test_what_math_verify_raises_is_a_reply(worker_script, kind):
    def same(gold, answer):
        raise kind

    reply = worker_script.reply_to({"id": 3, "gold": "1", "answer": "1"}, same)
    assert reply == {"id": 3, "same": False, "error": kind.__name__}


@pytest.mark.skipif(sys.platform != "linux", reason="reads another process's limits")
@pytest.mark.skipif(importlib.util.find_spec("math_verify") is None, reason="needs the math extra")
def test_the_real_worker_runs_under_its_limits():
    import resource

    pool = MathWorkerPool(1, time_limit_s=20.0, memory_limit_bytes=700 << 20)
    try:
        assert pool.same(r"\frac{1}{2}", "0.5") is True
        process = pool._slots.queue[-1]._process
        assert resource.prlimit(process.pid, resource.RLIMIT_AS) == (700 << 20, 700 << 20)
        soft_seconds, _ = resource.prlimit(process.pid, resource.RLIMIT_CPU)
        assert 20 < soft_seconds < 120
    finally:
        pool.close()
