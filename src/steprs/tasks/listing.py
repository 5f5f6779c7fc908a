"""What `steprs tasks list | sample | validate` show, as plain records; the command prints them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..errors import TaskError
from ..types import Problem
from . import FILE_TASKS, TASKS, get_task
from .base import SPLITS, AbstractTask, Split, UndecidedError
from .reasoning_gym_rules import REFUSED, RULE_NOTES, rule_of

# Rows of a validation that are shown in full; all of them are counted.
MAX_FAILURES = 20


def list_tasks() -> list[dict[str, Any]]:
    """One record a built-in task, one a task from a file, then one for the reasoning-gym adapter.

    >>> [record["name"] for record in list_tasks()][:4]
    ['chain_arithmetic', 'countdown', 'sudoku4', 'countdown-file']
    """
    records = [_describe(get_task(name)) for name in sorted(TASKS)]
    records += [
        {
            "name": name,
            "about": (made.__doc__ or "").strip().splitlines()[0],
            "binary": True,
            "completion_length": getattr(made, "completion_length"),  # noqa: B009 - a default of a dataclass
            "source": "file=rows.jsonl (also .json, .csv, .parquet), or hub=<dataset>",
        }
        for name, made in sorted(FILE_TASKS.items())
    ]
    adapter = {
        "name": "reasoning_gym:<name>",
        "about": "A generator of the reasoning-gym package (pip install 'steprs[tasks]'); answers are verified here.",
        "binary": True,
        "completion_length": 256,
    }
    return [*records, adapter]


def list_reasoning_gym(datasets: Sequence[str]) -> list[dict[str, str]]:
    """How each dataset is verified, or why it is refused."""
    return [
        {"name": name, "rule": "refused", "note": REFUSED[name]}
        if name in REFUSED
        else {"name": name, "rule": rule_of(name), "note": RULE_NOTES[rule_of(name)]}
        for name in sorted(datasets)
    ]


def sample_task(task: AbstractTask, split: Split = "test", count: int = 3) -> list[dict[str, Any]]:
    """The first problems of a split with a gold completion and what the verifier says about it."""
    return [_sample(task, problem) for problem in task.problems(split, count)]


def validate_task(task: AbstractTask, limit: int | None = 200) -> dict[str, Any]:
    """Show that the verifier takes every gold answer and refuses corrupted ones.

    Three corruptions a problem: the task's own (a nearby wrong answer), the gold completion without its last word,
    and an empty completion.

    Args:
        task: the task to check.
        limit: problems a split; None for all.

    Returns:
        `task`, `problems`, `undecided` (problems of which no gold completion was found within the task's bound, nor
        that there is none; they are no failure), `gold_right`, `corrupted`, `corrupted_refused`, `failures` (at most
        20 rows: problem id, split, what was given, expected, verdict), `rows` (for a task from a file: its
        `RowReport`; else None) and `passed`, which broken rows of a file prevent.

    >>> validate_task(get_task("sudoku4"), 5)["passed"]
    True
    """
    report = {"problems": 0, "undecided": 0, "gold_right": 0, "corrupted": 0, "corrupted_refused": 0}
    failures: list[dict[str, str]] = []
    for split in SPLITS:
        for problem in task.problems(split, limit):
            report["problems"] += 1
            for check in _checks(task, problem):
                if check is None:
                    report["undecided"] += 1
                    continue
                report["corrupted"] += int(check.kind != "gold")
                fine = (check.got == "right") == (check.kind == "gold")
                report["gold_right" if check.kind == "gold" else "corrupted_refused"] += int(fine)
                if not fine:
                    expected = "right" if check.kind == "gold" else "not right"
                    failures.append({"id": problem.id, "split": split, "expected": expected, **check._asdict()})
    rows = task.row_report()
    return {
        "task": task.name,
        **report,
        "failures": failures[:MAX_FAILURES],
        "rows": rows,
        "passed": not failures and not (rows and rows.counts["broken"]),
    }


class _Check(NamedTuple):
    """One completion and what the verifier says of it."""

    kind: str
    text: str
    got: str


def _checks(task: AbstractTask, problem: Problem) -> Iterator[_Check | None]:
    """Verdicts on the gold completion and on corrupted ones; a single None where the task found no gold one in time."""
    try:
        gold = task.gold_completion(problem)
    except UndecidedError:
        yield None
        return
    except TaskError as error:
        yield _Check("gold", "", str(error))
        return
    texts = {
        "gold": gold,
        "corrupted": task.corrupt(problem, gold),
        "truncated": " ".join(gold.split()[:-1]),
        "empty": "",
    }
    for kind, text in texts.items():
        yield _Check(kind, text, task.score(problem, text).status)


def _describe(task: AbstractTask) -> dict[str, Any]:
    return {
        "name": task.name,
        "about": (type(task).__doc__ or "").strip().splitlines()[0],
        "binary": task.binary,
        "completion_length": task.completion_length,
        **{split: len(task.problems(split)) for split in SPLITS},
    }


def _sample(task: AbstractTask, problem: Problem) -> dict[str, Any]:
    gold = task.gold_completion(problem)
    verdict = task.score(problem, gold)
    return {
        "id": problem.id,
        "prompt": problem.prompt,
        "answer": problem.answer,
        "gold_completion": gold,
        "status": verdict.status,
        "answer_key": verdict.answer_key,
        "solution_key": verdict.solution_key,
    }
