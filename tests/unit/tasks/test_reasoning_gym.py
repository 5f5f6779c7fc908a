"""The reasoning-gym adapter: which scorers run on model text, and that none of them can hurt or be fooled."""

import inspect
import re

import pytest

from steprs.errors import ConfigError, TaskError
from steprs.tasks.base import SPLITS
from steprs.tasks.listing import list_reasoning_gym, validate_task
from steprs.tasks.reasoning_gym import ReasoningGymTask
from steprs.tasks.reasoning_gym_rules import REFUSED, RULES, rule_of
from steprs.testing.tasks import check_task
from steprs.types import Problem

DATASETS = pytest.importorskip("reasoning_gym.factory").DATASETS
# One of every rule, quick to generate.
SAMPLED = [
    "basic_arithmetic", "chain_sum", "countdown", "cryptarithm", "jugs", "kakurasu", "knights_knaves", "maze",
    "mini_sudoku", "n_queens", "number_sorting", "palindrome_generation", "palindrome_partitioning", "shortest_path",
    "spiral_matrix", "string_insertion", "tower_of_hanoi",
]  # fmt: skip
# Slow to start or to generate; the others of the package are checked by the slow test.
SLOW = {"arc_agi", "figlet_font", "futoshiki", "group_anagrams", "zebra_puzzles"}


def small(name, **options):
    return ReasoningGymTask(name, train_size=6, dev_size=3, test_size=3, **options)


@pytest.mark.parametrize("name", SAMPLED)
def test_datasets_conform(name):
    check_task(lambda: small(name), limit=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(DATASETS) - set(REFUSED) - set(SAMPLED) - SLOW))
def test_every_offered_dataset_conforms(name):
    check_task(lambda: small(name), limit=2)


def test_tables_name_datasets_of_the_package():
    assert set(RULES) | set(REFUSED) <= set(DATASETS)
    assert not set(RULES) & set(REFUSED)


def test_no_scorer_that_runs_evaluates_text():
    """The sources of the scorers that are used, and of every method they call, hold no evaluation."""
    forbidden = re.compile(r"\beval\(|\bexec\(|parse_expr|sympify|literal_eval|Fraction\(")
    for name in (name for name, rule in RULES.items() if rule == "scorer"):
        source = inspect.getsource(DATASETS[name][0].score_answer)
        for method in set(re.findall(r"self\.(\w+)\(", source)):
            # `_Game` of sokoban is an attribute of the instance; its module holds no evaluation either.
            owner = DATASETS[name][0]
            source += inspect.getsource(getattr(owner, method, inspect.getmodule(owner)))
        assert not forbidden.search(source), name


def test_scorers_that_evaluate_text_are_never_called(monkeypatch):
    """Whatever the text, the package's own scorer of these datasets does not run."""
    evaluating = [
        "binary_matrix", "countdown", "intermediate_integration", "n_queens", "number_sorting", "puzzle24",
        "simple_integration", "spiral_matrix", "string_insertion", "coin_flip",
    ]  # fmt: skip
    for name in evaluating:
        assert rule_of(name) != "scorer"

    def called(self, answer, entry):
        raise AssertionError("own scorer called")

    for name in ("n_queens", "spiral_matrix", "countdown"):
        monkeypatch.setattr(DATASETS[name][0], "score_answer", called)
        task = small(name)
        problem = task.problems("test", 1)[0]
        for text in (task.gold_completion(problem), "__import__('os')", "[1, 2]", "9**9**9**9"):
            task.score(problem, text)


def test_splits_are_disjoint_by_question_even_where_the_generator_repeats_itself():
    """Few different questions: test and dev take theirs, training gets what is left, nothing twice."""
    task = ReasoningGymTask("coin_flip", train_size=40, dev_size=6, test_size=6, min_trials=3, max_trials=6)
    questions = {}
    for split in SPLITS:
        for problem in task.problems(split):
            assert questions.setdefault(" ".join(problem.prompt.split()), split) == split
    assert len(questions) == sum(len(task.problems(split)) for split in SPLITS)
    assert len(task.problems("test")) == len(task.problems("dev")) == 6
    assert 0 < len(task.problems("train")) < 40


def test_splits_do_not_depend_on_what_is_asked_first():
    forwards, backwards = small("chain_sum"), small("chain_sum")
    one = [forwards.problems(split) for split in SPLITS]
    other = [backwards.problems(split) for split in reversed(SPLITS)]
    assert one == other[::-1]
    assert small("chain_sum").problems("train", 2) == one[0][:2]


def test_a_generator_with_too_few_questions_is_an_error():
    task = ReasoningGymTask("coin_flip", train_size=5, dev_size=5, test_size=50, min_trials=3, max_trials=3)
    task.problems("test")
    with pytest.raises(TaskError, match="make the splits smaller"):
        task.problems("train")


def test_partial_credit_is_no_reward():
    """The package gives 0.01 to a wrong answer and half a point to a long path; here it is 0 or 1."""
    task = small("tower_of_hanoi")
    problem = task.problems("test", 1)[0]
    first_move = problem.answer.splitlines()[0]
    own = DATASETS["tower_of_hanoi"][0].score_answer(task._sources["test"], first_move, task._entry("test", 0))
    assert own == 0.05
    assert task.score(problem, first_move).reward == 0.0
    assert task.score(problem, problem.answer).reward == 1.0


@pytest.mark.parametrize(
    ("completion", "status", "answer_key"),
    [
        ("1 + 2 + 3 + 18", "right", "24"),
        ("(1+2)*3 + 18 - 3", "wrong", "24?"),
        ("24", "wrong", "24?"),
        ("18 - 3 - 2 - 1", "wrong", "12"),
        ("18/(1-1)", "wrong", "division by zero"),
        ("24.0", "unparsed", None),
        ("4**2 + 8", "unparsed", None),
    ],
)
def test_expressions_go_through_our_grammar(completion, status, answer_key):
    task = small("puzzle24")
    problem = Problem(id="x", prompt="x", answer="", metadata={"numbers_and_target": "1 2 3 18|24"})
    verdict = task.score(problem, completion)
    assert (verdict.status, verdict.answer_key) == (status, answer_key)


def test_different_right_expressions_have_different_solution_keys():
    problem = Problem(id="x", prompt="x", answer="", metadata={"numbers_and_target": "2 3 4|24"})
    keys = [small("puzzle24").score(problem, text).solution_key for text in ("2*3*4", "(3*2)*4", "2*(3*4)")]
    assert keys[0] == keys[1] != keys[2]


def test_numbers_are_compared_as_numbers_where_the_rule_says_so():
    task = small("chain_sum", min_terms=2, max_terms=2, min_digits=4, max_digits=4)
    problem = task.problems("test", 1)[0]
    value = int(problem.answer)
    verdicts = [task.score(problem, text) for text in (f"{value:,}", f"{value}.0", f"{value + 1}", "1e999999999")]
    assert [verdict.status for verdict in verdicts] == ["right", "right", "wrong", "wrong"]
    assert verdicts[0].answer_key == verdicts[1].answer_key == str(value)


def test_answers_in_tags():
    task = small("maze", answer_format="answer_tag")
    problem = task.problems("test", 1)[0]
    assert "<answer>" in problem.prompt
    assert task.score(problem, f"because ... <answer>{problem.answer}</answer>").status == "right"
    assert task.score(problem, problem.answer).status == "unparsed"


def test_an_own_scorer_that_raises_refuses_the_text(monkeypatch):
    task = small("jugs")
    problem = task.problems("test", 1)[0]

    def broken(answer, entry):
        raise RecursionError

    monkeypatch.setattr(task._sources["test"], "score_answer", broken)
    assert task.score(problem, "[]").status == "wrong"


def test_scoring_leaves_the_entry_alone():
    """A scorer that marks its entry must not change later verdicts."""
    task = small("jugs")
    problem = task.problems("test", 1)[0]
    before = repr(task._entry("test", 0))
    for text in (problem.answer, "[]", '["fill A"]'):
        task.score(problem, text)
    assert repr(task._entry("test", 0)) == before


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("chain_sums", {}, "Did you mean 'chain_sum'"),
        ("rush_hour", {}, "no gold answer"),
        ("word_ladder", {}, "hash seed"),
        ("chain_sum", {"max_term": 3}, "does not take the options"),
        ("chain_sum", {"min_terms": 5, "max_terms": 2}, "does not take the options"),
        ("chain_sum", {"answer_format": "answer-tag"}, "Did you mean 'answer_tag'"),
        ("chain_sum", {"test_size": 0}, "at least 1"),
    ],
)
def test_errors(name, options, message):
    with pytest.raises(ConfigError, match=message):
        ReasoningGymTask(name, **options)


def test_the_list_says_how_each_dataset_is_verified():
    records = {record["name"]: record for record in list_reasoning_gym(list(DATASETS))}
    assert len(records) == len(DATASETS)
    assert records["countdown"]["rule"] == "expression"
    assert records["composite"]["rule"] == "refused"
    assert all(record["note"] for record in records.values())


def test_validation_passes():
    report = validate_task(small("palindrome_generation"), 3)
    assert report["passed"], report["failures"]
