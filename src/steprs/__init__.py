"""Reinforcement learning with verifiable rewards for diffusion language models, with stepwise risk-sensitive GRPO.

Names are imported on first use (PEP 562), so `import steprs` costs nothing and does not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import errors as errors
    from .advantages import dead_groups as dead_groups
    from .advantages import stepwise_advantages as stepwise_advantages
    from .advantages import stepwise_advantages_flat as stepwise_advantages_flat
    from .build import evaluate as evaluate
    from .build import train as train
    from .calibration import calibrate_risk as calibrate_risk
    from .config import RunConfig as RunConfig
    from .config import load_config as load_config
    from .evaluation.diversity import distinct_at_k as distinct_at_k
    from .evaluation.pass_at_k import pass_at_k as pass_at_k
    from .policies.loading import load_policy as load_policy
    from .risk import entropic_advantages as entropic_advantages
    from .risk import finite_group_scale as finite_group_scale
    from .risk import risk_scale as risk_scale
    from .schedules import AbstractSchedule as AbstractSchedule
    from .schedules import ConstantSchedule as ConstantSchedule
    from .schedules import CosineSchedule as CosineSchedule
    from .schedules import ExponentialSchedule as ExponentialSchedule
    from .schedules import GeometricSchedule as GeometricSchedule
    from .schedules import KnotSchedule as KnotSchedule
    from .schedules import LinearSchedule as LinearSchedule
    from .schedules import PassRateSchedule as PassRateSchedule
    from .schedules import PowerSchedule as PowerSchedule
    from .schedules import ReversedSchedule as ReversedSchedule
    from .schedules import SigmoidSchedule as SigmoidSchedule
    from .schedules import StepSchedule as StepSchedule
    from .states import denoising_progress as denoising_progress
    from .states import state_at as state_at
    from .tasks.verifiers import check_answer as check_answer
    from .types import Advantages as Advantages
    from .types import Trajectory as Trajectory

__version__ = "0.1.0"

_HOMES = {
    "advantages": ("dead_groups", "stepwise_advantages", "stepwise_advantages_flat"),
    "build": ("evaluate", "train"),
    "calibration": ("calibrate_risk",),
    "evaluation.diversity": ("distinct_at_k",),
    "config": ("RunConfig", "load_config"),
    "evaluation.pass_at_k": ("pass_at_k",),
    "policies.loading": ("load_policy",),
    "risk": ("entropic_advantages", "finite_group_scale", "risk_scale"),
    "schedules": (
        "AbstractSchedule",
        "ConstantSchedule",
        "CosineSchedule",
        "ExponentialSchedule",
        "GeometricSchedule",
        "KnotSchedule",
        "LinearSchedule",
        "PassRateSchedule",
        "PowerSchedule",
        "ReversedSchedule",
        "SigmoidSchedule",
        "StepSchedule",
    ),
    "states": ("denoising_progress", "state_at"),
    "tasks.verifiers": ("check_answer",),
    "types": ("Advantages", "Trajectory"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", "errors", *sorted(_HOME_OF)]


def __getattr__(name: str) -> Any:
    """Import the home of a public name; unknown names get a did-you-mean."""
    from .errors import did_you_mean

    if name == "errors":
        return importlib.import_module(".errors", __name__)
    if name not in _HOME_OF:
        raise AttributeError(f"module 'steprs' has no attribute {name!r}.{did_you_mean(name, __all__)}")
    value = getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, for completion."""
    return sorted(__all__)
