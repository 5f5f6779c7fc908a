"""The optimiser: AdamW, its learning rate as a function of the update, and its state as named tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from ..errors import NonFiniteError, RunFolderError
from ..policies.base import Policy
from .settings import OptimSettings


def make_optimizer(policy: Policy, settings: OptimSettings) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only: norms and biases have no scale to shrink."""
    parameters = policy.parameters()
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=settings.learning_rate, betas=settings.betas)


def learning_rate_at(update: int, total: int, settings: OptimSettings) -> float:
    """The rate of 1-based `update` of `total`: linear warm-up, then linear or cosine decay to 0, or constant.

    A function of the update alone, so there is no scheduler state to save.
    """
    warmup = settings.warmup_updates
    if update <= warmup:
        return settings.learning_rate * update / warmup
    if settings.schedule == "constant":
        return settings.learning_rate
    left = (total - update + 1) / max(total - warmup, 1)
    factor = left if settings.schedule == "linear" else 0.5 * (1 - math.cos(math.pi * left))
    return settings.learning_rate * factor


def apply_update(
    policy: Policy, optimizer: torch.optim.Optimizer, *, learning_rate: float, max_grad_norm: float, update: int
) -> float:
    """Clip, check and step. Returns the gradient's norm before clipping.

    Raises:
        NonFiniteError: names the first parameter whose gradient is not finite; nothing was changed.
    """
    parameters = dict(policy.named_parameters())
    norm = nn.utils.get_total_norm([p.grad for p in parameters.values() if p.grad is not None])
    if not torch.isfinite(norm):
        name = first_nonfinite((n, p.grad) for n, p in parameters.items() if p.grad is not None)
        raise NonFiniteError(
            f"update {update}: the gradient of {name or 'the norm itself'} is not finite; "
            "nothing was changed by this update and the last checkpoint is intact. "
            "Lower train.learning_rate or inspect rollouts.jsonl"
        )
    nn.utils.clip_grads_with_norm_(list(parameters.values()), max_grad_norm, norm)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(norm)


def first_nonfinite(tensors: Iterable[tuple[str, Tensor]]) -> str | None:
    """The name of the first tensor that holds NaN or infinity."""
    return next((name for name, tensor in tensors if not torch.isfinite(tensor).all()), None)


def optimizer_tensors(policy: Policy, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as `parameter/slot` tensors, for safetensors."""
    names = {id(parameter): name for name, parameter in policy.named_parameters()}
    return {
        f"{names[id(parameter)]}/{slot}": value.detach().cpu().contiguous()
        for parameter, slots in optimizer.state.items()
        for slot, value in slots.items()
    }


def load_optimizer_tensors(policy: Policy, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put `optimizer_tensors` back.

    Raises:
        RunFolderError: the saved state belongs to parameters that this policy does not have.
    """
    parameters = dict(policy.named_parameters())
    for key, value in tensors.items():
        name, _, slot = key.rpartition("/")
        if name not in parameters:
            raise RunFolderError(f"the saved optimiser state names parameter {name!r}, which this policy lacks")
        # AdamW keeps its step counter on the CPU whatever the device of the parameter.
        device = "cpu" if slot == "step" else parameters[name].device
        optimizer.state[parameters[name]][slot] = value.to(device)
