"""Muon with its Newton-Schulz iteration in float32 and one batched product for all matrices of a shape."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


class Float32Muon(torch.optim.Muon):
    """`torch.optim.Muon`, but for the precision and the batching of the orthogonalisation.

    PyTorch's iterates in bfloat16, which processors without bfloat16 units emulate: 20 times slower on the machine
    this was measured on, and several times the cost of the forward and backward of a tiny policy. The update is the
    same otherwise (K. Jordan, "Muon", 2024); a test compares the two.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        assert closure is None, "closures are not used here"
        for group in self.param_groups:
            for weights in _by_shape(group["params"]):
                self._step_shape(weights, group)

    def _step_shape(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """Momentum, orthogonalisation and step for weights of one shape."""
        momentum = group["momentum"]
        directions = []
        for weight in weights:
            gradient: Any = weight.grad
            buffer = self.state[weight].setdefault("momentum_buffer", torch.zeros_like(weight))
            buffer.lerp_(gradient, 1.0 - momentum)
            directions.append(gradient.lerp(buffer, momentum) if group["nesterov"] else buffer)
        rows, columns = weights[0].shape
        rate = group["lr"] * math.sqrt(max(1.0, rows / columns))
        orthogonal_NRC = orthogonalise(torch.stack(directions), group["ns_coefficients"], group["ns_steps"])
        for weight, update_RC in zip(weights, orthogonal_NRC, strict=True):
            weight.mul_(1.0 - group["lr"] * group["weight_decay"])
            weight.add_(update_RC, alpha=-rate)


def orthogonalise(
    matrices_NRC: Tensor, coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315), steps: int = 5
) -> Tensor:
    """Matrices with the same singular vectors and singular values near 1 (0.5 to 1.5), by a quintic iteration.

    Args:
        matrices_NRC: [N, R, C].
        coefficients: a, b, c of X <- a X + (b X X' + c (X X')^2) X.
        steps: iterations.

    >>> values = torch.linalg.svdvals(orthogonalise(torch.diag(torch.tensor([3.0, 2.0, 1.0]))[None]))
    >>> bool(((values > 0.5) & (values < 1.5)).all())
    True
    """
    a, b, c = coefficients
    tall = matrices_NRC.shape[-2] > matrices_NRC.shape[-1]
    x_NRC = matrices_NRC.mT if tall else matrices_NRC
    x_NRC = x_NRC / x_NRC.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    for _ in range(steps):
        gram_NRR = x_NRC @ x_NRC.mT
        x_NRC = a * x_NRC + torch.baddbmm(gram_NRR, gram_NRR, gram_NRR, beta=b, alpha=c) @ x_NRC
    return x_NRC.mT if tall else x_NRC


def _by_shape(weights: list[Tensor]) -> list[list[Tensor]]:
    shapes: dict[torch.Size, list[Tensor]] = {}
    for weight in weights:
        if weight.grad is not None:
            shapes.setdefault(weight.shape, []).append(weight)
    return list(shapes.values())
