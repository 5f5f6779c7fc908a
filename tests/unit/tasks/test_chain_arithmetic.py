import random

import pytest

from steprs.errors import ArgumentError
from steprs.tasks.chain_arithmetic import ChainArithmeticTask
from steprs.types import Problem

TASK = ChainArithmeticTask()
CHAIN = Problem(id="x", prompt="7 + 5 * 2 - 9", answer="15", metadata={"chain": [7, "+", 5, "*", 2, "-", 9]})


@pytest.mark.parametrize(
    ("completion", "status", "answer_key"),
    [
        ("7 + 5 12 12 * 2 24 24 - 9 15", "right", "15"),
        ("5 + 7 12 2 * 12 24 24 - 9 15", "right", "15"),
        # A false step, two false steps that cancel, precedence instead of left to right, a foreign or missing step.
        ("7 + 5 12 12 * 2 24 24 - 9 14", "wrong", "14"),
        ("7 + 5 13 13 * 2 24 24 - 9 15", "wrong", "15?"),
        ("5 * 2 10 7 + 10 17 17 - 9 8", "wrong", "8"),
        ("7 + 5 12 12 * 2 24 9 - 24 15", "wrong", "15?"),
        ("7 + 5 12 12 + 3 15", "wrong", "15?"),
        ("7 + 8 15", "wrong", "15?"),
        ("7 + 5 12 12 * 2 24 24 - 9 15 15 + 0 15", "wrong", "15?"),
        ("15", "unparsed", None),
        ("7 + 5 12 12 * 2 24 24 - 9", "unparsed", None),
        ("", "unparsed", None),
    ],
)
def test_hand_written_completions(completion, status, answer_key):
    verdict = TASK.score(CHAIN, completion)
    assert (verdict.status, verdict.answer_key, verdict.reward) == (status, answer_key, float(status == "right"))


def test_problems_read_from_left_to_right():
    for problem in TASK.problems("dev", 200):
        words = problem.prompt.split()
        value = int(words[0])
        for op, operand in zip(words[1::2], map(int, words[2::2]), strict=True):
            value = {"+": value + operand, "-": value - operand, "*": value * operand}[op]
            assert 0 <= value <= 99
        assert value == int(problem.answer)


def test_lengths_are_spread_and_ended():
    lengths = [len(p.metadata["chain"]) // 2 for p in TASK.problems("train")]
    assert {steps: round(lengths.count(steps) / len(lengths), 1) for steps in sorted(set(lengths))} == {
        2: 0.2,
        3: 0.4,
        4: 0.4,
    }
    assert TASK.ends_with_eos
    assert TASK.completion_length == 20
    fixed = ChainArithmeticTask(fewest_steps=3, most_steps=3, size=300)
    assert not fixed.ends_with_eos
    assert fixed.completion_length == 12


def test_random_solutions_are_right():
    rng = random.Random(1)
    for problem in TASK.problems("test", 100):
        assert TASK.score(problem, TASK.solution(problem, rng)).status == "right"


def test_a_small_range_gives_what_there_is():
    task = ChainArithmeticTask(fewest_steps=1, most_steps=1, largest_operand=3, size=1000)
    prompts = {p.prompt for split in ("train", "dev", "test") for p in task.problems(split)}
    # 6 sums and 6 products of a pair up to order, 6 differences that are not negative.
    assert len(prompts) == 18


@pytest.mark.parametrize("options", [{"fewest_steps": 5}, {"most_steps": 7}, {"largest_value": 100}, {"size": 3}])
def test_options_out_of_range_are_errors(options):
    with pytest.raises(ArgumentError, match="allowed"):
        ChainArithmeticTask(**options)
