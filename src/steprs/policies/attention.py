"""Every attention mask of the project is made here.

Masks are boolean [B, 1, T, S], true = the query at T may attend to the key at S, and become what a backend wants
only at the last moment (`to_backend`): eager attention *adds* its mask, so a boolean one would pass unnoticed as
a bias of 0 or 1. In every mask a query may attend at least to itself, so that padding never makes an empty softmax.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..errors import ArgumentError, PolicyError, unknown_name

Implementation = Literal["eager", "sdpa", "flex_attention"]


def full_mask(valid_BT: Tensor) -> Tensor:
    """Every query sees every real token, before and behind it.

    Args:
        valid_BT: bool [B, T], false on padding.

    Returns:
        bool [B, 1, T, T].

    >>> full_mask(torch.tensor([[False, True, True]]))[0, 0].int().tolist()
    [[1, 1, 1], [0, 1, 1], [0, 1, 1]]
    """
    valid_BT = _as_valid(valid_BT)
    return _with_self(valid_BT[:, None, None, :].expand(-1, 1, valid_BT.shape[1], -1))


def block_causal_mask(block_BT: Tensor, valid_BT: Tensor) -> Tensor:
    """A query sees its own block and the blocks before it, both directions inside a block.

    Args:
        block_BT: int64 [B, T], block of each position; its value on padding does not matter.
        valid_BT: bool [B, T], false on padding.

    Returns:
        bool [B, 1, T, T].

    >>> block_causal_mask(torch.tensor([[0, 1, 1]]), torch.ones(1, 3, dtype=torch.bool))[0, 0].int().tolist()
    [[1, 0, 0], [1, 1, 1], [1, 1, 1]]
    """
    valid_BT = _as_valid(valid_BT)
    seen_BTT = block_BT[:, None, :] <= block_BT[:, :, None]
    return _with_self((seen_BTT & valid_BT[:, None, :])[:, None])


def causal_mask(valid_BT: Tensor) -> Tensor:
    """A query sees the real tokens up to itself.

    Args:
        valid_BT: bool [B, T], false on padding.

    Returns:
        bool [B, 1, T, T].

    >>> causal_mask(torch.tensor([[False, True, True]]))[0, 0].int().tolist()
    [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    """
    valid_BT = _as_valid(valid_BT)
    length = valid_BT.shape[1]
    before_TT = torch.ones(length, length, dtype=torch.bool, device=valid_BT.device).tril()
    return _with_self((before_TT & valid_BT[:, None, :])[:, None])


def canvas_mask(block_BT: Tensor, valid_BT: Tensor) -> Tensor:
    """Every block as a canvas behind the encoded text: it sees the blocks before it encoded, and all of itself.

    Args:
        block_BT: int64 [B, T], block of each position; its value on padding does not matter.
        valid_BT: bool [B, T], false on padding.

    Returns:
        bool [B, 1, T, 2 * T]: the encoded tokens, then the canvas's own.

    >>> canvas_mask(torch.tensor([[0, 1, 1]]), torch.ones(1, 3, dtype=torch.bool))[0, 0].int().tolist()
    [[0, 0, 0, 1, 0, 0], [1, 0, 0, 0, 1, 1], [1, 0, 0, 0, 1, 1]]
    """
    valid_B1T = _as_valid(valid_BT)[:, None, :]
    before_BTT = (block_BT[:, None, :] < block_BT[:, :, None]) & valid_B1T
    own_BTT = (block_BT[:, None, :] == block_BT[:, :, None]) & valid_B1T
    return torch.cat((before_BTT[:, None], _with_self(own_BTT[:, None])), dim=-1)


def windowed(mask_B1TS: Tensor, first_BT: Tensor, key_BS: Tensor) -> Tensor:
    """The mask without the keys at positions below the first one that each query may see (sliding attention).

    Args:
        mask_B1TS: bool [B, 1, T, S].
        first_BT: int64 [B, T], position ids.
        key_BS: int64 [B, S], position ids.

    >>> windowed(torch.ones(1, 1, 2, 3, dtype=torch.bool), torch.tensor([[0, 1]]), torch.tensor([[0, 1, 2]])).int()
    tensor([[[[1, 1, 1],
              [0, 1, 1]]]], dtype=torch.int32)
    """
    return mask_B1TS & (key_BS[:, None, :] >= first_BT[:, :, None])[:, None]


def count_before(valid_BT: Tensor) -> Tensor:
    """Number of real tokens before each position, the position id of a left-padded row.

    >>> count_before(torch.tensor([[False, True, True]])).tolist()
    [[0, 0, 1]]
    """
    return (valid_BT.long().cumsum(dim=-1) - valid_BT.long()).clamp_min(0)


def packed_mask(block_RT: Tensor, stream_RT: Tensor, valid_RT: Tensor) -> Tensor:
    """Many noisy states of one sequence in one row, each seeing exactly what it would see alone.

    Stream 0 is the clean sequence, block-causal in itself. Each other stream is one noisy state of one block: its
    queries see the clean blocks strictly before their own, and their own stream (M. Arriola et al., "Block
    Diffusion", 2025, section 3.2, generalised from one noisy copy to one copy a state).

    Args:
        block_RT: int64 [R, T], block of each position, counted in the sequence it stands for.
        stream_RT: int64 [R, T], 0 for the clean sequence and a number of its own for each noisy state.
        valid_RT: bool [R, T], false on padding.

    Returns:
        bool [R, 1, T, T].

    Prompt, a clean block, and one state each of blocks 1 and 2:

    >>> block, stream = torch.tensor([[0, 1, 1, 2]]), torch.tensor([[0, 0, 1, 2]])
    >>> packed_mask(block, stream, torch.ones(1, 4, dtype=torch.bool))[0, 0].int().tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]
    """
    valid_RT = _as_valid(valid_RT)
    clean_key_R1T = (stream_RT == 0)[:, None, :]
    before_RTT = block_RT[:, None, :] < block_RT[:, :, None]
    same_block_RTT = block_RT[:, None, :] == block_RT[:, :, None]
    same_stream_RTT = stream_RT[:, None, :] == stream_RT[:, :, None]
    seen_RTT = (clean_key_R1T & before_RTT) | (same_stream_RTT & same_block_RTT)
    return _with_self((seen_RTT & valid_RT[:, None, :])[:, None])


def cached_mask(past_valid_BS: Tensor, valid_BT: Tensor) -> Tensor:
    """New tokens see the real tokens of the cache and of their own block, nothing else.

    Args:
        past_valid_BS: bool [B, S], false where the cache holds padding.
        valid_BT: bool [B, T], the tokens being appended.

    Returns:
        bool [B, 1, T, S + T].

    >>> cached_mask(torch.tensor([[False, True]]), torch.ones(1, 1, dtype=torch.bool))[0, 0].int().tolist()
    [[0, 1, 1]]
    """
    past_B1TS = _as_valid(past_valid_BS)[:, None, None, :].expand(-1, 1, valid_BT.shape[1], -1)
    return torch.cat((past_B1TS, full_mask(valid_BT)), dim=-1)


def to_backend(mask_B1TS: Tensor, implementation: str, dtype: torch.dtype) -> Any:
    """The same mask in the form that one attention implementation understands.

    Args:
        mask_B1TS: bool [B, 1, T, S], true = may attend.
        implementation: "eager" (additive, `dtype`), "sdpa" (boolean) or "flex_attention" (`BlockMask`).
        dtype: of the attention scores.

    Raises:
        ArgumentError: the mask is not boolean and four-dimensional (an additive one would be misread).
        PolicyError: the implementation is unknown.

    >>> to_backend(torch.tensor([[[[True, False]]]]), "eager", torch.float32).tolist()
    [[[[0.0, -3.4028234663852886e+38]]]]
    """
    if mask_B1TS.dtype != torch.bool or mask_B1TS.dim() != 4:
        raise ArgumentError(
            f"attention mask is {mask_B1TS.dtype} of shape {tuple(mask_B1TS.shape)}; a four-dimensional mask must be "
            "boolean [B, 1, T, S], true where a query may attend"
        )
    if implementation == "sdpa":
        return mask_B1TS
    if implementation == "eager":
        zero = torch.zeros((), dtype=dtype, device=mask_B1TS.device)
        return torch.where(mask_B1TS, zero, torch.finfo(dtype).min)
    if implementation == "flex_attention":
        return _flex_mask(mask_B1TS)
    raise PolicyError(unknown_name("attention implementation", implementation, get_args(Implementation)))


def _flex_mask(mask_B1TS: Tensor) -> Any:
    """A `BlockMask` that looks its entries up in `mask_B1TS`."""
    from torch.nn.attention.flex_attention import create_block_mask

    def may_attend(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return mask_B1TS[batch, 0, query, key]

    batch, _, queries, keys = mask_B1TS.shape
    return create_block_mask(may_attend, batch, None, queries, keys, device=mask_B1TS.device)


def _as_valid(valid_BT: Tensor) -> Tensor:
    if valid_BT.dim() != 2:
        raise ArgumentError(f"a token mask has shape [B, T]; got {tuple(valid_BT.shape)}")
    return valid_BT.bool()


def _with_self(mask_B1TT: Tensor) -> Tensor:
    return mask_B1TT | torch.eye(mask_B1TT.shape[-1], dtype=torch.bool, device=mask_B1TT.device)
