"""Short ways to make samplers, keys and prompts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from steprs.randomness import row_keys
from steprs.rollout.block import BlockDiffusionSampler
from steprs.rollout.masked import MaskedDiffusionSampler
from steprs.types import Decoding, Trajectory

THRESHOLDS = {"entropy_bound": 0.9, "confidence_threshold": 0.6}


def decoding(kind: str, length: int, steps: int, block_size: int, **changes: Any) -> Decoding:
    rule = changes.get("unmasking", "max_probability")
    fields = {"unmasking": rule, "threshold": THRESHOLDS.get(rule)} | changes
    return Decoding(kind=kind, length=length, steps=steps, block_size=block_size, **fields)  # type: ignore[arg-type]


def make_sampler(settings: Decoding, **options: Any) -> Any:
    if settings.kind == "block":
        return BlockDiffusionSampler(decoding=settings, **options)
    return MaskedDiffusionSampler(decoding=settings)


def make_keys(prompts: int, group: int, *, seed: int = 0, first: int = 0) -> Tensor:
    index_B = torch.arange(first, first + prompts).repeat_interleave(group)
    return row_keys(seed, "test", 0, index_B, torch.arange(group).repeat(prompts))


def padded(rows: list[list[int]], width: int | None = None) -> tuple[Tensor, Tensor]:
    width = width or max(len(row) for row in rows)
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])
    return ids, mask


def sample(policy: Any, settings: Decoding, rows: list[list[int]], group: int, **options: Any) -> Trajectory:
    sampler_options = {name: options.pop(name) for name in ("use_cache",) if name in options}
    ids, mask = padded(rows, options.pop("width", None))
    keys = options.pop("keys", None)
    keys = make_keys(len(rows), group) if keys is None else keys
    trajectory: Trajectory = make_sampler(settings, **sampler_options).sample(
        policy, ids, mask, group_size=group, row_keys_B=keys, **options
    )
    return trajectory


def assert_same(one: Trajectory, other: Trajectory) -> None:
    """Tokens and steps identical, log-probabilities and entropies to 1e-5."""
    assert torch.equal(one.completion_ids_BL, other.completion_ids_BL)
    assert torch.equal(one.unmask_step_BL, other.unmask_step_BL)
    assert torch.equal(one.block_index_BL, other.block_index_BL)
    assert torch.equal(one.num_steps_B, other.num_steps_B)
    torch.testing.assert_close(one.sampling_logprobs_BL, other.sampling_logprobs_BL, atol=1e-5, rtol=0)
    torch.testing.assert_close(one.entropies_BL, other.entropies_BL, atol=1e-5, rtol=0)
