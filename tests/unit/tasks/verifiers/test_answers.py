"""Every row of the golden answer table, and the time that hostile text may take."""

import importlib.util
import json
import threading
import time
from pathlib import Path

import pytest

from steprs.errors import ArgumentError
from steprs.tasks.verifiers import CONVENTIONS, check_answer

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[3] / "golden" / "answers.jsonl").read_text("utf-8").splitlines()
]
PARSERS = {"gsm8k": "18", "number": "18", "answer_tag": "42", "countdown": "1 2 3|9", "boxed": "3"}
# None of these holds a complete box, so `boxed` is a parser here and no worker is asked.
HOSTILE = {
    "tower": "9**9**9**9",
    "million letters": "a" * 10**6,
    "million spaces": " " * 10**6,
    "million marks": "#" * 10**6,
    "million digits behind a mark": "#### " + "1" * 10**6,
    "thousands behind a mark": "#### 1" + ",111" * 250_000,
    "deep brackets": "(" * 10**6,
    "balanced deep brackets": "(" * 499 + "1" + ")" * 499,
    "deep braces": "{" * 10**6,
    "unopened braces": "}" * 10**6,
    "open boxes": "\\boxed{" * 150_000,
    "backslashes": "\\" * 10**6,
    "open tags": "<answer>" * 125_000,
    "closed tags": "</answer>" * 110_000,
    "long sum": "1+" * 499 + "1",
    "long product": "9*" * 499 + "9",
    "long quotient": "1/" * 499 + "7",
    "unfinished": "1-(2-" * 180,
}


def needs_math_verify():
    """Without importing it: another test looks at what this process has loaded."""
    if importlib.util.find_spec("math_verify") is None:
        pytest.skip("needs the math extra")


def test_table_is_whole():
    assert len(ROWS) == 60
    assert {row["convention"] for row in ROWS} == set(CONVENTIONS) - {"number"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['convention']}-{row['completion'][:24]}")
def test_golden_answer(row):
    if row["convention"] == "boxed":
        needs_math_verify()
    assert check_answer(row["convention"], row["gold"], row["completion"]) == row["expected"]


@pytest.mark.parametrize("convention", PARSERS)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_from_a_worker_thread_costs_under_50_ms(convention, name):
    """CPU time of the thread, least of three: a busy machine must not fail it."""
    if convention == "boxed":
        needs_math_verify()
    verdicts, seconds = [], []

    def work():
        for _ in range(3):
            start = time.thread_time()
            verdicts.append(check_answer(convention, PARSERS[convention], HOSTILE[name]))
            seconds.append(time.thread_time() - start)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(verdicts) == 3
    assert set(verdicts) <= {"wrong", "unparsed"}
    assert min(seconds) < 0.05


def test_unknown_convention_says_which_there_are():
    with pytest.raises(ArgumentError, match=r"'gsm8'; allowed: .*Did you mean 'gsm8k'"):
        check_answer("gsm8", "1", "#### 1")
