"""Rows and files that are odd and not wrong, and those that are wrong and looked right."""

import importlib.util
import time

import pytest

from steprs.cli.app import main
from steprs.errors import TaskError
from steprs.tasks import get_task
from steprs.tasks.base import UndecidedError
from steprs.tasks.files import countdown
from steprs.tasks.files.countdown import SEARCH_STATES, find_expression
from steprs.tasks.listing import validate_task
from steprs.testing.tasks import check_task

from .rows import sums, write_lines

HAS_MATH = importlib.util.find_spec("math_verify") is not None


def lone(name, row, tmp_path, **options):
    """A task whose one problem is a test row, and that problem."""
    task = get_task(name, test_file=str(write_lines(tmp_path / "one.jsonl", [row])), **options)
    return task, task.problems("test")[0]


@pytest.mark.parametrize("form", ["answer_tag", "boxed", "hash", "number", "tagged_box"])
@pytest.mark.parametrize(
    ("unit", "kept"), [(" dollars", ""), (" %", ""), (" dollars.", ""), (" .", ""), ("%", "%"), ("", "")]
)
def test_a_gold_answer_with_a_unit_tests_the_verifier_all_the_same(unit, kept, form, tmp_path):
    rows = [{**row, "answer": row["answer"].replace("####", "so ####") + unit} for row in sums(60)]
    path = str(write_lines(tmp_path / "a.jsonl", rows))
    report = validate_task(get_task("gsm8k", file=path, answer_format=form), 5)
    assert report["passed"], report["failures"]
    check_task(lambda: get_task("gsm8k", file=path, answer_format=form), limit=3)
    _, problem = lone("gsm8k", {"question": "?", "answer": f"so #### 1,000{unit}"}, tmp_path, answer_format=form)
    assert problem.answer == f"1,000{kept}"


def test_a_solution_left_empty_is_one_that_is_missing(tmp_path):
    puzzle = {"puzzle": "1000040000210003"}
    answers = set()
    for solution in ({}, {"solution": None}, {"solution": ""}, {"solution": " "}):
        answers.add(lone("sudoku-file", {**puzzle, **solution}, tmp_path)[1].answer)
    (tmp_path / "a.csv").write_text(f"puzzle,solution\n{puzzle['puzzle']},\n")
    answers.add(get_task("sudoku-file", test_file=str(tmp_path / "a.csv")).problems("test")[0].answer)
    assert len(answers) == 1
    if HAS_MATH:
        row = {"problem": "?", "answer": None, "solution": "so \\boxed{7}"}
        assert lone("math", row, tmp_path)[1].answer == "7"
        with pytest.raises(TaskError, match="the answer is empty"):
            lone("math", {"problem": "?", "answer": " "}, tmp_path)


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("countdown-file", {"nums": [1, 2, 3], "target": 6}, {"nums": [3, 2, 1], "target": 6}),
        ("gsm8k", {"question": "a  b ?", "answer": "3"}, {"question": "a b ?", "answer": "3"}),
        ("gsm8k", {"question": "a b ?", "answer": "3"}, {"question": "a b ?", "answer": "4"}),
    ],
)
def test_the_digest_covers_what_the_policy_reads(name, first, second, tmp_path):
    digests = [lone(name, row, tmp_path)[0].row_report().digest for row in (first, second, first)]
    assert digests[0] == digests[2] != digests[1]


def test_the_search_for_an_expression_is_bounded(monkeypatch):
    """Six numbers without a solution took half a minute; the bound is one of states, not of seconds."""
    hard = (43, 55, 65, 92, 93, 96)
    start = time.process_time()
    for _ in range(3):
        with pytest.raises(UndecidedError, match=f"not decided within {SEARCH_STATES:,} states"):
            find_expression(hard, 529)
    assert time.process_time() - start < 10, "looked for once, and kept"
    assert find_expression((9, 18, 33, 73, 98), 130) is None, "five numbers are decided"
    with pytest.raises(UndecidedError):
        find_expression((1, 1, 1), 7, states=10)
    assert find_expression((1, 1, 1), 7, states=1_000) is None


def test_problems_that_are_not_decided_are_counted_apart(tmp_path, monkeypatch, capsys):
    bounded = find_expression
    monkeypatch.setattr(countdown, "find_expression", lambda numbers, target: bounded(numbers, target, states=2_000))
    rows = [{"nums": [43, 55, 65, 92, 93, 96], "target": 529}, {"nums": [1, 2, 3], "target": 6}]
    file = str(write_lines(tmp_path / "a.jsonl", rows))
    report = validate_task(get_task("countdown-file", test_file=file))
    assert (report["problems"], report["undecided"], report["gold_right"], report["passed"]) == (2, 1, 1, True)
    with pytest.raises(SystemExit) as done:
        main(["tasks", "validate", "countdown-file", f"test_file={file}"])
    assert not done.value.code and "not decided within the bound   1 of 2" in capsys.readouterr().out
    impossible = str(write_lines(tmp_path / "b.jsonl", [{"nums": [1, 1, 1], "target": 7}]))
    assert not validate_task(get_task("countdown-file", test_file=impossible))["passed"]
