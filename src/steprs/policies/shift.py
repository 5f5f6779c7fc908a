"""Where the row that scores a position is found, for heads that predict the next token.

A model made from a causal one may keep its head: what the head says at position l - 1 is about the token at l. Such
a policy reads the row of the position before. "Before" is in the sequence, not in the row of the input: a packed row
holds many noisy states side by side, and the first position of a block follows the last clean one. The position
before is the column that the query sees and whose position id is one less; a mask shows every position at most once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import ArgumentError


def rows_before(mask_B1TS: Tensor, position_BT: Tensor, select_BT: Tensor | None) -> Tensor:
    """Flat index `b * T + t` of the row that scores each position.

    The first position of a sequence has nothing before it and keeps its own row, as in the published code.

    Args:
        mask_B1TS: bool [B or 1, 1, T, S], true = may attend; the last T of the S columns are the input's own.
        position_BT: int64 [B, T], position ids of the input; counted from 0 in every sequence.
        select_BT: bool [B, T] positions that are asked for; None = all.

    Returns:
        int64 [N] in row-major order of `select_BT`, or [B, T] for all.

    Raises:
        ArgumentError: a position other than the first does not see the one before it in this input: it is hidden by
            the mask, or only in the cache, which keeps no hidden states.

    A prompt of two tokens and two noisy states of the position after it, which is scored by the prompt's last row:

    >>> mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]]).bool()
    >>> rows_before(mask[None, None], torch.tensor([[0, 1, 2, 2]]), None)
    tensor([[0, 0, 1, 1]])
    """
    batch, length = position_BT.shape
    wanted_BT = torch.ones_like(position_BT, dtype=torch.bool) if select_BT is None else select_BT
    row_N, column_N = wanted_BT.nonzero(as_tuple=True)
    sees_NT = mask_B1TS.expand(batch, -1, -1, -1)[row_N, 0, column_N, -length:]
    before_NT = sees_NT & (position_BT[row_N] == position_BT[row_N, column_N][:, None] - 1)
    found_N = before_NT.any(-1)
    lost_N = ~found_N & (position_BT[row_N, column_N] > 0)
    if bool(lost_N.any()):
        index = int(lost_N.nonzero()[0])
        raise ArgumentError(
            f"this policy's head predicts the next token, and row {int(row_N[index])}, position "
            f"{int(position_BT[row_N[index], column_N[index]])} does not see the position before it in this input; "
            "let the mask show it, and with a cache crop one token and give that token again"
        )
    rows_N = row_N * length + torch.where(found_N, before_NT.int().argmax(-1), column_N)
    return rows_N.view(batch, length) if select_BT is None else rows_N
