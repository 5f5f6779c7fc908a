"""How different the ways to an answer are, as written: surface measures, which see words and not ideas. numpy only.

All functions take different completions (or what was read from them) and how often each was drawn, so that a text
drawn eight times is looked at once. The mean of a distance over pairs of samples is unbiased at any number of samples,
so it can be compared between groups of different size; entropies, self-BLEU and distinct-n cannot without care.

What cannot be told (no pair, nothing read) is NaN, and the averages over problems leave it out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError
from .diversity import answer_entropy

Floats = NDArray[np.float64]
NAN = float("nan")
BLEU_ORDER = 4


def jaccard_distances(sets: Sequence[AbstractSet[str]]) -> Floats:
    """Distance of every pair of sets, `1 - |A and B| / |A or B|`; 0 for two empty ones.

    Args:
        sets: U sets, e.g. of equations.

    Returns:
        float64 [U, U] in [0, 1].

    >>> jaccard_distances([{"3+5=8", "2*8=16"}, {"3+5=8", "8+8=16"}])[0, 1].round(6).item()
    0.666667
    """
    place = {item: i for i, item in enumerate(dict.fromkeys(item for members in sets for item in members))}
    holds = np.zeros((len(sets), len(place)))
    for row, members in enumerate(sets):
        holds[row, [place[item] for item in members]] = 1.0
    both = holds @ holds.T
    either = holds.sum(1)[:, None] + holds.sum(1)[None, :] - both
    return np.asarray(1.0 - np.divide(both, either, out=np.ones_like(both), where=either > 0))


def edit_distances(sequences: Sequence[Sequence[str]]) -> Floats:
    """Edit distance of every pair over the length of the longer one (insert, delete and replace cost 1 each).

    All pairs advance together, one row of the dynamic programme at a time; within a row the chain of insertions is a
    running minimum (V. Levenshtein, 1966; R. Wagner and M. Fischer, 1974).

    Args:
        sequences: U sequences of words.

    Returns:
        float64 [U, U] in [0, 1]; 0 for two empty ones.

    >>> edit_distances(["3 + 5 8".split(), "5 + 3 8".split()])[0, 1].item()
    0.5
    """
    count = len(sequences)
    lengths = np.array([len(words) for words in sequences], dtype=np.int32)
    first, second = np.triu_indices(count, 1)
    found = np.zeros((count, count))
    if not first.size or not lengths.max(initial=0):
        return found
    numbers: dict[str, int] = {}
    # What stands behind the end of a text is never read: the entry at both lengths depends on what is before it.
    words_LU = np.full((lengths.max(), count), -1, dtype=np.int32)
    for column, words in enumerate(sequences):
        words_LU[: len(words), column] = [numbers.setdefault(word, len(numbers)) for word in words]
    left_LN, right_LN = words_LU[:, first], words_LU[:, second]
    column_L1 = np.arange(len(words_LU) + 1, dtype=np.int32)[:, None]
    row_LN = np.repeat(column_L1, first.size, axis=1)
    every_N = np.arange(first.size)
    edits_N = row_LN[lengths[second], every_N]
    for i, left_N in enumerate(left_LN, 1):
        replaced_LN = row_LN[:-1] + (right_LN != left_N)
        row_LN += 1
        np.minimum(row_LN[1:], replaced_LN, out=row_LN[1:])
        row_LN -= column_L1
        np.minimum.accumulate(row_LN, axis=0, out=row_LN)
        row_LN += column_L1
        edits_N = np.where(lengths[first] == i, row_LN[lengths[second], every_N], edits_N)
    found[first, second] = edits_N / np.maximum(lengths[first], lengths[second]).clip(min=1)
    return found + found.T


def mean_pairwise(distance_UU: ArrayLike, counts_AU: ArrayLike) -> float:
    """Mean distance of two different samples of one group, over all such pairs of all groups.

    `sum_a sum_uv n_au n_av d_uv / sum_a n_a (n_a - 1)`: a U-statistic, unbiased at any number of samples. A group with
    many samples has many pairs and weighs accordingly.

    Args:
        distance_UU: distances of U different texts, 0 on the diagonal.
        counts_AU: how often each text occurs in each group: one row for "all samples", a row an answer for "within the
            same final answer".

    Returns:
        The mean; NaN where no group has two samples.

    >>> mean_pairwise([[0.0, 1.0], [1.0, 0.0]], [[2, 1]])
    0.6666666666666666
    """
    distances = np.asarray(distance_UU, dtype=np.float64)
    if not distances.size:
        return NAN
    counts = np.asarray(counts_AU, dtype=np.float64).reshape(-1, len(distances))
    sizes = counts.sum(1)
    pairs = float((sizes * (sizes - 1)).sum())
    return float(((counts @ distances) * counts).sum() / pairs) if pairs > 0 else NAN


def chain_rule(counts: Mapping[tuple[Hashable, Hashable], int]) -> tuple[float, float, float]:
    """H(answer), H(signature, answer) and H(signature | answer) in nats, from how often each pair was drawn.

    The conditional entropy is the difference of the two Miller-Madow entropies, so the chain rule
    `H(sig, ans) = H(ans) + H(sig | ans)` holds in every problem and in every mean over problems.

    Args:
        counts: (answer, signature) -> samples, over the samples that have both.

    Returns:
        Three numbers; three times NaN below two samples, where no spread can be seen.

    >>> h_ans, h_joint, h_given = chain_rule({("8", "++"): 2, ("8", "+*"): 2})
    >>> h_ans, round(h_joint, 6), round(h_given, 6)
    (0.0, 0.818147, 0.818147)
    """
    if sum(counts.values()) < 2:
        return NAN, NAN, NAN
    answers: Counter[Hashable] = Counter()
    for (answer, _), count in counts.items():
        answers[answer] += count
    h_answer, h_joint = answer_entropy(list(answers.values())), answer_entropy(list(counts.values()))
    return h_answer, h_joint, h_joint - h_answer


def self_bleu(sequences: Sequence[Sequence[str]], counts: Sequence[int]) -> float:
    """Mean BLEU-4 of each sample against all others of its problem: 1 if every text was drawn twice, low if all differ.

    BLEU is `min(1, exp(1 - r/c)) (prod_n p_n)^(1/N)` with c words in the sample, r in the reference of closest length
    (the shorter one on a tie), N = min(4, c), and `p_n = (m_n + [n > 1]) / (l_n + [n > 1])`, where m_n of the sample's
    l_n n-grams are matched, each at most as often as one reference has it. Adding one from n = 2 on is the smoothing
    of C.-Y. Lin and F. Och, "ORANGE", 2004. It rises with the number of samples: compare equal numbers only.
    Source: Y. Zhu et al., "Texygen", 2018; K. Papineni et al., "BLEU", 2002.

    Args:
        sequences: U different sequences of words.
        counts: how often each was drawn.

    Returns:
        A number in [0, 1]; NaN below two samples.

    >>> self_bleu(["3 + 5 8".split()], [2])
    1.0
    """
    sequences, counts = _drawn(sequences, counts)
    total = sum(counts)
    if total < 2:
        return NAN
    # A text drawn twice is its own reference.
    score = float(sum(count for count in counts if count > 1))
    grams = [[_ngrams(words, n) for n in range(1, BLEU_ORDER + 1)] for words in sequences]
    best = [_two_largest([rows[n] for rows in grams]) for n in range(BLEU_ORDER)]
    for own, (words, count) in enumerate(zip(sequences, counts, strict=True)):
        if count == 1:
            others = [len(other) for place, other in enumerate(sequences) if place != own]
            score += _bleu(len(words), grams[own], best, own, others)
    return score / total


def distinct_ngrams(sequences: Sequence[Sequence[str]], counts: Sequence[int], n: int) -> float:
    """distinct-n: different n-grams over all n-grams of a problem's samples (J. Li et al., 2016).

    It falls with the number of samples and their length: compare equal numbers only.

    Args:
        sequences: U different sequences of words.
        counts: how often each was drawn.
        n: words of an n-gram.

    Returns:
        A number in (0, 1]; NaN without any n-gram.

    >>> distinct_ngrams(["3 + 5 8".split(), "5 + 3 8".split()], [1, 1], 1)
    0.5
    """
    sequences, counts = _drawn(sequences, counts)
    grams = [_ngrams(words, n) for words in sequences]
    total = sum(count * sum(found.values()) for found, count in zip(grams, counts, strict=True))
    return len({gram for found in grams for gram in found}) / total if total else NAN


def _ngrams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[i:] for i in range(n)), strict=False))


def _two_largest(grams: Sequence[Counter[tuple[str, ...]]]) -> dict[tuple[str, ...], tuple[int, int, int]]:
    """n-gram -> (largest count in one text, that text, largest count in any other)."""
    best: dict[tuple[str, ...], tuple[int, int, int]] = {}
    for text, found in enumerate(grams):
        for gram, count in found.items():
            most, owner, second = best.get(gram, (0, -1, 0))
            best[gram] = (count, text, most) if count > most else (most, owner, max(second, count))
    return best


def _bleu(
    length: int,
    grams: Sequence[Counter[tuple[str, ...]]],
    best: Sequence[Mapping[tuple[str, ...], tuple[int, int, int]]],
    own: int,
    reference_lengths: Sequence[int],
) -> float:
    """BLEU of one text against all other ones; every text that is not this one is a reference."""
    closest = min(reference_lengths, key=lambda other: (abs(other - length), other))
    if length == 0:
        return float(closest == 0)
    logs = 0.0
    orders = min(BLEU_ORDER, length)
    for n in range(orders):
        matched = sum(
            min(count, second if owner == own else most)
            for gram, count in grams[n].items()
            for most, owner, second in [best[n][gram]]
        )
        plus = int(n > 0)
        if matched + plus == 0:
            return 0.0
        logs += math.log((matched + plus) / (length - n + plus))
    return min(1.0, math.exp(1 - closest / length)) * math.exp(logs / orders)


def _drawn(sequences: Sequence[Sequence[str]], counts: Sequence[int]) -> tuple[Sequence[Sequence[str]], Sequence[int]]:
    """The texts that were drawn at all, and how often."""
    if len(sequences) != len(counts) or any(count < 0 for count in counts):
        raise ArgumentError(f"{len(sequences)} texts need as many counts from 0 on; got {list(counts)}")
    kept = [(words, count) for words, count in zip(sequences, counts, strict=True) if count]
    return [words for words, _ in kept], [count for _, count in kept]
