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
"""

from __future__ import annotations

from collections.abc import Sequence

from .diversity import answer_entropy, collision_diversity, distinct_at_k, effective_number
from .majority import majority_at_k
from .pass_at_k import pass_at_k
from .records import ProblemSamples

NAN = float("nan")


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
    return values
