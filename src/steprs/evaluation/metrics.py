"""The statistics of one problem, by name. numpy only.

| name | meaning |
|---|---|
| `pass@k` | chance that one of k samples is right |
| `maj@k` | chance that a majority vote of k samples is right; ties broken evenly, unparsed samples do not vote |
| `avg@n` | share of right samples among all n (the same number as `pass@1`) |
| `distinct@k` | expected different final answers among k samples, unparsed ones giving none |
| `distinct_wrong@k` | the same over wrong answers; it falls mechanically as accuracy rises |
| `distinct_right@k` | expected different right solutions among k samples (derivations where the task names them) |
| `answer_entropy` | entropy of the final answers in nats, Miller-Madow |
| `effective_answers` | its exponential |
| `collision` | chance that two samples with answers gave different ones |
| `collision_wrong` | chance that two wrong samples gave different answers: comparable at different accuracies |
| `unparsed_rate` | share of samples without a readable answer |
| `truncated_rate` | share without an end token, for tasks that end with one |
| `unique_completions` | different texts / samples; 1/n when decoding is deterministic |
| `tokens` | mean tokens of a completion |
| `answer_entropy_traced` | entropy of the final answers over the samples that also have a signature |
| `signature_entropy_joint` | entropy of (answer, signature) over the same samples |
| `signature_entropy_given_answer` | their difference, H(sig given ans): diversity beyond the final answer |
| `signature_entropy_right` | entropy of the signatures of right samples |
| `distinct_signature@k` | expected different signatures among k samples |
| `distinct_signature_right@k` | expected different signatures of right samples among k samples |
| `equation_distance`, `.._right`, `.._within` | mean Jaccard distance of the equations of two samples |
| `edit_distance`, `.._right`, `.._within` | mean normalised edit distance of the words of two samples |
| `self_bleu` | mean BLEU-4 of each sample against the others: high when they are alike |
| `distinct_1`, `distinct_2` | different words (pairs of words) over all of them |
| `commit_progress`, `.._right`, `.._wrong` | mean denoising progress at which the final answer was fixed |
| `reveal_order` | 1 if positions are revealed from left to right, -1 from right to left |
| `entropy_tau_A_B` | mean entropy in nats of tokens revealed at progress A to B |
| `backslide_rate` | share of samples that were right in some state and wrong in the end |
| `backslide_rate_wrong` | the same share among the samples that are wrong in the end |

`.._right` looks at right samples, `.._within` at pairs of samples with the same final answer. What is measured on the
text (from `answer_entropy_traced` to `distinct_2`) is a surface measure. docs/statistics.md defines every name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .diversity import answer_entropy, collision_diversity, distinct_at_k, effective_number
from .majority import majority_at_k
from .pass_at_k import pass_at_k
from .records import ProblemSamples, WrittenTrace
from .traces import chain_rule, distinct_ngrams, edit_distances, jaccard_distances, mean_pairwise, self_bleu

NAN = float("nan")
PROGRESS_EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
Sample = tuple[int, str, str | None]
"""Place of a sample's text in the traces, its status, and its final answer or None."""


def problem_metrics(problem: ProblemSamples, k: Sequence[int]) -> dict[str, float]:
    """Every statistic of the module's table for one problem; NaN where its samples cannot tell.

    Args:
        problem: the samples.
        k: numbers of tries; each at most the number of samples.

    Raises:
        ArgumentError: a k above the number of samples.
    """
    values: dict[str, float] = {}
    answers, right, wrong = problem.answer_counts(), problem.right_counts(), problem.wrong_counts()
    counts = list(answers.values())
    solutions = list(problem.solution_counts().values())
    for tries in k:
        values[f"pass@{tries}"] = pass_at_k(problem.n, problem.correct, tries)
        values[f"maj@{tries}"] = majority_at_k(counts, [right[a] for a in answers], tries, problem.n)
        values[f"distinct@{tries}"] = distinct_at_k(counts, tries, problem.n)
        values[f"distinct_wrong@{tries}"] = distinct_at_k(list(wrong.values()), tries, problem.n)
        values[f"distinct_right@{tries}"] = distinct_at_k(solutions, tries, problem.n)
    values[f"avg@{problem.n}"] = problem.correct / problem.n
    # One answer has no spread to measure: 0 would read as "always the same".
    values["answer_entropy"] = answer_entropy(counts) if sum(counts) > 1 else NAN
    values["effective_answers"] = effective_number(counts) if sum(counts) > 1 else NAN
    values["collision"] = collision_diversity(counts)
    values["collision_wrong"] = collision_diversity(list(wrong.values()))
    values["unparsed_rate"] = problem.statuses.count("unparsed") / problem.n
    values["truncated_rate"] = NAN if problem.ended is None else problem.ended.count(False) / problem.n
    values["unique_completions"] = len(set(problem.texts)) / problem.n
    values["tokens"] = sum(problem.tokens) / problem.n
    return values | _trace_metrics(problem, k) | _denoising_metrics(problem)


def _trace_metrics(problem: ProblemSamples, k: Sequence[int]) -> dict[str, float]:
    """Statistics of the text."""
    samples = tuple(
        (text, status, answer if status != "unparsed" else None)
        for text, status, answer in zip(problem.texts, problem.statuses, problem.answer_keys, strict=True)
    )
    traces = problem.traces or ()
    values = dict(_surface(samples, traces))
    signed = [(traces[text].signature, status) for text, status, _ in samples] if traces else []
    every = list(Counter(signature for signature, _ in signed if signature is not None).values())
    right = list(Counter(sig for sig, status in signed if sig is not None and status == "right").values())
    for tries in k:
        values[f"distinct_signature@{tries}"] = distinct_at_k(every, tries, problem.n) if every else NAN
        values[f"distinct_signature_right@{tries}"] = distinct_at_k(right, tries, problem.n) if every else NAN
    values["signature_entropy_right"] = answer_entropy(right) if sum(right) > 1 else NAN
    return values


@lru_cache(maxsize=1 << 14)
def _surface(samples: tuple[Sample, ...], traces: tuple[WrittenTrace, ...]) -> Mapping[str, float]:
    """The statistics that cost more than counting; kept, as tables and comparisons ask for the same problems."""
    # Without text there is nothing to compare: no sample is placed, and every mean is NaN.
    placed = samples if traces else ()
    pairs = Counter((answer, traces[text].signature) for text, _, answer in placed)
    names = ("answer_entropy_traced", "signature_entropy_joint", "signature_entropy_given_answer")
    entropies = chain_rule({pair: count for pair, count in pairs.items() if None not in pair})
    values = dict(zip(names, entropies, strict=True))
    equations = [trace.equations for trace in traces]
    readable = [sample for sample in placed if equations[sample[0]] is not None]
    values |= _distances("equation_distance", jaccard_distances([frozenset(e or ()) for e in equations]), readable)
    words = [trace.text.split() for trace in traces]
    values |= _distances("edit_distance", edit_distances(words), placed)
    counts = _text_counts(placed, len(traces)).tolist()
    values["self_bleu"] = self_bleu(words, counts)
    values["distinct_1"], values["distinct_2"] = (distinct_ngrams(words, counts, n) for n in (1, 2))
    return values


def _distances(name: str, distance_UU: NDArray[np.float64], samples: Sequence[Sample]) -> dict[str, float]:
    """Mean distance over pairs of all samples, of right ones, and of those with the same final answer."""
    answers = {answer for _, _, answer in samples if answer is not None}
    groups: dict[str, list[Sequence[Sample]]] = {
        name: [samples],
        f"{name}_right": [[sample for sample in samples if sample[1] == "right"]],
        f"{name}_within": [[sample for sample in samples if sample[2] == answer] for answer in answers],
    }
    texts = len(distance_UU)
    return {
        label: mean_pairwise(distance_UU, [_text_counts(group, texts) for group in found])
        for label, found in groups.items()
    }


def _text_counts(samples: Sequence[Sample], texts: int) -> NDArray[np.int64]:
    """How often each text occurs among the samples."""
    return np.bincount(np.array([text for text, _, _ in samples], dtype=np.int64), minlength=texts)


def _denoising_metrics(problem: ProblemSamples) -> dict[str, float]:
    """Statistics of how the samples came about."""
    measured, right = problem.denoising, [status == "right" for status in problem.statuses]
    commit = [None] * problem.n if measured is None else measured.commit_progress
    values = {
        "commit_progress": _mean(commit),
        "commit_progress_right": _mean([value for value, is_right in zip(commit, right, strict=True) if is_right]),
        "commit_progress_wrong": _mean([value for value, is_right in zip(commit, right, strict=True) if not is_right]),
        "reveal_order": _mean([] if measured is None else measured.reveal_order),
    }
    for number, (low, high) in enumerate(pairwise(PROGRESS_EDGES)):
        entropies = [] if measured is None else [row[number] for row in measured.entropy_by_progress]
        values[f"entropy_tau_{low}_{high}"] = _mean(entropies)
    ever = None if measured is None else measured.ever_right
    slid = None if ever is None else sum(ever) - problem.correct
    wrong = problem.n - problem.correct
    values["backslide_rate"] = NAN if slid is None else slid / problem.n
    values["backslide_rate_wrong"] = NAN if slid is None or not wrong else slid / wrong
    return values


def _mean(values: Sequence[float | None]) -> float:
    """Of those that are known; NaN of none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else NAN
