"""What tasks read from a completion besides the verdict: the way, and where the answer stands."""

from __future__ import annotations

import pytest

from steprs.tasks import get_task
from steprs.tasks.base import Trace
from steprs.types import Problem

TEN = Problem(id="x", prompt="1 2 3 4 10", answer="10", metadata={"numbers": [1, 2, 3, 4], "target": 10})
CHAIN = Problem(id="y", prompt="7 + 5 * 2", answer="24", metadata={"chain": [7, "+", 5, "*", 2]})
GRID = "1 2 3 4 3 4 1 2 2 1 4 3 4 3 2 1"
SUDOKU = Problem(id="z", prompt=". 2 3 4 3 4 1 2 2 1 4 3 4 3 2 .", answer=GRID)


def test_countdown_steps_are_read_whether_or_not_they_hold():
    task = get_task("countdown")
    trace = task.trace(TEN, "2 + 1 3 3 * 4 12 9 - 2 8")
    assert trace == Trace(signature="+*-", equations=("1+2=3", "3*4=12", "9-2=8"))
    # Subtraction does not commute.
    assert task.trace(TEN, "2 - 9 8").equations != task.trace(TEN, "9 - 2 8").equations
    assert task.trace(TEN, "2 + = 3") is None and task.answer_span(TEN, "2 + = 3") is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [("1 + 2 3 3 + 4 7 7 + 3 10", "10"), ("1 + 2 3", "3"), ("10 + 10 20\n20 - 1 19  ", "19"), ("1 + 1 1", "1")],
)
def test_the_answer_of_steps_is_the_last_number(text, answer):
    for name, problem in (("countdown", TEN), ("chain_arithmetic", CHAIN)):
        start, end = get_task(name).answer_span(problem, text)
        assert text[start:end] == answer and text[end:].strip() == ""


def test_chain_operands_commute():
    task = get_task("chain_arithmetic")
    assert task.trace(CHAIN, "5 + 7 12 2 * 12 24") == task.trace(CHAIN, "7 + 5 12 12 * 2 24")
    assert task.trace(CHAIN, "7 + 5 12 12 * 2 24").signature == "+*"


def test_sudoku_names_the_cells_that_were_filled_in():
    task = get_task("sudoku4")
    assert task.trace(SUDOKU, GRID) == Trace(signature=None, equations=("r1c1=1", "r4c4=1"))
    # A changed clue makes the grid wrong but is no cell that was filled in.
    changed = GRID.replace("1 2 3 4", "1 3 3 4", 1)
    assert task.trace(SUDOKU, changed).equations == ("r1c1=1", "r4c4=1")
    assert task.answer_span(SUDOKU, f" {GRID} ") == (1, 32)
    assert task.trace(SUDOKU, "1 2 3") is None and task.answer_span(SUDOKU, "1 2 3") is None


def test_a_task_that_reads_nothing_says_so():
    gym = pytest.importorskip("reasoning_gym") and get_task("reasoning_gym:chain_sum")
    problem = gym.problems("test", 1)[0]
    assert gym.trace(problem, problem.answer) is None and gym.answer_span(problem, problem.answer) is None
