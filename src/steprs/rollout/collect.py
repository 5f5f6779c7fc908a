"""From problems to rollouts and back to text."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from ..errors import ArgumentError, SamplingError, TaskError
from ..policies.base import Policy
from ..randomness import row_keys
from ..types import Decoding, Problem, Trajectory

_warned_greedy: set[tuple[Decoding, int]] = set()


class Sampler(Protocol):
    """What `collect` needs of a sampler."""

    @property
    def decoding(self) -> Decoding:
        """The settings."""

    def sample(
        self,
        policy: Policy,
        prompt_ids_PC: Tensor,
        prompt_mask_PC: Tensor,
        *,
        group_size: int,
        row_keys_B: Tensor,
        store_support: bool = False,
        max_rows: int = 1024,
    ) -> Trajectory:
        """Decode `group_size` rollouts of every prompt."""


class EncodedPrompts(NamedTuple):
    """P prompts as ids.

    Attributes:
        ids_PC: int64, left-padded.
        mask_PC: bool, true on real tokens.
        kept: the problems of the rows; anything computed later belongs to these only.
        dropped: how many problems had too long a prompt.
    """

    ids_PC: Tensor
    mask_PC: Tensor
    kept: tuple[Problem, ...]
    dropped: int


def encode_prompts(
    policy: Policy,
    problems: Sequence[Problem],
    *,
    max_prompt_tokens: int,
    overlong: Literal["error", "drop"] = "error",
) -> EncodedPrompts:
    """Prompts as left-padded ids; through the chat template where the tokenizer has one.

    Args:
        policy: its tokenizer and device are used.
        problems: at least one.
        max_prompt_tokens: the longest prompt allowed, template included. Nothing is ever cut.
        overlong: "error" names the first longer prompt; "drop" leaves its problem out of everything returned.

    Raises:
        TaskError: a prompt is too long, or empty, or all were dropped.
    """
    rows = ((problem, _encode(policy, problem)) for problem in problems)
    kept = [row for row in rows if _fits(*row, max_prompt_tokens, overlong)]
    _require_some(kept, len(problems), max_prompt_tokens)
    width = max(len(row) for _, row in kept)
    ids = [[policy.pad_token_id] * (width - len(row)) + row for _, row in kept]
    real = [[False] * (width - len(row)) + [True] * len(row) for _, row in kept]
    return EncodedPrompts(
        ids_PC=torch.tensor(ids, dtype=torch.int64, device=policy.device),
        mask_PC=torch.tensor(real, dtype=torch.bool, device=policy.device),
        kept=tuple(problem for problem, _ in kept),
        dropped=len(problems) - len(kept),
    )


def fitting_problems(
    policy: Policy,
    problems: Sequence[Problem],
    *,
    max_prompt_tokens: int,
    overlong: Literal["error", "drop"] = "error",
) -> Sequence[Problem]:
    """The problems that `encode_prompts` would keep, without holding the ids of a whole file at once.

    `problems` itself when all fit.

    Raises:
        TaskError: as `encode_prompts`.
    """
    fits = [_fits(problem, _encode(policy, problem), max_prompt_tokens, overlong) for problem in problems]
    _require_some([fit for fit in fits if fit], len(problems), max_prompt_tokens)
    if all(fits):
        return problems
    return tuple(problem for problem, fit in zip(problems, fits, strict=True) if fit)


def _fits(problem: Problem, row: list[int], max_prompt_tokens: int, overlong: str) -> bool:
    """False for a prompt that is dropped."""
    if not row:
        raise TaskError(f"problem {problem.id!r}: its prompt has no token")
    if len(row) > max_prompt_tokens and overlong == "error":
        raise TaskError(
            f"problem {problem.id!r}: its prompt has {len(row)} tokens, allowed are {max_prompt_tokens}; raise "
            "task.max_prompt_tokens or set task.overlong_prompts=drop"
        )
    return len(row) <= max_prompt_tokens


def _require_some(kept: Sequence[object], total: int, max_prompt_tokens: int) -> None:
    if not kept:
        raise TaskError(
            f"no prompt is left: all {total} have more than {max_prompt_tokens} tokens; raise task.max_prompt_tokens"
        )


def decode_completions(policy: Policy, trajectory: Trajectory) -> list[str]:
    """The text of each completion up to, without, the first end token; special tokens are left out.

    Only for people and verifiers: training uses the sampled ids, never ids of this text.
    """
    return decode_ids(policy, trajectory.completion_ids_BL, trajectory.completion_mask_BL)


def decode_ids(policy: Policy, ids_BL: Tensor, mask_BL: Tensor) -> list[str]:
    """The text of each row's ids in the mask, without end and other special tokens."""
    shown_BL = mask_BL & (ids_BL != policy.eos_token_id)
    rows = zip(ids_BL.tolist(), shown_BL.tolist(), strict=True)
    ids = [[token for token, shown in zip(*row, strict=True) if shown] for row in rows]
    return [str(text) for text in policy.tokenizer.batch_decode(ids, skip_special_tokens=True)]


def collect(
    policy: Policy,
    sampler: Sampler,
    problems: Sequence[Problem],
    *,
    group_size: int,
    seed: int,
    purpose: str = "rollouts",
    update: int = 0,
    prompt_index_P: Tensor | Sequence[int] | None = None,
    max_prompt_tokens: int = 1024,
    max_rows: int = 1024,
    store_support: bool = False,
) -> Trajectory:
    """`group_size` rollouts of every problem.

    Results depend on the problem, its index and the seed, not on the batch around it (beyond float ties).

    Args:
        policy: the model.
        sampler: how to decode.
        problems: P of them; leave out overlong ones with `encode_prompts` before.
        group_size: G.
        seed: the run's, see `randomness.row_keys`.
        purpose: what the rollouts are for; other purposes draw unrelated numbers.
        update: number of the update.
        prompt_index_P: index of each problem in the whole update, over all processes; None counts them from 0.
        max_prompt_tokens: a longer prompt is an error here.
        max_rows: rollouts decoded at once.
        store_support: record the support of a truncated distribution.

    Raises:
        ArgumentError: the indices do not match the problems.
        TaskError: see `encode_prompts`.
        SamplingError: see the sampler; or a mask token was left in a result.
    """
    given = range(len(problems)) if prompt_index_P is None else prompt_index_P
    index_P = torch.as_tensor(given, dtype=torch.int64, device=policy.device)
    if index_P.shape != (len(problems),):
        raise ArgumentError(
            f"prompt_index_P has shape {tuple(index_P.shape)} for {len(problems)} problems; give one each"
        )
    prompts = encode_prompts(policy, problems, max_prompt_tokens=max_prompt_tokens)
    rollout_B = torch.arange(group_size, device=policy.device).repeat(len(problems))
    trajectory = sampler.sample(
        policy,
        prompts.ids_PC,
        prompts.mask_PC,
        group_size=group_size,
        row_keys_B=row_keys(seed, purpose, update, index_P.repeat_interleave(group_size), rollout_B),
        store_support=store_support,
        max_rows=max_rows,
    )
    if bool((trajectory.completion_ids_BL == trajectory.mask_token_id).any()):
        raise SamplingError(
            "the sampler left a mask token in a completion; a sampler must reveal it or put padding there"
        )
    if sampler.decoding.temperature == 0 and group_size > 1:
        _warn_greedy(trajectory, sampler.decoding)
    return trajectory


def distinct_completions(trajectory: Trajectory) -> Tensor:
    """Number of different completions in each group, int64 [P]; what stands behind the end does not count."""
    ids_BL = trajectory.completion_ids_BL.masked_fill(~trajectory.completion_mask_BL, -1)
    group = trajectory.group_size
    ids_PGL = ids_BL.reshape(-1, group, ids_BL.shape[1])
    same_PGG = (ids_PGL[:, :, None] == ids_PGL[:, None]).all(-1)
    earlier_GG = torch.ones(group, group, dtype=torch.bool, device=ids_BL.device).tril(-1)
    return (~(same_PGG & earlier_GG).any(-1)).sum(-1)


def _warn_greedy(trajectory: Trajectory, decoding: Decoding) -> None:
    """Once for these settings: a group decoded by argmax is the same completion over and over."""
    key = (decoding, trajectory.group_size)
    if key in _warned_greedy:
        return
    _warned_greedy.add(key)
    mean = float(distinct_completions(trajectory).double().mean())
    warnings.warn(
        f"temperature is 0 (argmax): on average {mean:.2f} distinct completions in a group of "
        f"{trajectory.group_size}, so rewards within a group hardly differ; set sampler.temperature above 0",
        stacklevel=3,
    )


def _encode(policy: Policy, problem: Problem) -> list[int]:
    tokenizer = policy.tokenizer
    if getattr(tokenizer, "chat_template", None):
        messages = [{"role": "user", "content": problem.prompt}]
        ids: Any = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    else:
        try:
            ids = tokenizer(problem.prompt)["input_ids"]
        except Exception as error:
            # What `tokenizers` raises for a word that a vocabulary of words lacks has no class of its own.
            if "[UNK]" not in str(error):
                raise
            raise TaskError(
                f"problem {problem.id!r}: its prompt has words that the policy's vocabulary lacks. A tiny policy knows "
                "the words it was made from only: make one of this task with `steprs pretrain`, or give another policy"
            ) from None
    return [int(token) for token in ids]
