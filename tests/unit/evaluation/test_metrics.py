"""Trace statistics of a problem put together from its record, by hand."""

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np
import pytest

from steprs.errors import ArgumentError
from steprs.evaluation.metrics import problem_metrics
from steprs.evaluation.records import ProblemSamples, WrittenTrace
from steprs.evaluation.result import EvalResult

TRACES = (
    WrittenTrace(text="1 + 2 3 3 + 4 7", signature="++", equations=("1+2=3", "3+4=7")),
    WrittenTrace(text="2 + 4 6 6 + 1 7", signature="++", equations=("2+4=6", "1+6=7")),
    WrittenTrace(text="1 + 2 3 3 * 4 12", signature="+*", equations=("1+2=3", "3*4=12")),
    WrittenTrace(text="3 3 3"),
)


def problem(statuses, answers, texts, traces=TRACES):
    return ProblemSamples(
        id="one",
        statuses=statuses,
        answer_keys=answers,
        solution_keys=(None,) * len(texts),
        texts=texts,
        tokens=(8,) * len(texts),
        traces=traces,
    )


# Right: text 0 twice, text 1 once. Wrong: text 2. Unreadable: text 3.
FIVE = problem(("right", "right", "right", "wrong", "unparsed"), ("7", "7", "7", "12", None), (0, 0, 1, 2, 3))


def test_trace_statistics_by_hand():
    values = problem_metrics(FIVE, (1, 2))
    # Jaccard: 0-1 share nothing (1), 0-2 one of three (2/3), 1-2 nothing (1). Pairs 00 01 01 02 02 12.
    assert values["equation_distance"] == pytest.approx((0 + 1 + 1 + 2 / 3 + 2 / 3 + 1) / 6)
    assert values["equation_distance_right"] == pytest.approx(2 / 3)
    assert values["equation_distance_within"] == pytest.approx(2 / 3), "12 was given once and has no pair"
    # Words: 0-1 differ in 1|2, 2|4, 3|6, 3|6, 4|1 of 8; 0-2 in two of 8.
    assert values["edit_distance_right"] == pytest.approx((0 + 5 / 8 + 5 / 8) / 3)
    pairs = values["edit_distance"] * 10
    # 1-2: 1|2, 2|4, 3|6, 3|6, +|*, 4|1, 7|12: seven of 8. Text 3 keeps one or two of eight words.
    assert pairs == pytest.approx(0 + 2 * 5 / 8 + 2 * 2 / 8 + 7 / 8 + 2 * 6 / 8 + 8 / 8 + 6 / 8)
    assert values["distinct_signature@1"] == pytest.approx(4 / 5), "an unreadable sample gives none"
    # 1 - C(2, 2) / C(5, 2) for "++" (three of five) and 1 - C(4, 2) / C(5, 2) for "+*".
    assert values["distinct_signature@2"] == pytest.approx(9 / 10 + 4 / 10)
    assert values["distinct_signature_right@2"] == pytest.approx(9 / 10)
    assert values["signature_entropy_right"] == 0.0
    # Four traced samples: answers 3, 1; pairs the same, so nothing is left beyond the answer.
    ans = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) + 1 / 8
    assert values["answer_entropy_traced"] == pytest.approx(ans)
    assert values["signature_entropy_joint"] == pytest.approx(ans)
    assert values["signature_entropy_given_answer"] == 0.0
    # 35 words: 1 2 3 4 6 7 12 + * ; and 3 texts of 8 words have 7 pairs each, "3 3 3" two.
    assert values["distinct_1"] == pytest.approx(9 / 35)


def test_an_answer_reached_in_two_ways_has_entropy_beyond_the_answer():
    two_ways = problem(("right",) * 4, ("7",) * 4, (0, 1, 2, 2))
    values = problem_metrics(two_ways, (1,))
    assert values["answer_entropy_traced"] == 0.0
    assert values["signature_entropy_given_answer"] == pytest.approx(math.log(2) + 1 / 8)
    assert values["signature_entropy_right"] == values["signature_entropy_given_answer"]


def test_a_record_without_text_tells_nothing_and_says_so():
    values = problem_metrics(problem(("right", "wrong"), ("7", "8"), (0, 1), traces=None), (1,))
    traced = [name for name in values if name.startswith(("equation", "edit", "signature", "distinct_s", "self"))]
    assert len(traced) == 12 and all(math.isnan(values[name]) for name in traced)


def test_a_task_without_signatures_still_has_distances():
    grid = (WrittenTrace(text="1 2", equations=("r1c1=1",)), WrittenTrace(text="2 1", equations=("r1c1=2",)))
    values = problem_metrics(problem(("right", "wrong"), ("12", "21"), (0, 1), traces=grid), (1,))
    assert values["equation_distance"] == 1.0 and math.isnan(values["equation_distance_within"])
    assert math.isnan(values["signature_entropy_joint"]) and math.isnan(values["distinct_signature@1"])


def test_the_chain_rule_holds_in_the_means():
    rng = np.random.default_rng(0)
    problems = []
    for number in range(40):
        texts = rng.integers(0, 4, 12)
        # Text 2 reaches the answer of text 0 with other operators.
        answers = ["7", "12", "7", None]
        statuses = ["right", "wrong", "right", "unparsed"]
        one = problem(tuple(statuses[t] for t in texts), tuple(answers[t] for t in texts), tuple(texts.tolist()))
        problems.append(dataclasses.replace(one, id=str(number)))
    result = EvalResult(
        policy="p", task="t", split="test", seed=0, samples=12, k=(1,), decoding={}, problems=tuple(problems)
    )
    summary = result.summary()
    parts = [summary[n].value for n in ("answer_entropy_traced", "signature_entropy_given_answer")]
    assert sum(parts) == pytest.approx(summary["signature_entropy_joint"].value, abs=1e-12)
    assert parts[1] > 0.1


def test_a_text_without_a_trace_is_refused():
    with pytest.raises(ArgumentError, match="places in its 4 traces"):
        problem(("right",), ("7",), (4,))


def test_an_evaluation_of_usual_size_is_quick():
    rng = np.random.default_rng(1)
    words = [str(i) for i in range(32)]
    rows = []
    for _ in range(64):
        texts = tuple(
            WrittenTrace(text=" ".join(rng.choice(words, 12)), signature="++", equations=("a",)) for _ in range(32)
        )
        rows.append(problem(("wrong",) * 32, tuple("abcdefgh" * 4), tuple(range(32)), traces=texts))
    before = time.process_time()
    for row in rows:
        problem_metrics(row, (1, 4, 16))
    first = time.process_time() - before
    before = time.process_time()
    for row in rows:
        problem_metrics(row, (1, 4, 16))
    assert first < 4.0, f"64 problems x 32 different samples took {first:.1f} s"
    assert time.process_time() - before < first, "what was compared once is kept"
