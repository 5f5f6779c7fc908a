"""Splitting a sampling call into parts of bounded size whose prompts can be decoded together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..policies.base import Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Rollouts `rollouts` of some prompts.

    Attributes:
        prompt_ids_QC, prompt_mask_QC: the part's Q prompts, without columns that are padding for all of them.
        group: rollouts of each prompt in this part.
        rows_R: int64 [Q * group], where the rollouts stand in the whole call, prompt by prompt.
    """

    prompt_ids_QC: Tensor
    prompt_mask_QC: Tensor
    group: int
    rows_R: Tensor


def split_parts(prompt_ids_PC: Tensor, prompt_mask_PC: Tensor, *, group_size: int, max_rows: int) -> Iterator[Part]:
    """Parts of at most `max_rows` rollouts, whole groups where they fit; none where there is no prompt.

    Raises:
        ArgumentError: `group_size` or `max_rows` is below 1, or a prompt has no token.
    """
    if group_size < 1 or max_rows < 1:
        raise ArgumentError(f"group_size is {group_size} and max_rows {max_rows}; both must be 1 or more")
    if not bool(prompt_mask_PC.any(1).all()):
        raise ArgumentError("a prompt has no token; every row of prompt_mask_PC needs at least one true entry")
    if prompt_mask_PC.shape[0] == 0:
        return
    prompts, group = max(1, max_rows // group_size), min(group_size, max_rows)
    for index_Q in torch.arange(prompt_mask_PC.shape[0], device=prompt_mask_PC.device).split(prompts):
        mask_QC = prompt_mask_PC[index_Q]
        first = int(mask_QC.any(0).long().argmax())
        for start in range(0, group_size, group):
            rollouts_G = torch.arange(start, min(start + group, group_size), device=index_Q.device)
            yield Part(
                prompt_ids_QC=prompt_ids_PC[index_Q, first:],
                prompt_mask_QC=mask_QC[:, first:],
                group=rollouts_G.shape[0],
                rows_R=(index_Q[:, None] * group_size + rollouts_G).flatten(),
            )


@contextlib.contextmanager
def decoding_mode(policy: Policy) -> Iterator[None]:
    """Without gradients and dropout; the module is left in the mode it was in."""
    training = policy.module.training
    policy.module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        policy.module.train(training)
