"""Options of another type than declared are refused before anything is read, with what is allowed."""

import pytest

from steprs.errors import ConfigError
from steprs.tasks import get_task


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("gsm8k", {"file": 123}, r"task gsm8k: file is 123 \(a whole number\); allowed: a text or null; put it in"),
        ("gsm8k", {"file": ["a.jsonl"]}, r"file is \['a.jsonl'\] \(a list\); allowed: a text or null$"),
        ("gsm8k", {"first_rows": 1.5}, r"first_rows is 1.5 \(a number\); allowed: a whole number or null"),
        ("gsm8k", {"first_rows": True}, r"first_rows is True \(true or false\)"),
        ("gsm8k", {"question_column": 5}, "question_column is 5"),
        ("gsm8k", {"completion_length": 12.5}, "completion_length is 12.5 .*allowed: a whole number"),
        ("gsm8k", {"completion_length": None}, r"completion_length is None \(null\)"),
        ("gsm8k", {"instruction": 5}, "instruction is 5"),
        ("gsm8k", {"bad_rows": ["skip"]}, "bad_rows is"),
        ("gsm8k", {"max_bad_share": float("nan")}, "max_bad_share is nan .*allowed: a finite number"),
        ("gsm8k", {"max_bad_share": "1e-2"}, "max_bad_share is '1e-2'"),
        ("gsm8k", {"max_bad_share": True}, "max_bad_share is True"),
        ("countdown-file", {"count": "three"}, r"count is 'three' \(a text\); allowed: a whole number or null"),
        ("countdown-file", {"count": False}, "count is False"),
        ("sudoku-file", {"puzzle_column": {}}, "puzzle_column is {}"),
        ("countdown", {"numbers": "3"}, "task countdown: numbers is '3'"),
        ("sudoku4", {"size": 1e3}, "size is 1000.0"),
        ("chain_arithmetic", {"most_steps": True}, "most_steps is True"),
        ("reasoning_gym:leg_counting", {"test_size": "many"}, "test_size is 'many'"),
    ],
)
def test_the_type_is_the_annotations(task, options, message):
    source = {"file": "a.jsonl"} if task in ("gsm8k", "countdown-file", "sudoku-file") else {}
    with pytest.raises(ConfigError, match=message):
        get_task(task, **{**source, **options})


def test_what_is_allowed_stays_allowed():
    task = get_task("gsm8k", file="a.jsonl", max_bad_share=1, first_rows=None, bad_rows="skip", instruction="")
    assert (task.max_bad_share, task.first_rows) == (1, None)
