"""Which device each tensor of a model goes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from accelerate import dispatch_model, infer_auto_device_map
from transformers import PreTrainedModel

from ..errors import PolicyError

DeviceMap = Mapping[str, Any] | Literal["auto"] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Devices by the module names that stand before a tensor's name; "" is everything.

    >>> place = Placement(devices={"": torch.device("cpu"), "model.layers.1": torch.device("meta")})
    >>> [place.of(name).type for name in ("model.layers.1.mlp.up_proj.weight", "model.layers.11.mlp.up_proj.weight")]
    ['meta', 'cpu']
    """

    devices: Mapping[str, torch.device]

    def of(self, name: str) -> torch.device:
        """Where the tensor of that name goes.

        Raises:
            PolicyError: no entry stands before it.
        """
        module = name
        while module not in self.devices:
            if not module:
                raise PolicyError(f"device_map says nothing of {name}; give it an entry, or '' for all the rest")
            module = module.rpartition(".")[0]
        return self.devices[module]


def placement(model: PreTrainedModel, device_map: DeviceMap, default: torch.device) -> Placement:
    """One device, the map given, or one that fills the devices of this machine ("auto").

    Args:
        model: may be without memory.
        device_map: None = everything on `default`.
        default: a device.
    """
    if device_map is None:
        return Placement(devices={"": default})
    devices: Mapping[str, Any] = {} if isinstance(device_map, str) else device_map
    if isinstance(device_map, str):
        devices = infer_auto_device_map(model, no_split_module_classes=list(model._no_split_modules or ()))
    return Placement(devices={name: torch.device(device) for name, device in devices.items()})


def spread(model: PreTrainedModel, placed: Placement) -> PreTrainedModel:
    """A model on several devices moves its hidden states along; on one it stays as it is."""
    if len(set(placed.devices.values())) > 1:
        dispatch_model(model, {name: str(device) for name, device in placed.devices.items()})
    return model
