"""What the tasks read from rows, how they are asked, and how answers are judged; conformance of every format."""

import importlib.util
import json
import threading
import time
from pathlib import Path

import pytest

from steprs.errors import TaskError
from steprs.tasks import FILE_TASKS, get_task
from steprs.tasks.base import SPLITS
from steprs.tasks.files.columns import RowFault
from steprs.tasks.files.countdown import find_expression
from steprs.tasks.files.equations import equations_in
from steprs.tasks.files.loading import Item
from steprs.tasks.listing import sample_task, validate_task
from steprs.tasks.verifiers.countdown import check_countdown
from steprs.testing.tasks import check_task

from .rows import LATEX, countdown_rows, math_rows, sums, write_lines

HAS_MATH = importlib.util.find_spec("math_verify") is not None
CASES = [
    *(("gsm8k", form) for form in ("answer_tag", "boxed", "hash", "number", "tagged_box")),
    *(
        pytest.param("math", form, marks=pytest.mark.skipif(not HAS_MATH, reason="needs the math extra"))
        for form in ("answer_tag", "boxed", "tagged_box")
    ),
    *(("countdown-file", form) for form in ("answer_tag", "plain")),
    *(("sudoku-file", form) for form in ("answer_tag", "plain")),
]


def sudoku_rows():
    found = get_task("sudoku4", size=300)
    cells = [(p.prompt.replace(" ", ""), p.answer.replace(" ", "")) for s in SPLITS for p in found.problems(s)]
    return [{"Puzzle": clues.replace(".", "0"), "Solution": grid} for clues, grid in cells]


ROWS = {
    "gsm8k": lambda: sums(60),
    "math": lambda: math_rows((*LATEX, *map(str, range(100, 150)))),
    "countdown-file": countdown_rows,
    "sudoku-file": sudoku_rows,
}


@pytest.mark.parametrize(("name", "form"), CASES)
def test_a_task_conforms_in_every_format(name, form, tmp_path):
    path = str(write_lines(tmp_path / "rows.jsonl", ROWS[name]()))
    check_task(lambda: get_task(name, file=path, answer_format=form), limit=8)


def one(name, row, tmp_path, **options):
    """The only problem of a file with one row."""
    task = get_task(name, test_file=str(write_lines(tmp_path / "one.jsonl", [row])), **options)
    return task, task.problems("test")[0]


def status(task, problem, text):
    return task.score(problem, text).status


def test_gsm8k_reads_the_solution_without_its_marks(tmp_path):
    row = {"question": "Eggs ?", "answer": "48/2 = <<48/2=24>>24 in May.\n24+48 = <<24+48=72>>72\n#### 1,072"}
    task, problem = one("gsm8k", row, tmp_path)
    assert problem.answer == "1,072"
    assert (
        problem.prompt
        == "Respond in the following format:\n<reasoning>\n...\n</reasoning>\n<answer>\n...\n</answer>\n\nEggs ?"
    )
    gold = task.gold_completion(problem)
    assert gold == "<reasoning>\n48/2 = 24 in May.\n24+48 = 72\n</reasoning>\n<answer>\n1,072\n</answer>"
    assert task.trace(problem, gold).equations == ("48/2=24", "24+48=72")
    assert task.trace(problem, gold).signature == "/+"
    span = task.answer_span(problem, gold)
    assert gold[slice(*span)] == "1,072"


@pytest.mark.parametrize(
    ("answer", "text", "expected", "key"),
    [
        ("#### 1,234", "<answer>1234</answer>", "right", "1234"),
        ("#### 1,234", "<answer>$1,234.00</answer>", "right", "1234"),
        ("#### 1,234", "<answer> 1,234 dollars. </answer>", "right", "1234"),
        ("#### 1,234", "<answer>1</answer>", "wrong", "1"),
        ("#### 1,234", "<answer>1,23</answer>", "unparsed", None),
        ("#### 0.75", "<answer>3/4</answer>", "right", "3/4"),
        ("#### 0.75", "<answer>\\frac{3}{4}</answer>", "right", "3/4"),
        ("#### -5", "<answer>5</answer>", "wrong", "5"),
        ("#### -5", "<answer>−5</answer>", "right", "-5"),
        ("#### 50", "<answer>50%</answer>", "right", "50"),
        ("#### 50", "<answer>50", "unparsed", None),
        ("#### 50", "<answer></answer>", "unparsed", None),
        ("#### 50", "the answer is 50", "unparsed", None),
        ("#### 50", "<answer>40</answer> no <answer>50</answer>", "right", "50"),
        ("50", "<answer>x = 50</answer>", "unparsed", None),
    ],
)  # fmt: skip
def test_gsm8k_judges_numbers_between_tags(answer, text, expected, key, tmp_path):
    task, problem = one("gsm8k", {"question": "?", "answer": answer}, tmp_path)
    verdict = task.score(problem, text)
    assert (verdict.status, verdict.answer_key) == (expected, key)


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("hash", "so\n#### 1,072", "right"), ("hash", "#### 1072 eggs", "right"), ("hash", "1072", "unparsed"),
        ("hash", "#### 2144/2", "unparsed"), ("boxed", "\\boxed{1,072}", "right"),
        ("boxed", "\\boxed{1{,}072}", "right"),
        ("boxed", "\\boxed{\\$1072}", "right"), ("boxed", "\\boxed{1072", "unparsed"),
        ("boxed", "\\boxed{1072 eggs}", "right"),
        ("number", "So 1000 + 72 = 1,072 eggs", "right"), ("number", "1,072 and 3", "wrong"),
        ("number", "none", "unparsed"),
        ("tagged_box", "<answer>\\boxed{1072}</answer>", "right"), ("tagged_box", "\\boxed{1072}", "unparsed"),
    ],
)  # fmt: skip
def test_gsm8k_in_other_formats(form, text, expected, tmp_path):
    task, problem = one("gsm8k", {"question": "?", "answer": "#### 1072"}, tmp_path, answer_format=form)
    assert status(task, problem, text) == expected


def test_prompts(tmp_path):
    row = {"question": "1 + 1 ?", "answer": "2"}
    says = {
        form: one("gsm8k", row, tmp_path, answer_format=form)[1].prompt
        for form in ("boxed", "hash", "number", "tagged_box")
    }
    assert says["boxed"] == "1 + 1 ?\nPlease reason step by step, and put your final answer within \\boxed{}."
    assert says["number"] == "1 + 1 ?"
    assert says["hash"].startswith("1 + 1 ?\n") and "####" in says["hash"]
    assert "<answer>" in says["tagged_box"] and "\\boxed{}" in says["tagged_box"]
    assert one("gsm8k", row, tmp_path, instruction="Be brief.")[1].prompt == "Be brief.\n\n1 + 1 ?"
    assert one("gsm8k", row, tmp_path, instruction="")[1].prompt == "1 + 1 ?"


def test_columns_by_their_usual_names_or_as_configured(tmp_path):
    assert one("gsm8k", {"Question": "?", "ANSWER": 7}, tmp_path)[1].answer == "7"
    assert one("gsm8k", {"q": "?", "a": 7.5}, tmp_path, question_column="q", answer_column="a")[1].answer == "7.5"
    with pytest.raises(TaskError, match="no column a; it has question, answer"):
        one("gsm8k", {"question": "?", "answer": "7"}, tmp_path, answer_column="a")
    both = one("gsm8k", {"problem": "no", "question": "yes", "answer": "7"}, tmp_path)[1]
    assert both.prompt.endswith("yes")


@pytest.mark.skipif(not HAS_MATH, reason="needs the math extra")
class TestMath:
    def test_layouts(self, tmp_path):
        """MATH-500 has an answer column, MATH a box in its solution only, AIME an integer."""
        rows = [
            {
                "problem": "a ?",
                "solution": "so $\\boxed{\\frac{1}{2}}$ it is",
                "answer": "\\frac{1}{2}",
                "unique_id": "x",
            },
            {"problem": "b ?", "solution": "first \\boxed{1}, then $\\boxed{\\dfrac{3} {4}}$."},
            {"Problem": "c ?", "Answer": 73},
            {"problem": "d ?", "answer": "The answer is \\boxed{7}."},
        ]
        task = get_task("math", test_file=str(write_lines(tmp_path / "a.jsonl", rows)))
        found = {p.prompt.split(" ?")[0]: p for p in task.problems("test")}
        assert {name: p.answer for name, p in found.items()} == {
            "a": "\\frac{1}{2}",
            "b": "\\dfrac{3} {4}",
            "c": "73",
            "d": "7",
        }
        assert found["b"].metadata["solution"] == "first 1, then $\\dfrac{3} {4}$."
        assert task.gold_completion(found["a"]) == "so $\\frac{1}{2}$ it is\n\\boxed{\\frac{1}{2}}"
        assert task.gold_completion(found["c"]) == "\\boxed{73}"

    @pytest.mark.parametrize(
        ("row", "reason"),
        [
            ({"problem": "?", "solution": "no box"}, "no answer, and no .boxed"),
            ({"problem": "?"}, "no column answer or solution or rationale"),
            ({"problem": "?", "answer": "\\boxed{}"}, "has 0 characters"),
            ({"problem": "?", "answer": "x" * 1001}, "has 1001 characters"),
            ({"problem": "?", "answer": "\\frac{1}{"}, "the verifier calls the gold answer .* wrong|unparsed"),
        ],
    )
    def test_gold_answers_that_cannot_be_used(self, row, reason, tmp_path):
        with pytest.raises(TaskError, match=reason):
            one("math", row, tmp_path)

    def test_right_answers_vote_together_and_apart_from_wrong_ones(self, tmp_path):
        task, problem = one("math", {"problem": "?", "answer": "\\frac{1}{2}"}, tmp_path)
        verdicts = {
            text: task.score(problem, f"\\boxed{{{text}}}")
            for text in ("0.5", "\\dfrac{2}{4}", "\\frac12", "\\frac{1}{3}", "2", "x+1")
        }
        assert {v.status for v in verdicts.values()} == {"right", "wrong"}
        assert {v.answer_key for v in verdicts.values() if v.status == "right"} == {"1/2"}
        assert [v.answer_key for v in verdicts.values() if v.status == "wrong"] == ["1/3", "2", "x+1"]

    def test_failures_of_the_verifier_are_counted(self, tmp_path):
        task, problem = one("math", {"problem": "?", "answer": "\\sqrt{2}"}, tmp_path)
        before = task.verifier_failures
        assert status(task, problem, "\\boxed{\\sqrt{}}}{") in ("wrong", "unparsed")
        task.score(problem, "\\boxed{\\frac{1}{0}^{\\infty}_}")
        assert task.score(problem, "\\boxed{\\sqrt{2}}").status == "right"
        assert task.verifier_failures >= before
        from steprs.tasks.verifiers.math_worker_pool import shared_pool

        shared_pool().counts["timeouts"] += 1
        assert task.verifier_failures >= before + 1
        shared_pool().counts["timeouts"] -= 1


def test_countdown_reads_both_layouts(tmp_path):
    rows = [
        {"input": "19,36,55,7", "output": "65"},
        {"nums": [44, 19, 35], "target": 98},
        {"nums": "[1 2 3]", "target": "9"},
    ]
    task = get_task("countdown-file", test_file=str(write_lines(tmp_path / "a.jsonl", rows)))
    found = {p.answer: p.metadata["numbers"] for p in task.problems("test")}
    assert found == {"65": [19, 36, 55, 7], "98": [44, 19, 35], "9": [1, 2, 3]}
    problem = next(p for p in task.problems("test") if p.answer == "65")
    assert problem.id == "countdown-file/7 19 36 55>65" and "19, 36, 55, 7" in problem.prompt and "65" in problem.prompt
    tagged = "<reasoning>hm</reasoning><answer>{}</answer>".format
    assert status(task, problem, tagged("55 - 7 + 36 - 19")) == "right"
    assert (
        task.score(problem, tagged("(55 - 7) + (36 - 19) = 65")).solution_key
        == task.score(problem, tagged("36 - 19 + (55 - 7)")).solution_key
    )
    assert status(task, problem, tagged("55 + 10")) == "wrong"
    assert task.score(problem, tagged("55 + 10")).answer_key == "65?"
    assert status(task, problem, tagged("9**9**9**9")) == "unparsed"
    assert status(task, problem, "55 - 7 + 36 - 19") == "unparsed"
    assert task.trace(problem, tagged("55 - 7 + 36 - 19")).signature == "-+-"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"nums": [1], "target": 1}, "1 numbers; allowed are 2 to 6"),
        ({"nums": [1, -2], "target": 1}, "a number is '-2'"),
        ({"nums": [1, 2], "target": 1.5}, "the target is '1.5'"),
        ({"nums": {"a": 1}, "target": 1}, "the numbers are a dict"),
        ({"nums": [1, 2]}, "no column target or output"),
    ],
)
def test_countdown_rows_that_cannot_be_used(row, reason, tmp_path):
    with pytest.raises(TaskError, match=reason):
        one("countdown-file", row, tmp_path)


@pytest.mark.parametrize("numbers", [(2, 3), (1, 5, 7), (7, 19, 36, 55), (1, 1, 5, 5)])
def test_expressions_found_by_search_are_right(numbers):
    reached = 0
    for target in range(0, 30):
        expression = find_expression(numbers, target)
        if expression is not None:
            reached += 1
            assert check_countdown(f"{' '.join(map(str, numbers))}|{target}", expression) == "right", expression
    assert reached >= 2


def test_the_search_finds_fractions_and_says_what_cannot_be_reached(tmp_path):
    assert check_countdown("3 3 8 8|24", find_expression((3, 3, 8, 8), 24)) == "right"
    assert find_expression((1, 1, 1), 7) is None
    task = get_task(
        "countdown-file", test_file=str(write_lines(tmp_path / "a.jsonl", [{"nums": [1, 1, 1], "target": 7}]))
    )
    report = validate_task(task)
    assert not report["passed"]
    assert report["failures"][0]["got"].endswith("no expression of [1, 1, 1], each used once, reaches 7")


def test_sudoku(tmp_path):
    row = {"Puzzle": "1000300023004000", "Solution": "1234341223414123"}
    with pytest.raises(TaskError, match="has .* solutions, not one|is not that of the puzzle"):
        one("sudoku-file", row, tmp_path)
    row = next(row for row in sudoku_rows())
    task, problem = one("sudoku-file", row, tmp_path)
    assert row["Puzzle"] in problem.prompt and "2x2 box" in problem.prompt and "<answer>" in problem.prompt
    tagged = "<answer>\n{}\n</answer>".format
    grid = row["Solution"]
    assert status(task, problem, tagged(grid)) == "right"
    rows = "\n".join(grid[i : i + 4] for i in range(0, 16, 4))
    assert status(task, problem, tagged(rows)) == "right"
    assert task.score(problem, tagged(grid[::-1])).answer_key == grid[::-1]
    assert status(task, problem, tagged(grid[:-1])) == "unparsed"
    assert status(task, problem, tagged("1" * 16)) == "wrong"
    assert status(task, problem, grid) == "unparsed"
    assert one("sudoku-file", {"puzzle": row["Puzzle"]}, tmp_path)[1].answer == grid, "a missing solution is computed"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"puzzle": "0" * 16}, "has 288 solutions, not one"),
        ({"puzzle": "1100000000000000"}, "has no solutions, not one"),
        ({"puzzle": "0" * 81}, "81 characters.*4 x 4 only"),
        ({"puzzle": "12345"}, "5 characters"),
        ({"puzzle": "1234341221434321"}, "no empty cell"),
    ],
)
def test_sudokus_that_cannot_be_used(row, reason, tmp_path):
    with pytest.raises(TaskError, match=reason):
        one("sudoku-file", row, tmp_path)


def test_renamed_sudokus_are_the_same_problem(tmp_path):
    row = sudoku_rows()[0]
    renamed = {key: value.translate(str.maketrans("1234", "2341")) for key, value in row.items()}
    report = get_task("sudoku-file", test_file=str(write_lines(tmp_path / "a.jsonl", [row, renamed]))).row_report()
    assert report.used["test"] == 1


@pytest.mark.parametrize(
    ("text", "equations", "signature"),
    [
        ("5 * 4 = 20 and 4 * 5 = 20", ("4*5=20", "4*5=20"), "**"),
        ("$1,200 - 200 = $1000.", ("1200-200=1000",), "-"),
        ("2 + 3 * 4 = 14", ("2+3*4=14",), "+*"),
        ("x = 3 and y = 4", (), None),
        ("1.5 × 2 = 3.0", ("2*1.5=3.0",), "*"),
        ("1+" * 10_000 + "1", (), None),
    ],
)
def test_equations_in_text(text, equations, signature):
    trace = equations_in(text)
    if signature in ("**", "*"):
        assert len(trace.equations) == len(equations) and len(set(trace.equations)) == 1
    else:
        assert trace.equations == equations
    assert trace.signature == signature


GOLDEN = [
    json.loads(line)
    for line in (Path(__file__).parents[3] / "golden" / "answers.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize(
    ("convention", "name", "form", "column"),
    [
        ("gsm8k", "gsm8k", "hash", "answer"),
        pytest.param(
            "boxed", "math", "boxed", "answer", marks=pytest.mark.skipif(not HAS_MATH, reason="needs the math extra")
        ),
        ("answer_tag", "gsm8k", "answer_tag", "answer"),
        ("countdown", "countdown-file", "plain", None),
    ],
)
def test_every_golden_answer_is_judged_by_its_task(convention, name, form, column, tmp_path):
    """The committed table of answers that others read wrongly, through rows and prompts of a file."""
    judged = 0
    for row in (row for row in GOLDEN if row["convention"] == convention):
        numbers, _, target = row["gold"].partition("|")
        values = {column: row["gold"]} if column else {"nums": [int(n) for n in numbers.split()], "target": target}
        task, problem = one(name, {"question": "?", **values}, tmp_path, answer_format=form)
        assert status(task, problem, row["completion"]) == row["expected"], row
        judged += 1
    assert judged >= 5


HOSTILE = {
    "tower": "9**9**9**9",
    "tagged tower": "<answer>9**9**9**9</answer>",
    "million letters": "a" * 10**6,
    "million digits in a tag": f"<answer>{'1' * 10**6}</answer>",
    "million digits behind a mark": "#### " + "1" * 10**6,
    "million digits in a box": "\\boxed{" + "1" * 10**6 + "}",
    "digits apart": "1 " * 500_000,
    "deep brackets in a tag": f"<answer>{'(' * 10**5}</answer>",
    "open tags": "<answer>" * 125_000,
    "open boxes": "\\boxed{" * 150_000,
    "open boxes in a tag": f"<answer>{chr(92)}boxed{{{'{' * 10**5}</answer>",
    "equations": "1 + 1 = 2 " * 100_000,
    "chain": "1+" * 500_000,
    "slashes": "1/" * 500_000,
    "commas": "1," * 500_000,
}


@pytest.mark.parametrize(("name", "form"), CASES)
def test_hostile_text_from_a_thread_costs_under_50_ms(name, form, tmp_path):
    """CPU time of the thread, least of three; none of these texts is handed to another process."""
    task = get_task(name, file=str(write_lines(tmp_path / "rows.jsonl", ROWS[name]())), answer_format=form)
    problem = task.problems("train", 1)[0]
    slow = []

    def work():
        for text in HOSTILE:
            seconds = []
            for _ in range(3):
                start = time.thread_time()
                verdict = task.score(problem, HOSTILE[text])
                task.trace(problem, HOSTILE[text])
                task.answer_span(problem, HOSTILE[text])
                seconds.append(time.thread_time() - start)
            if min(seconds) >= 0.05 or verdict.status == "right":
                slow.append((text, verdict.status, min(seconds)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert slow == []


def test_samples_and_problems_are_made_on_demand(tmp_path):
    task = get_task("gsm8k", file=str(write_lines(tmp_path / "a.jsonl", sums(50))))
    for record in sample_task(task, "train", 2):
        assert record["status"] == "right"
    problems = task.problems("train")
    assert problems[0] == problems[:1][0] == next(iter(problems)) and problems[-1] == list(problems)[-1]
    assert json.loads(json.dumps(dict(problems[0].metadata))) == problems[0].metadata


def test_faults_are_the_loaders_business():
    task = get_task("gsm8k", file="a.jsonl")
    assert isinstance(task.read_row({"question": "?", "answer": "#### 3"}), Item)
    with pytest.raises(RowFault):
        task.read_row({})


def test_every_file_task_ends_with_the_end_token(tmp_path):
    for name in FILE_TASKS:
        if name == "math" and not HAS_MATH:
            continue
        task = get_task(name, file="a.jsonl", completion_length=30)
        assert task.ends_with_eos and task.completion_length == 30 and task.block_size == 30
        assert task.name == name
