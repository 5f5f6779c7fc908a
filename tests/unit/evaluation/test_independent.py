"""The numbers of a table against plain Python that shares no code with the package, and against stored values.

Subsets are enumerated in exact fractions and the bootstrap is a loop over resamples. `tests/golden/evaluation.json`
holds what this file's own functions gave once (`python tests/unit/evaluation/test_independent.py` prints it).
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

from steprs.errors import ArgumentError
from steprs.evaluation.metrics import problem_metrics
from steprs.evaluation.records import ProblemSamples, WrittenTrace
from steprs.evaluation.result import EvalResult
from steprs.evaluation.statistics import bootstrap_mean, paired_difference

GOLDEN = Path(__file__).parents[2] / "golden" / "evaluation.json"
STATUS = {"R": "right", "W": "wrong", "U": "unparsed"}

# A sample is status, answer, derivation, signature; "-" is none.
PROBLEMS = {
    "usual": "R7a+ R7a+ R7b* W5c+ W5c* W9d+ U--- R7b*",
    "two right answers": "R1a+ R2b* R1a+ W3c+ W3d+ W3e*",
    "nothing right": "W1a+ W2b+ W3c+ U--- U---",
    "nothing read": "U--- U--- U---",
    "always right": "R1-- R1-- R1-- R1--",
    "ties": "R1a+ W2b+ R1a* W2c* W3d+ R4e+",
    "a vote for a value reached wrongly": "R7a+ W7b- W7c- W8d+ U---",
}


def parsed(words):
    return [(STATUS[w[0]], *(None if mark == "-" else mark for mark in w[1:])) for w in words.split()]


def mean_over_subsets(samples, k, statistic):
    """In exact fractions, over every subset of size k."""
    values = [Fraction(statistic(subset)) for subset in combinations(samples, k)]
    return sum(values) / len(values)


def vote(subset):
    """Share of the right among those who voted for the winners; ties share evenly, unparsed samples do not vote."""
    voters = [sample for sample in subset if sample[0] != "unparsed"]
    if not voters:
        return Fraction(0)
    answers = [sample[1] for sample in voters]
    most = max(map(answers.count, answers))
    return [answer for answer in dict.fromkeys(answers) if answers.count(answer) == most]


def slow_statistics(samples, k):
    """Everything that is a mean over subsets; the vote's credit looks at all samples of the winning answer."""

    def credit(answer):
        given = [status for status, key, *_ in samples if key == answer and status != "unparsed"]
        return Fraction(given.count("right"), len(given))

    def majority(subset):
        winners = vote(subset)
        return sum(map(credit, winners), Fraction(0)) / len(winners) if winners else 0

    signed = any(sample[3] for sample in samples)
    statistics = {
        "pass": lambda subset: any(status == "right" for status, *_ in subset),
        "maj": majority,
        "distinct": lambda subset: len({key for status, key, *_ in subset if status != "unparsed"}),
        "distinct_wrong": lambda subset: len({key for status, key, *_ in subset if status == "wrong"}),
        "distinct_right": lambda subset: len({way or key for status, key, way, _ in subset if status == "right"}),
    }
    if signed:
        statistics["distinct_signature"] = lambda subset: len({sign for *_, sign in subset if sign})
        statistics["distinct_signature_right"] = lambda subset: len(
            {sign for status, *_, sign in subset if sign and status == "right"}
        )
    return {f"{name}@{k}": float(mean_over_subsets(samples, k, how)) for name, how in statistics.items()}


def record(samples):
    return ProblemSamples(
        id="one",
        statuses=tuple(sample[0] for sample in samples),
        answer_keys=tuple(sample[1] for sample in samples),
        solution_keys=tuple(sample[2] for sample in samples),
        texts=tuple(range(len(samples))),
        tokens=(1,) * len(samples),
        traces=tuple(WrittenTrace(text=str(i), signature=sample[3]) for i, sample in enumerate(samples)),
    )


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_mean_over_subsets_is_the_enumerated_one_and_the_stored_one(name):
    samples = parsed(PROBLEMS[name])
    stored = json.loads(GOLDEN.read_text())["subsets"][name]
    every_k = range(1, len(samples) + 1)
    found = problem_metrics(record(samples), every_k)
    for k in every_k:
        for statistic, value in slow_statistics(samples, k).items():
            assert found[statistic] == pytest.approx(value, rel=1e-12, abs=1e-12), statistic
            assert found[statistic] == pytest.approx(stored[statistic], rel=1e-12, abs=1e-12), statistic
    if not any(sample[3] for sample in samples):
        assert math.isnan(found["distinct_signature@1"])


def test_a_k_above_n_is_refused_by_name_everywhere():
    samples = record(parsed(PROBLEMS["usual"]))
    with pytest.raises(ArgumentError, match="k = 9 is more than the 8 samples"):
        problem_metrics(samples, (1, 9))
    settings = {"policy": "p", "task": "t", "split": "test", "seed": 0, "decoding": {}, "problems": (samples,)}
    with pytest.raises(ArgumentError, match=r"k must lie in 1\.\.8"):
        EvalResult(samples=8, k=(9,), **settings)
    with pytest.raises(ArgumentError, match="k = 9 is more than the 8 samples"):
        EvalResult(samples=8, k=(1,), **settings).summary(k=(9,))


def slow_quantile(values, q):
    """Linear interpolation between the order statistics around q (N - 1)."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def slow_bootstrap(rows, weights, resamples, seed):
    """Loops over resamples, seeds and problems, with the same draws as the package: seeds first, then problems."""
    known = [
        q for q in range(len(weights)) if weights[q] > 0 and not any(math.isnan(row[q]) for row in rows)
    ]  # fmt: skip
    if len(rows) < 3:
        rows = [[sum(row[q] for row in rows) / len(rows) for q in range(len(weights))]]
    rng = np.random.default_rng(seed)
    times_seeds = rng.multinomial(len(rows), [1 / len(rows)] * len(rows), size=resamples).tolist()
    times_problems = rng.multinomial(len(weights), [1 / len(weights)] * len(weights), size=resamples).tolist()
    means = []
    for seeds, problems in zip(times_seeds, times_problems, strict=True):
        total = sum(problems[q] * weights[q] for q in known)
        if total == 0:
            continue
        summed = 0.0
        for times, row in zip(seeds, rows, strict=True):
            summed += times * sum(problems[q] * weights[q] * row[q] for q in known)
        means.append(summed / len(rows) / total)
    return slow_quantile(means, 0.025), slow_quantile(means, 0.975)


NAN = math.nan
ROWS = np.random.default_rng(7).random((4, 9)).round(3).tolist()
WITH_GAPS = [[0.5, NAN, 0.25, 1.0, 0.0], [0.25, 0.5, 0.75, 1.0, 0.5], [0.0, 0.5, 0.25, NAN, 1.0]]


@pytest.mark.parametrize(
    ("rows", "weights"),
    [
        (ROWS[:1], [1.0] * 9),
        (ROWS[:1], [float(i % 4) for i in range(9)]),
        (ROWS[:2], [1.0] * 9),
        (ROWS[:3], [1.0] * 9),
        (ROWS, [float(1 + i) for i in range(9)]),
        (WITH_GAPS, [1.0] * 5),
        ([[NAN, 0.5], [NAN, 0.7], [NAN, 0.9]], [1.0, 1.0]),
    ],
    ids=["one run", "weights with zeros", "two seeds", "three seeds", "four seeds, weighted", "gaps", "one known"],
)
def test_intervals_are_those_of_a_plain_loop(rows, weights):
    estimate = bootstrap_mean(rows, weights_Q=weights, resamples=300, seed=5)
    low, high = slow_bootstrap(rows, weights, 300, 5)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), rel=1e-12, abs=1e-12)


def test_a_paired_interval_is_that_of_the_differences():
    rows, base = ROWS[:3], ROWS[3:]
    estimate = paired_difference(rows, base, resamples=300, seed=2)
    differences = [[a - b for a, b in zip(row, base[0], strict=True)] for row in rows]
    assert (estimate.low, estimate.high) == pytest.approx(slow_bootstrap(differences, [1.0] * 9, 300, 2), abs=1e-12)


def exact_interval(rows, level):
    """Ends of the bootstrap distribution itself: every resample of seeds and problems, once."""
    seeds, problems = range(len(rows)), range(len(rows[0]))
    means = sorted(
        sum(Fraction(rows[s][q]) for s in picked for q in chosen) / (len(rows) * len(rows[0]))
        for picked in product(seeds, repeat=len(rows))
        for chosen in product(problems, repeat=len(rows[0]))
    )
    return tuple(float(means[math.ceil(q * len(means)) - 1]) for q in ((1 - level) / 2, (1 + level) / 2))


EXACT = {
    "ten problems, four solved": ([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]], 0.95),
    "three seeds of four problems": ([[0, 0, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1]], 0.8),
}


@pytest.mark.parametrize("name", EXACT)
def test_intervals_approach_the_exact_distribution(name):
    rows, level = EXACT[name]
    estimate = bootstrap_mean(rows, level=level, resamples=20000, seed=1)
    stored = json.loads(GOLDEN.read_text())["intervals"][name]
    # The ends lie inside wide atoms of the distribution, where no seed moves them.
    assert (estimate.low, estimate.high) == pytest.approx(stored, abs=1e-12)


def test_the_stored_interval_of_a_binomial_is_in_every_table():
    # Ten problems of which four are solved: the mean of a resample is Bin(10, 0.4) / 10.
    tail = [sum(math.comb(10, i) * 0.4**i * 0.6 ** (10 - i) for i in range(most + 1)) for most in range(11)]
    ends = [next(m for m, chance in enumerate(tail) if chance >= q) / 10 for q in (0.025, 0.975)]
    assert json.loads(GOLDEN.read_text())["intervals"]["ten problems, four solved"] == ends


def test_the_stored_interval_of_seeds_is_the_enumerated_one():
    name = "three seeds of four problems"
    assert list(exact_interval(*EXACT[name])) == json.loads(GOLDEN.read_text())["intervals"][name]


if __name__ == "__main__":
    subsets = {
        name: {s: v for k in range(1, len(words.split()) + 1) for s, v in slow_statistics(parsed(words), k).items()}
        for name, words in PROBLEMS.items()
    }
    seeds = "three seeds of four problems"
    intervals = {"ten problems, four solved": [0.1, 0.7], seeds: list(exact_interval(*EXACT[seeds]))}
    print(json.dumps({"subsets": subsets, "intervals": intervals}, indent=1))
