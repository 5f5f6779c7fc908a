"""How completions came about: when the answer was fixed, in which order, how uncertain, and whether it got lost.

Read off recorded rollouts, except for the backslide, which needs forwards of the policy: a state's answer is what its
greedy completion says (see `ever_right`). docs/statistics.md holds the definitions.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Sequence

import torch
from torch import Tensor

from ..policies.base import Policy
from ..rollout.block import BlockDiffusionSampler, GivenBlocks
from ..rollout.distinct import distinct_rows
from ..rollout.lookahead import complete_canvas, completion_texts
from ..rollout.parts import decoding_mode
from ..states import denoising_progress, state_at
from ..tasks.base import AbstractTask
from ..types import Problem, Trajectory, Verdict
from .records import DenoisingSamples

BINS = 5
MOST_STATES = 16
"""Greedy completions of a rollout: at most so many states of it, evenly spaced, or a long rollout costs hours."""
_DIGITS = 6


def denoising_samples(
    policy: Policy,
    task: AbstractTask,
    problems: Sequence[Problem],
    texts: Sequence[str],
    trajectory: Trajectory,
    verdicts: Sequence[Verdict],
    *,
    backslide_problems: int,
    max_rows: int = 1024,
) -> list[DenoisingSamples]:
    """The record of each problem's samples.

    Args:
        policy: that made the rollouts.
        task: names the answer's place and judges greedy completions.
        problems: P of them.
        texts: the B = P * n completions.
        trajectory: their rollouts.
        verdicts: on the completions.
        backslide_problems: the first so many problems are completed greedily from their states.
        max_rows: rollouts of one forward.
    """
    n = trajectory.group_size
    progress_BL = denoising_progress(trajectory)
    spans = [task.answer_span(problems[row // n], text) for row, text in enumerate(texts)]
    commit_B = commit_progress(policy, trajectory, progress_BL, spans)
    order_B = [_rounded(value) for value in reveal_order(trajectory).tolist()]
    entropy_BS = [tuple(map(_rounded, row)) for row in entropy_by_progress(trajectory, progress_BL).tolist()]
    rows = min(backslide_problems, len(problems)) * n
    ever_B = None
    if rows:
        part = trajectory.rows(torch.arange(rows, device=trajectory.completion_ids_BL.device))
        ever_B = ever_right(policy, task, problems[: rows // n], part, verdicts[:rows], max_rows=max_rows)
    return [
        DenoisingSamples(
            commit_progress=tuple(commit_B[first : first + n]),
            reveal_order=tuple(order_B[first : first + n]),
            entropy_by_progress=tuple(entropy_BS[first : first + n]),
            ever_right=tuple(ever_B[first : first + n]) if ever_B is not None and first < rows else None,
        )
        for first in range(0, len(texts), n)
    ]


def commit_progress(
    policy: Policy, trajectory: Trajectory, progress_BL: Tensor, spans: Sequence[tuple[int, int] | None]
) -> list[float | None]:
    """Denoising progress at which the last token of the final answer was revealed.

    Args:
        policy: its tokenizer says which tokens a span of characters comes from.
        trajectory: B rollouts.
        progress_BL: of each token.
        spans: first and one past the last character of the answer in each text; None where there is none.

    Returns:
        B numbers in [0, 1]; None without a span.
    """
    shown_BL = trajectory.completion_mask_BL & (trajectory.completion_ids_BL != policy.eos_token_id)
    found: list[float | None] = []
    places: dict[tuple[tuple[int, int], tuple[int, ...]], range] = {}
    rows = zip(trajectory.completion_ids_BL.tolist(), shown_BL.tolist(), progress_BL.tolist(), spans, strict=True)
    for ids, shown, progress, span in rows:
        if span is None:
            found.append(None)
            continue
        kept = [place for place, visible in enumerate(shown) if visible]
        key = (span, tuple(ids[place] for place in kept))
        if key not in places:
            places[key] = _tokens_of(policy, key[1], span)
        found.append(_rounded(max(progress[kept[token]] for token in places[key])))
    return found


def _tokens_of(policy: Policy, ids: Sequence[int], span: tuple[int, int]) -> range:
    """The tokens that characters `span` come from, by bisection over the lengths of decoded beginnings."""

    def length(tokens: int) -> int:
        return len(policy.tokenizer.decode(list(ids[:tokens]), skip_special_tokens=True))

    counts = range(1, len(ids) + 1)
    first = bisect_left(counts, span[0] + 1, key=length)
    last = bisect_left(counts, span[1], key=length)
    return range(min(first, len(ids) - 1), min(last, len(ids) - 1) + 1)


def reveal_order(trajectory: Trajectory) -> Tensor:
    """Agreement of position and reveal step: (pairs from left to right - pairs from right to left) / both.

    Goodman and Kruskal's gamma, which is Kendall's tau without the tied pairs, over pairs of valid tokens of one
    decoding block that were revealed in different states: 1 is left to right, -1 right to left, however many tokens a
    state reveals.

    Returns:
        float64 [B]; NaN where no two tokens of a block were revealed in different states.
    """
    valid_BL = trajectory.completion_mask_BL & (trajectory.unmask_step_BL >= 0)
    length = valid_BL.shape[1]
    parts = []
    for rows in torch.arange(len(valid_BL), device=valid_BL.device).split(max(1, 2**22 // length**2)):
        valid_RL, step_RL, block_RL = (
            t[rows] for t in (valid_BL, trajectory.unmask_step_BL, trajectory.block_index_BL)
        )
        both_RLL = valid_RL[:, :, None] & valid_RL[:, None] & (block_RL[:, :, None] == block_RL[:, None])
        sign_RLL = (step_RL[:, None] - step_RL[:, :, None]).sign() * both_RLL
        later_RLL = sign_RLL.triu(1)
        parts.append(later_RLL.sum((1, 2)).double() / later_RLL.abs().sum((1, 2)).double())
    return torch.cat(parts)


def entropy_by_progress(trajectory: Trajectory, progress_BL: Tensor) -> Tensor:
    """Mean entropy (nats) of the distributions that the tokens of each fifth of progress were drawn from.

    Returns:
        float64 [B, 5]; NaN in a fifth without tokens.
    """
    valid_BL = (trajectory.completion_mask_BL & (trajectory.unmask_step_BL >= 0)).double()
    bin_BL = (progress_BL * BINS).long().clamp(0, BINS - 1)
    sums_BS = valid_BL.new_zeros(len(valid_BL), BINS)
    counts_BS = sums_BS.scatter_add(1, bin_BL, valid_BL)
    return sums_BS.scatter_add(1, bin_BL, trajectory.entropies_BL.double() * valid_BL) / counts_BS


def ever_right(
    policy: Policy,
    task: AbstractTask,
    problems: Sequence[Problem],
    trajectory: Trajectory,
    verdicts: Sequence[Verdict],
    *,
    max_rows: int = 1024,
) -> list[bool] | None:
    """Whether each rollout was right in some state after its first reveal, or in the end.

    A state's answer is its greedy completion. Full attention: every masked position takes its likeliest token, all in
    one forward. Block-causal attention: the states are the ends of blocks, and the blocks that follow are decoded with
    the rollout's own steps and rule at temperature 0. Of more than 16 states 16 evenly spaced ones are looked at.
    State 0 is left out: it is the same for all samples of a prompt.

    Args:
        policy: that made the rollouts.
        task: judges.
        problems: P of them.
        trajectory: B = P * n rollouts.
        verdicts: on the finished rollouts.
        max_rows: rollouts of one forward.

    Returns:
        B truth values; None where rollouts have no state between the first and the last, or revise their tokens.
    """
    if trajectory.revisions is not None:
        return None  # a canvas of noise has no masked positions to complete
    block = trajectory.decoding.kind == "block"
    last_B = trajectory.block_index_BL.masked_fill(~trajectory.completion_mask_BL, 0).amax(1)
    last_B = last_B if block else trajectory.num_steps_B - 1
    if int(last_B.max()) < 1:
        return None
    complete = _complete_blocks if block else _complete_state
    right = [verdict.status == "right" for verdict in verdicts]
    known: dict[tuple[int, str], bool] = {}
    with decoding_mode(policy):
        for state in _spaced(int(last_B.max())):
            # A rollout that ends before this state has nothing left to complete.
            rows = (last_B >= state).nonzero().flatten()
            rows = rows[[not right[row] for row in rows.tolist()]]
            for part in rows.split(max_rows):
                texts = complete(policy, trajectory.rows(part), state, max_rows)
                for row, text in zip(part.tolist(), texts, strict=True):
                    problem = row // trajectory.group_size
                    if (problem, text) not in known:
                        known[problem, text] = task.score(problems[problem], text).status == "right"
                    right[row] = right[row] or known[problem, text]
    return right


def _spaced(last: int) -> list[int]:
    """1..last, or `MOST_STATES` of them with both ends."""
    if last <= MOST_STATES:
        return list(range(1, last + 1))
    return sorted({round(1 + (last - 1) * i / (MOST_STATES - 1)) for i in range(MOST_STATES)})


def _complete_state(policy: Policy, trajectory: Trajectory, state: int, max_rows: int) -> list[str]:
    """Texts after every position that is masked in this state took its likeliest token in one forward."""
    ids_BL, _ = complete_canvas(policy, trajectory, state_at(trajectory, state), max_rows=max_rows)
    return completion_texts(policy, ids_BL)


def _complete_blocks(policy: Policy, trajectory: Trajectory, blocks: int, max_rows: int) -> list[str]:
    """Texts after the first `blocks` blocks were kept and the others decoded at temperature 0."""
    given_BL = trajectory.block_index_BL < blocks
    kept_BL = trajectory.completion_ids_BL.masked_fill(~given_BL, -1)
    kinds = distinct_rows(torch.cat([trajectory.prompt_ids_BC, trajectory.prompt_mask_BC.long(), kept_BL], dim=1))
    part = trajectory.rows(kinds.rows_U)
    greedy = dataclasses.replace(trajectory.decoding, temperature=0.0, top_p=1.0, top_k=0)
    decoded = BlockDiffusionSampler(decoding=greedy).sample(
        policy,
        part.prompt_ids_BC,
        part.prompt_mask_BC,
        group_size=1,
        # Nothing is drawn at temperature 0; the rule `random` takes one fixed order.
        row_keys_B=torch.zeros_like(kinds.rows_U),
        max_rows=max_rows,
        given=GivenBlocks(ids_BL=part.completion_ids_BL, blocks=blocks),
    )
    return completion_texts(policy, torch.where(given_BL, kept_BL, decoded.completion_ids_BL[kinds.kind_R]))


def _rounded(value: float) -> float | None:
    """A number for a file; None for NaN."""
    return None if value != value else round(value, _DIGITS)
