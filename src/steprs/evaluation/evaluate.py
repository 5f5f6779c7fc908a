"""Draw n samples a problem with a policy, let the task judge them, keep everything a statistic may need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from torch import Tensor

from ..errors import ArgumentError
from ..policies.base import Policy
from ..rollout.collect import Sampler, collect, decode_completions, encode_prompts
from ..tasks.base import AbstractTask
from ..tasks.scoring import score_rollouts
from ..types import Decoding, Problem, Rewards, Trajectory
from .denoising import denoising_samples
from .records import DenoisingSamples, Example, ProblemSamples, WrittenTrace
from .result import EvalResult, decode_differences

EXAMPLES = 8
BACKSLIDE_PROBLEMS = 64

Observer = Callable[[Sequence[Problem], Trajectory, Rewards], None]


def evaluate(
    policy: Policy,
    task: AbstractTask,
    sampler: Sampler,
    problems: Sequence[Problem],
    *,
    samples: int,
    k: Sequence[int],
    seed: int,
    purpose: str = "eval",
    max_rows: int = 1024,
    max_prompt_tokens: int = 1024,
    overlong: Literal["error", "drop"] = "error",
    policy_name: str = "policy",
    split: str = "test",
    run_decoding: Mapping[str, Any] | Decoding | None = None,
    denoising: bool = False,
    backslide_problems: int = BACKSLIDE_PROBLEMS,
    observe: Observer | None = None,
    progress: Callable[[int], None] | None = None,
) -> EvalResult:
    """Evaluate a policy on problems.

    The random numbers of a sample depend on (seed, purpose, problem index, sample index) alone, so the result does
    not depend on `max_rows` beyond float ties, and two policies see the same random numbers.

    Args:
        policy: what decodes.
        task: its verifier judges.
        sampler: how to decode.
        problems: what to solve.
        samples: n, samples a problem.
        k: numbers of tries for pass@k and its kin, each at most n.
        seed: of the sampling.
        purpose: a name that keeps these random numbers apart from training's.
        max_rows: completions decoded at once.
        max_prompt_tokens: prompts above this are an error, or dropped and named in the result.
        overlong: which of the two.
        policy_name: written into the result.
        split: written into the result.
        run_decoding: decode settings of the training run; differences are said in the result.
        denoising: also measure how the samples came about.
        backslide_problems: with `denoising`, complete the states of the first so many problems greedily: it takes
            about a state's forward for each state of each sample that ended wrong.
        observe: called with each batch of problems, their rollouts and rewards, which are not kept otherwise.
        progress: called with the number of problems finished since the last call.

    Raises:
        ArgumentError: no problems, or a k above n.

    Returns:
        The record; statistics come from its `summary()`.
    """
    _check(problems, samples, k)
    _, _, kept, _ = encode_prompts(policy, problems, max_prompt_tokens=max_prompt_tokens, overlong=overlong)
    records, examples = list[ProblemSamples](), list[Example]()
    failures, chunk = task.verifier_failures, max(1, max_rows // samples)
    for start in range(0, len(kept), chunk):
        part = kept[start : start + chunk]
        trajectory = collect(
            policy, sampler, part,
            group_size=samples, seed=seed, purpose=purpose, update=0,
            prompt_index_P=list(range(start, start + len(part))),
            max_prompt_tokens=max_prompt_tokens, max_rows=max_rows,
        )  # fmt: skip
        texts = decode_completions(policy, trajectory)
        scored = score_rollouts(task, part, texts, samples)
        measured = None if not denoising else denoising_samples(
            policy, task, part, texts, trajectory, scored.verdicts,
            backslide_problems=max(0, backslide_problems - start), max_rows=max_rows,
        )  # fmt: skip
        records += _records(task, part, texts, scored, trajectory, policy.eos_token_id, measured)
        examples += _examples(part[: EXAMPLES - len(examples)], texts, scored, samples)
        if observe is not None:
            observe(part, trajectory, scored)
        if progress is not None:
            progress(len(part))
    return EvalResult(
        policy=policy_name,
        task=task.name,
        split=split,
        seed=seed,
        samples=samples,
        k=tuple(k),
        decoding=asdict(sampler.decoding),
        decode_differences=_differences(run_decoding, sampler.decoding),
        binary=task.binary,
        dropped=_dropped(problems, kept),
        problems=tuple(records),
        examples=tuple(examples),
        verifier_failures=task.verifier_failures - failures,
    )


def _check(problems: Sequence[Problem], samples: int, k: Sequence[int]) -> None:
    if not problems or max(k, default=0) > samples or min(k, default=0) < 1:
        raise ArgumentError(
            f"evaluation needs problems and 1 <= k <= samples; got "
            f"{len(problems)} problems, k={list(k)}, samples={samples}"
        )


def _differences(trained: Mapping[str, Any] | Decoding | None, decoding: Decoding) -> tuple[str, ...]:
    run = asdict(trained) if isinstance(trained, Decoding) else trained
    return () if run is None else decode_differences(run, asdict(decoding))


def _dropped(problems: Sequence[Problem], kept: Sequence[Problem]) -> tuple[str, ...]:
    ids = {problem.id for problem in kept}
    return tuple(problem.id for problem in problems if problem.id not in ids)


def _records(
    task: AbstractTask,
    problems: Sequence[Problem],
    texts: Sequence[str],
    scored: Rewards,
    trajectory: Trajectory,
    end_token: int,
    measured: Sequence[DenoisingSamples] | None,
) -> list[ProblemSamples]:
    n = trajectory.group_size
    tokens = trajectory.completion_mask_BL.sum(-1).tolist()
    ended = _reached(trajectory, end_token).tolist() if task.ends_with_eos else None
    records = []
    for index, problem in enumerate(problems):
        rows = slice(index * n, (index + 1) * n)
        verdicts = scored.verdicts[rows]
        numbers: dict[str, int] = {}
        records.append(
            ProblemSamples(
                id=problem.id,
                statuses=tuple(verdict.status for verdict in verdicts),
                answer_keys=tuple(verdict.answer_key for verdict in verdicts),
                solution_keys=tuple(verdict.solution_key for verdict in verdicts),
                texts=tuple(numbers.setdefault(text, len(numbers)) for text in texts[rows]),
                tokens=tuple(int(count) for count in tokens[rows]),
                ended=None if ended is None else tuple(ended[rows]),
                traces=tuple(_trace(task, problem, text) for text in numbers),
                denoising=None if measured is None else measured[index],
            )
        )
    return records


def _trace(task: AbstractTask, problem: Problem, text: str) -> WrittenTrace:
    read = task.trace(problem, text)
    if read is None:
        return WrittenTrace(text=text)
    return WrittenTrace(text=text, signature=read.signature, equations=read.equations)


def _reached(trajectory: Trajectory, end_token: int) -> Tensor:
    """Bool [B]: the completion holds an end token; the mask runs up to and including the first."""
    return ((trajectory.completion_ids_BL == end_token) & trajectory.completion_mask_BL).any(-1)


def _examples(problems: Sequence[Problem], texts: Sequence[str], scored: Rewards, n: int) -> list[Example]:
    return [
        Example(problem=p.id, prompt=p.prompt, completion=texts[i * n], status=scored.verdicts[i * n].status)
        for i, p in enumerate(problems)
    ]
