"""Which number format a policy computes in, where that is left to the machine."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from functools import partial

import torch

from ..errors import PolicyError, unknown_name
from .base import Policy

TURNS = 6
TIMED_WEIGHTS = 200_000_000  # above this a forward takes too long to be tried on a CPU


def resolve_dtype(dtype: str, device: torch.device | str = "cpu", policy: Policy | None = None) -> torch.dtype:
    """The computation's dtype; "auto" takes bfloat16 where it saves at least a fifth of the time.

    A policy that is small enough is timed itself, since a CPU that multiplies bfloat16 twice as fast may lose all of
    it to the conversions between the products; else two matrix products are.

    >>> resolve_dtype("float32")
    torch.float32
    """
    named = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if dtype in named:
        return named[dtype]
    if dtype != "auto":
        raise PolicyError(unknown_name("dtype", dtype, ["auto", *named]))
    if policy is not None and policy.attention == "canvas":
        return torch.float32  # its rollouts are scored in the precision that they were sampled in
    small = policy is not None and sum(weight.numel() for weight in policy.module.parameters()) < TIMED_WEIGHTS
    work = partial(_forward, policy) if small and policy is not None else _product
    seconds = _fastest(work, tuple(named.values()), torch.device(device))
    return torch.bfloat16 if seconds[torch.bfloat16] < 0.8 * seconds[torch.float32] else torch.float32


def _product(dtype: torch.dtype, device: torch.device, size: int = 256) -> None:
    square = torch.ones(size, size, dtype=dtype, device=device)
    square @ square


@torch.no_grad()
def _forward(policy: Policy, dtype: torch.dtype, device: torch.device, rows: int = 16, tokens: int = 64) -> None:
    ids_BT = torch.full((rows, tokens), policy.pad_token_id, device=device)
    last_B1 = (torch.arange(tokens, device=device) == tokens - 1).expand(rows, -1)
    everybody = torch.ones(rows, 1, tokens, tokens, dtype=torch.bool, device=device)
    dataclasses.replace(policy, compute_dtype=dtype).logits(ids_BT, attention_mask=everybody, select_BT=last_B1)


def _fastest(
    work: Callable[[torch.dtype, torch.device], None], kinds: tuple[torch.dtype, ...], device: torch.device
) -> dict[torch.dtype, float]:
    """The fastest of some runs of each kind, in turns, so that a busy moment of the machine hits both."""
    best = dict.fromkeys(kinds, math.inf)
    for _ in range(TURNS):
        for kind in kinds:
            start = time.perf_counter()
            work(kind, device)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            best[kind] = min(best[kind], time.perf_counter() - start)
    return best
