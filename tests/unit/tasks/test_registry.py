import builtins

import pytest

from steprs.errors import ConfigError, DependencyError
from steprs.tasks import FILE_TASKS, TASKS, get_task, listing
from steprs.tasks.countdown import CountdownTask


def test_names_are_the_tasks_own():
    assert {name: get_task(name).name for name in TASKS} == {name: name for name in TASKS}


def test_options_reach_the_task():
    assert get_task("countdown", numbers=3) == CountdownTask(numbers=3)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("countdwn", {}, "unknown task 'countdwn'; allowed: .*Did you mean 'countdown'"),
        ("countdown", {"number": 3}, "no option 'number'; allowed: .*Did you mean 'numbers'"),
        ("countdown", {"numbers": 9}, r"task\.options: .*allowed: 2 to 4 numbers"),
        ("reasoning_gym:composite", {}, "not offered: it mixes other datasets"),
    ],
)
def test_errors_say_what_is_allowed(name, options, message):
    with pytest.raises(ConfigError, match=message):
        get_task(name, **options)


def test_without_reasoning_gym_the_error_holds_the_command(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("reasoning_gym"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr("importlib.import_module", without)
    with pytest.raises(DependencyError, match=r"pip install 'steprs\[tasks\]'"):
        get_task("reasoning_gym:chain_sum")


def test_the_list_holds_every_task_and_its_sizes():
    records = {record["name"]: record for record in listing.list_tasks()}
    assert set(records) == {*TASKS, *FILE_TASKS, "reasoning_gym:<name>"}
    assert records["gsm8k"]["completion_length"] == 256 and "file=" in records["gsm8k"]["source"]
    assert records["countdown"]["train"] == 7424
    assert all(record["about"] for record in records.values())


def test_samples_are_right():
    for name in TASKS:
        for record in listing.sample_task(get_task(name), "dev", 2):
            assert record["status"] == "right"
            assert record["prompt"]


def test_validation_shows_what_fails():
    class Lenient:
        """A verifier that takes everything but the gold answer of the second test problem."""

        name = "lenient"
        task = get_task("sudoku4")

        def __getattr__(self, attribute):
            return getattr(self.task, attribute)

        def score(self, problem, completion):
            second = self.task.problems("test", 2)[1]
            fine = problem.id != second.id or completion != second.answer
            return self.task.score(problem, problem.answer if fine else "")

    report = listing.validate_task(Lenient(), 2)
    assert not report["passed"]
    assert report["problems"] == 6
    assert report["gold_right"] == 5
    assert report["corrupted"] == 18
    assert report["corrupted_refused"] == 0
    (missed,) = [row for row in report["failures"] if row["kind"] == "gold"]
    assert missed["id"] == get_task("sudoku4").problems("test", 2)[1].id
    assert {row["kind"] for row in report["failures"]} == {"gold", "corrupted", "truncated", "empty"}
