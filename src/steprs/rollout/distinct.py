"""Computing rows that are the same once.

Rollouts of a group start from one canvas and part only as they draw different tokens: the fully masked state is one
row a prompt, and with a trained policy a third of all forwards of a group are copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Distinct:
    """R rows as U different ones.

    Attributes:
        rows_U: int64, the first row of each kind.
        kind_R: int64, which kind each row is.
    """

    rows_U: Tensor
    kind_R: Tensor

    def logits(self, forward: Callable[[Tensor, Tensor], Tensor], select_RW: Tensor) -> Tensor:
        """Logits [N, V] at the true entries of `select_RW`, from a forward of the different rows only.

        Args:
            forward: (rows_U, select_UW) -> [M, V] in row-major order.
            select_RW: bool [R, W]; copies may select different positions.
        """
        if self.rows_U.shape == self.kind_R.shape:
            return forward(self.rows_U, select_RW)
        empty_UW = torch.zeros(self.rows_U.shape[0], select_RW.shape[1], dtype=torch.int64, device=select_RW.device)
        select_UW = empty_UW.index_add(0, self.kind_R, select_RW.long()) > 0
        number_UW = (select_UW.flatten().long().cumsum(0) - 1).view_as(select_UW)
        return forward(self.rows_U, select_UW)[number_UW[self.kind_R][select_RW]]


def distinct_rows(key_RK: Tensor) -> Distinct:
    """Rows of integers that are equal everywhere count as one; kinds stand in the order in which they appear.

    >>> found = distinct_rows(torch.tensor([[7, 1], [5, 2], [7, 1]]))
    >>> found.rows_U.tolist(), found.kind_R.tolist()
    ([0, 1], [0, 1, 0])
    """
    different_UK, kind_R = key_RK.unique(dim=0, return_inverse=True)
    rows, kinds = key_RK.shape[0], different_UK.shape[0]
    every_R = torch.arange(rows, device=key_RK.device)
    if kinds == rows:
        return Distinct(rows_U=every_R, kind_R=every_R)
    first_U = every_R.new_full((kinds,), rows).scatter_reduce(0, kind_R, every_R, "amin")
    # `unique` sorts by content, which changes from step to step while the rows, and so their cache, stay the same.
    rows_U, order_U = first_U.sort()
    return Distinct(rows_U=rows_U, kind_R=order_U.argsort()[kind_R])


def every_row(rows: int, device: torch.device) -> Distinct:
    """All rows as they are, copies too."""
    every_R = torch.arange(rows, device=device)
    return Distinct(rows_U=every_R, kind_R=every_R)


def rows_asked(select_RW: Tensor) -> Tensor:
    """Rows of which something is asked, int64: one whose window is complete while others' are not is not read.

    >>> rows_asked(torch.tensor([[False, True], [False, False], [True, True]])).tolist()
    [0, 2]
    """
    return select_RW.any(1).nonzero().squeeze(-1)
