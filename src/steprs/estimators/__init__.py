"""Advantage estimators by name, and the one way from an update's rollouts to an advantage a token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from ..errors import ConfigError, did_you_mean, unknown_name
from .bae import BlockwiseAdvantage
from .base import EMPTY, AdvantageParts, Estimate, Estimator, EstimatorBatch, Memory, Spec
from .baselines import Centred, LeaveOneOut, Standardised
from .egspo import EntropySelection, StepwiseAdvantage
from .gain import MDPO, Gain
from .pipeline import estimate
from .sas import StepAdvantageSelection
from .state_anchor import StateAnchor
from .stepwise import ConstantRisk, StepRSGRPO
from .vsrm import VSRM

ESTIMATORS: Mapping[str, type[Estimator]] = MappingProxyType(
    {
        kind.spec.name: kind
        for kind in (
            StepRSGRPO,
            Centred,
            Standardised,
            LeaveOneOut,
            ConstantRisk,
            StepAdvantageSelection,
            EntropySelection,
            StateAnchor,
            StepwiseAdvantage,
            Gain,
            MDPO,
            VSRM,
            BlockwiseAdvantage,
        )
    }
)
"""Every estimator that ships, by the name used in configurations."""

__all__ = [
    "EMPTY", "ESTIMATORS", "AdvantageParts", "Estimate", "Estimator", "EstimatorBatch", "Memory", "Spec",
    "estimate", "get_estimator",
]  # fmt: skip


def get_estimator(name: str, **settings: Any) -> Estimator:
    """The estimator of that name with its settings.

    Raises:
        ConfigError: an unknown name, with the nearest one, or a setting that it does not take.
        ArgumentError: a setting outside its range.

    >>> get_estimator("standardised", ddof=0)
    Standardised(ddof=0, eps=0.0001)
    """
    if name not in ESTIMATORS:
        raise ConfigError(unknown_name("estimator", name, sorted(ESTIMATORS)))
    kind = ESTIMATORS[name]
    allowed = [entry.name for entry in fields(kind)]
    for given in settings:
        if given not in allowed:
            raise ConfigError(
                f"estimator {name!r} takes no setting {given!r}; allowed: {', '.join(allowed) or 'none'}."
                f"{did_you_mean(given, allowed)}"
            )
    return kind(**settings)
