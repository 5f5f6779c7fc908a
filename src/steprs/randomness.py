"""Random numbers that belong to a rollout, not to a batch: one uniform a (row, step, position).

Every number is a hash of what it is for: (seed, purpose, update, prompt, rollout) gives the row's key, and
(key, stream, step, position) the number. There is no generator state, so the same rollout draws the same numbers
alone or in a batch, on one process or eight, before and after a resume, on any device. The hash is the finaliser of
SplitMix64 (Steele, Lea & Flood 2014, with Stafford's thirteenth constants), applied for every word that is absorbed;
all arithmetic is 64-bit integers modulo 2^64, which torch's int64 gives everywhere.

The numbers are part of what a seed means: changing anything here changes every recorded run, and golden values in the
tests say so.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from .errors import ArgumentError

_WORD = 1 << 64
_HALF = 1 << 63


def _signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    value %= _WORD
    return value - _WORD if value >= _HALF else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


def row_keys(seed: int, purpose: str, update: int, prompt_index_B: Tensor, rollout_index_B: Tensor) -> Tensor:
    """The key of each rollout.

    Args:
        seed: the run's seed.
        purpose: what the numbers are for ("train", "eval", ...); other purposes draw unrelated numbers.
        update: the optimiser's update, or any other counter.
        prompt_index_B: int64 [B], index of the prompt in the whole update (over all processes), not in the batch.
        rollout_index_B: int64 [B], index of the rollout in its group.

    Returns:
        int64 [B].

    Raises:
        ArgumentError: the two index tensors differ in shape.

    >>> row_keys(0, "train", 1, torch.tensor([0, 0]), torch.tensor([0, 1])).tolist()
    [7505178172097645494, 4704953875741021103]
    """
    if prompt_index_B.shape != rollout_index_B.shape:
        raise ArgumentError(
            f"prompt_index_B has shape {tuple(prompt_index_B.shape)} and rollout_index_B "
            f"{tuple(rollout_index_B.shape)}; give one of each for every row"
        )
    name = int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little", signed=True)
    key_B = torch.zeros_like(prompt_index_B, dtype=torch.int64)
    for word in (seed, name, update, prompt_index_B, rollout_index_B):
        key_B = _absorb(key_B, word)
    return key_B


def uniforms(keys_B: Tensor, step: int | Tensor, positions_L: Tensor, stream: int = 0) -> Tensor:
    """One number in the open interval (0, 1) a row and position.

    Args:
        keys_B: int64 [B], from `row_keys`.
        step: the denoising step, one for all rows or int64 [B].
        positions_L: int64 [L], or [B, L] where rows look at different positions.
        stream: numbers for another use in the same step (0 draws tokens, 1 orders positions).

    Returns:
        float64 [B, L], multiples of 2^-52 shifted by half of one: neither 0 nor 1 can occur.

    >>> keys = row_keys(0, "train", 1, torch.tensor([3]), torch.tensor([0]))
    >>> bool((uniforms(keys, 2, torch.arange(4)) == uniforms(keys, torch.tensor([2]), torch.arange(4))).all())
    True
    """
    state_B = _absorb(_absorb(keys_B, stream), step)
    bits_BL = _absorb(state_B[:, None], positions_L.to(keys_B.device))
    return (_shift(bits_BL, 12).double() + 0.5) * 2.0**-52


def _absorb(state: Tensor, word: int | Tensor) -> Tensor:
    """A new state that depends on every bit of the state and the word; broadcasts."""
    # The odd multiplier spreads small counters, the added constant keeps an all-zero state from staying zero.
    spread = _signed(word * _GOLDEN) if isinstance(word, int) else word * _GOLDEN
    return _mix(_mix(state + _GOLDEN) ^ spread)


def _mix(bits: Tensor) -> Tensor:
    bits = (bits ^ _shift(bits, 30)) * _FIRST
    bits = (bits ^ _shift(bits, 27)) * _SECOND
    return bits ^ _shift(bits, 31)


def _shift(bits: Tensor, count: int) -> Tensor:
    """Logical right shift; torch's shift of an int64 is arithmetic."""
    return (bits >> count) & ((1 << (64 - count)) - 1)
