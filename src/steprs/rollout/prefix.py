"""Keys and values of finished blocks, kept where a step can read them without copying them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

_CHUNK = 256
"""Positions that a buffer grows by: a completion of thousands is moved a few times, and little stands empty."""


class PrefixCache(DynamicCache):
    """A transformers cache whose steps write behind the finished blocks in place.

    transformers' own dynamic cache joins old and new tensors at every forward, so a step of four tokens copies the
    keys of the thousands before them. Here a forward writes into a buffer and reads a view of it; `crop` takes the
    step back by moving a number.

    Without gradients only. Nothing of it is an approximation.
    """

    def __init__(self) -> None:
        """An empty cache; layers come with the first forward."""
        super().__init__()
        self.layer_class_to_replicate = _PrefixLayer

    def read_rows(self, rows_U: Tensor | None) -> None:
        """Let the forwards that follow read these cached rows and leave nothing behind; None ends it.

        The rows are gathered one layer at a time, so that never more than one layer's keys are held twice.
        """
        layer: Any
        for layer in self.layers:
            layer.rows_U = rows_U

    @property
    def nbytes(self) -> int:
        """Memory of all buffers."""
        layers: list[Any] = self.layers
        return sum(int(tensor.nbytes) for layer in layers for tensor in (layer.keys, layer.values))


class _PrefixLayer(DynamicLayer):
    """`keys` and `values` [rows, heads, capacity, width] are buffers of which the first `length` positions count."""

    keys: Any
    values: Any

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.length = 0
        self.rows_U: Tensor | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Everything before and the new positions, which are kept unless other rows are read."""
        if self.rows_U is not None:
            return self._gathered(self.keys, key_states), self._gathered(self.values, value_states)
        stop = self.length + key_states.shape[-2]
        self.keys = _with_room(self.keys, key_states, self.length, stop)
        self.values = _with_room(self.values, value_states, self.length, stop)
        self.is_initialized = True
        self.keys[:, :, self.length : stop] = key_states
        self.values[:, :, self.length : stop] = value_states
        self.length = stop
        return self.keys[:, :, :stop], self.values[:, :, :stop]

    def get_seq_length(self) -> int:
        """Positions that count."""
        return self.length

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last `-tokens_to_remove` positions."""
        self.length += min(tokens_to_remove, 0)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows, in this order; a row may be taken several times."""
        self.keys, self.values = (tensor.index_select(0, indices) for tensor in (self.keys, self.values))

    def _gathered(self, old: Tensor, new: Tensor) -> Tensor:
        assert self.rows_U is not None
        joined = new.new_empty((*new.shape[:2], self.length + new.shape[2], new.shape[3]))
        torch.index_select(old[:, :, : self.length], 0, self.rows_U, out=joined[:, :, : self.length])
        joined[:, :, self.length :] = new
        return joined


def _with_room(buffer: Tensor | None, new: Tensor, length: int, stop: int) -> Tensor:
    """The buffer, or a longer one that holds the same first `length` positions."""
    if length == 0:
        buffer = None  # nothing is in it that other rows would have to take over
    if buffer is not None and stop <= buffer.shape[2]:
        return buffer
    larger = new.new_empty((*new.shape[:2], -(-stop // _CHUNK) * _CHUNK, new.shape[3]))
    if buffer is not None:
        larger[:, :, :length] = buffer[:, :, :length]
    return larger
