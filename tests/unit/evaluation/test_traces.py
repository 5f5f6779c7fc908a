"""Trace statistics: by hand, and against plain loops over every pair of samples."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steprs.errors import ArgumentError
from steprs.evaluation.traces import (
    chain_rule,
    distinct_ngrams,
    edit_distances,
    jaccard_distances,
    mean_pairwise,
    self_bleu,
)

texts_of_one_problem = st.lists(st.lists(st.sampled_from("abc"), max_size=6), min_size=1, max_size=6)


def slow_edits(a, b):
    """The recursion as it is written in textbooks."""
    if not a or not b:
        return len(a) + len(b)
    return min(
        slow_edits(a[1:], b) + 1, slow_edits(a, b[1:]) + 1, slow_edits(a[1:], b[1:]) + (a[0] != b[0])
    )  # fmt: skip


def test_jaccard_by_hand():
    distances = jaccard_distances([{"x", "y"}, {"y", "z"}, {"z"}, set()])
    # One of three, nothing of three, one of two, nothing with an empty set.
    assert distances[0].tolist() == pytest.approx([0.0, 2 / 3, 1.0, 1.0])
    assert distances[1, 2] == pytest.approx(1 / 2)
    assert distances[3].tolist() == [1.0, 1.0, 1.0, 0.0]
    assert (distances == distances.T).all()


def test_edit_distance_by_hand():
    kitten, sitting = list("kitten"), list("sitting")
    distances = edit_distances([kitten, sitting, [], list("kitte")])
    assert distances[0].tolist() == pytest.approx([0.0, 3 / 7, 1.0, 1 / 6])
    assert distances[2, 2] == 0.0
    assert edit_distances([[], []]).tolist() == [[0.0, 0.0], [0.0, 0.0]]


@settings(max_examples=60, deadline=None)
@given(texts_of_one_problem)
def test_edit_distance_is_the_recursion(texts):
    distances = edit_distances(texts)
    for (i, a), (j, b) in combinations(enumerate(texts), 2):
        assert distances[i, j] == distances[j, i] == pytest.approx(slow_edits(a, b) / max(len(a), len(b), 1))


def test_pairs_are_weighted_by_how_often_texts_were_drawn():
    distances = [[0.0, 0.5, 1.0], [0.5, 0.0, 0.25], [1.0, 0.25, 0.0]]
    # Samples 0 0 1 2: pairs 00, 01, 01, 02, 02, 12.
    assert mean_pairwise(distances, [2, 1, 1]) == pytest.approx((0 + 2 * 0.5 + 2 * 1.0 + 0.25) / 6)
    # Within answers {0, 1} and {1, 2, 2}: pairs 01 | 12, 12, 22.
    assert mean_pairwise(distances, [[1, 1, 0], [0, 1, 2]]) == pytest.approx((0.5 + 2 * 0.25 + 0) / 4)
    assert math.isnan(mean_pairwise(distances, [[1, 0, 0], [0, 1, 0]])), "no answer was given twice"
    assert math.isnan(mean_pairwise(np.zeros((0, 0)), []))


def test_chain_rule_by_hand():
    # Answers a a a b; signatures + + * +: joint counts 2, 1, 1.
    h_ans, h_joint, h_given = chain_rule({("a", "+"): 2, ("a", "*"): 1, ("b", "+"): 1})
    assert h_ans == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) + 1 / 8)
    assert h_joint == pytest.approx(1.5 * math.log(2) + 2 / 8)
    assert h_ans + h_given == pytest.approx(h_joint, abs=1e-15)
    # Without the correction H(sig|ans) is the mean of the answers' own entropies, 3/4 H(2/3, 1/3).
    own = -(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3)
    assert h_given - 1 / 8 == pytest.approx(0.75 * own)


def test_one_way_for_each_answer_adds_nothing():
    assert chain_rule({("a", "+"): 3, ("b", "*"): 2})[2] == 0.0


def test_one_sample_has_no_spread():
    assert all(math.isnan(value) for value in (*chain_rule({("a", "+"): 1}), *chain_rule({})))


def test_self_bleu_by_hand():
    # "a b c d" against "a b x d": 3 of 4 words, (1 + 1) of (3 + 1) pairs, (0 + 1) of (2 + 1) and of (1 + 1).
    one, two = list("abcd"), list("abxd")
    value = (3 / 4 * 2 / 4 * 1 / 3 * 1 / 2) ** (1 / 4)
    assert self_bleu([one, two], [1, 1]) == pytest.approx(value)
    # A text drawn twice matches itself.
    assert self_bleu([one, two], [2, 1]) == pytest.approx((2 + value) / 3)


def test_self_bleu_of_a_short_text_is_penalised():
    # "a b" against "a b c d": both words, both pairs; orders 1 and 2 only; brevity exp(1 - 4 / 2).
    short, long = list("ab"), list("abcd")
    # The long one: 2 of 4 words, (1 + 1) of (3 + 1) pairs, (0 + 1) of (2 + 1), (0 + 1) of (1 + 1); no penalty.
    longer = (2 / 4 * 2 / 4 * 1 / 3 * 1 / 2) ** (1 / 4)
    assert self_bleu([short, long], [1, 1]) == pytest.approx((math.exp(-1) + longer) / 2)


def slow_bleu(sample, references):
    """BLEU-4 as the docstring says, straight from lists."""
    if not sample:
        return float(any(not reference for reference in references))
    r = min((abs(len(ref) - len(sample)), len(ref)) for ref in references)[1]
    product, orders = 1.0, min(4, len(sample))
    for n in range(1, orders + 1):
        counted = [Counter(tuple(text[i : i + n]) for i in range(len(text) - n + 1)) for text in (sample, *references)]
        matched = sum(min(c, max(other[gram] for other in counted[1:])) for gram, c in counted[0].items())
        product *= (matched + (n > 1)) / (len(sample) - n + 1 + (n > 1))
    return min(1.0, math.exp(1 - r / len(sample))) * product ** (1 / orders)


@settings(max_examples=80, deadline=None)
@given(texts_of_one_problem)
def test_self_bleu_is_the_plain_mean_over_samples(texts):
    counts = Counter(map(tuple, texts))
    found = self_bleu([list(text) for text in counts], list(counts.values()))
    if len(texts) < 2:
        assert math.isnan(found)
        return
    scores = [slow_bleu(text, texts[:i] + texts[i + 1 :]) for i, text in enumerate(texts)]
    assert found == pytest.approx(sum(scores) / len(scores))


def test_distinct_ngrams_by_hand():
    texts = [list("aba"), list("ac")]
    assert distinct_ngrams(texts, [1, 1], 1) == pytest.approx(3 / 5)
    assert distinct_ngrams(texts, [2, 1], 1) == pytest.approx(3 / 8)
    assert distinct_ngrams(texts, [1, 1], 2) == pytest.approx(3 / 3)
    assert distinct_ngrams(texts, [1, 0], 1) == pytest.approx(2 / 3), "a text never drawn is no text"
    assert math.isnan(distinct_ngrams([["a"]], [4], 2))


@pytest.mark.parametrize("call", [self_bleu, lambda texts, counts: distinct_ngrams(texts, counts, 1)])
def test_counts_must_belong_to_the_texts(call):
    with pytest.raises(ArgumentError, match="2 texts need as many counts"):
        call([["a"], ["b"]], [1])
