import random
from itertools import permutations

import pytest

from steprs.errors import ArgumentError
from steprs.tasks.countdown import CountdownTask, canonical_expression, derivation_holds
from steprs.tasks.steps import ordered
from steprs.types import Problem

TASK = CountdownTask()
TEN = Problem(id="x", prompt="1 2 3 4 10", answer="10", metadata={"numbers": [1, 2, 3, 4], "target": 10})


def brute_force(numbers, largest_value):
    """target -> set of derivations as sets of steps, by trying every order of every choice: slow and independent."""
    found = {}

    def search(values, steps):
        if len(values) == 1:
            found.setdefault(values[0], set()).add(tuple(sorted(steps)))
        for (i, a), (j, b) in permutations(enumerate(values), 2):
            rest = [value for k, value in enumerate(values) if k not in (i, j)]
            for op, value in (("+", a + b), ("-", a - b), ("*", a * b)):
                if 1 <= value <= largest_value and (op == "-" or a <= b):
                    search([*rest, value], [*steps, (a, op, b, value)])

    search(list(numbers), [])
    return found


@pytest.mark.parametrize("numbers", [(1, 1, 1, 1), (1, 2, 3, 4), (2, 2, 4, 8), (7, 8, 9, 9), (3, 3, 5, 5)])
def test_enumeration_finds_what_brute_force_finds(numbers):
    expected = brute_force(numbers, 31)
    prompts = {problem.id: problem for split in ("train", "dev", "test") for problem in TASK.problems(split)}
    key = " ".join(map(str, numbers))
    targets = {int(name.partition(">")[2]) for name in prompts if name.startswith(f"countdown/{key}>")}
    assert targets == set(expected)
    for target, derivations in expected.items():
        found = TASK.solutions(prompts[f"countdown/{key}>{target}"])
        assert {tuple(sorted(steps)) for steps in found} == derivations
        assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("completion", "status", "answer_key"),
    [
        ("1 + 2 3 3 + 3 6 6 + 4 10", "right", "10"),
        ("2 + 1 3 3 + 4 7 7 + 3 10", "right", "10"),
        ("4 * 3 12 12 - 1 11 11 - 2 9", "wrong", "9"),
        # The right end after a false step, a number used twice, a number not given, a value used up, too few steps.
        ("1 + 2 4 4 + 3 6 6 + 4 10", "wrong", "10?"),
        ("4 + 4 8 8 + 1 9 9 + 1 10", "wrong", "10?"),
        ("5 + 5 10 1 * 10 10 10 * 1 10", "wrong", "10?"),
        ("1 + 2 3 3 + 4 7 3 + 7 10", "right", "10"),
        ("1 + 2 3 1 + 3 4 4 + 6 10", "wrong", "10?"),
        ("1 - 2 1 3 + 4 7 1 + 7 8", "wrong", "8?"),
        # Values outside 1..31.
        ("4 * 3 12 12 * 2 24 24 + 1 25", "wrong", "25"),
        ("3 - 3 0 4 + 2 6 6 * 1 6", "wrong", "6?"),
        ("6 + 4 10", "unparsed", None),
        ("1 + 2 3 3 + 3 6 6 + 4 10 10 * 1 10", "unparsed", None),
        ("1 + 2 = 3 3 + 3 = 6 6 + 4 = 10", "unparsed", None),
        ("1 + 2 3 3 + 3 6 6 / 4 10", "unparsed", None),
        ("1 + 2 3 3 + 3 6 6 + 4 010", "unparsed", None),
        ("1 + 2 3 3 + 3 6 6 + 4 100", "unparsed", None),
        ("1 + 2 3 3 + 3 6 6 + 4", "unparsed", None),
        ("", "unparsed", None),
    ],
)
def test_hand_written_completions(completion, status, answer_key):
    verdict = TASK.score(TEN, completion)
    assert (verdict.status, verdict.answer_key, verdict.reward) == (status, answer_key, float(status == "right"))


def test_white_space_between_words_is_free():
    assert TASK.score(TEN, " 1 + 2  3\n3 + 3 6\n6 + 4 10\n").status == "right"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("3 + 4 7 7 + 2 9 9 + 1 10", "4 + 3 7 2 + 7 9 1 + 9 10", True),
        # Independent steps in another order.
        ("1 + 2 3 3 + 4 7 3 + 7 10", "3 + 4 7 1 + 2 3 7 + 3 10", True),
        # Another association is another derivation.
        ("3 + 4 7 7 + 2 9 9 + 1 10", "3 + 4 7 1 + 2 3 7 + 3 10", False),
        ("2 * 4 8 8 + 3 11 11 - 1 10", "3 - 1 2 2 * 4 8 8 + 2 10", False),
        ("2 * 4 8 8 + 3 11 11 - 1 10", "2 * 4 8 8 - 1 7 7 + 3 10", False),
    ],
)
def test_solution_key_is_blind_to_commuting_only(one, other, same):
    first, second = TASK.score(TEN, one), TASK.score(TEN, other)
    assert first.status == second.status == "right"
    assert (first.solution_key == second.solution_key) is same


def test_solution_key_where_an_earlier_result_equals_a_given_number():
    """2 + 2 = 4 beside a given 4: the steps alone do not say which 4 is meant, so every writing has one key."""
    numbers = (2, 2, 4, 4)
    steps = ((2, "+", 2, 4), (4, "*", 4, 16), (4, "+", 16, 20))
    other = ((4, "*", 4, 16), (2, "+", 2, 4), (16, "+", 4, 20))
    assert derivation_holds(steps, numbers, 31)
    assert derivation_holds(other, numbers, 31)
    assert canonical_expression(steps, numbers) == canonical_expression(other, numbers) == "(((2 + 2) * 4) + 4)"


def test_keys_of_a_problem_are_as_many_as_its_sets_of_steps():
    for problem in TASK.problems("test", 40):
        steps = TASK.solutions(problem)
        numbers = tuple(problem.metadata["numbers"])
        keys = {canonical_expression(derivation, numbers) for derivation in steps}
        assert len(keys) == len({tuple(sorted(ordered(*step) for step in derivation)) for derivation in steps})


def test_solutions_are_right_and_reach_every_derivation():
    rng = random.Random(0)
    problem = max(TASK.problems("dev"), key=lambda p: len(TASK.solutions(p)))
    verdicts = [TASK.score(problem, TASK.solution(problem, rng)) for _ in range(1500)]
    assert {verdict.status for verdict in verdicts} == {"right"}
    numbers = tuple(problem.metadata["numbers"])
    assert {v.solution_key for v in verdicts} == {canonical_expression(d, numbers) for d in TASK.solutions(problem)}


def test_the_order_of_the_numbers_tells_nothing():
    """Shown orders are spread: for sorted problems with four different numbers, each place is first about as often."""
    problems = [p for p in TASK.problems("train") if len(set(p.metadata["numbers"])) == 4]
    first = [sorted(p.metadata["numbers"]).index(p.metadata["numbers"][0]) for p in problems]
    shares = [first.count(place) / len(first) for place in range(4)]
    assert shares == pytest.approx([0.25] * 4, abs=0.03)


@pytest.mark.parametrize(
    "options", [{"numbers": 5}, {"numbers": 1}, {"largest_number": 40}, {"largest_value": 100}, {"largest_number": 1}]
)
def test_options_out_of_range_are_errors(options):
    with pytest.raises(ArgumentError, match="allowed: 2 to 4 numbers"):
        CountdownTask(**options)


def test_a_smaller_variant_works():
    task = CountdownTask(numbers=3, largest_number=5)
    problem = task.problems("test")[0]
    assert task.completion_length == 8
    assert task.score(problem, task.gold_completion(problem)).status == "right"
