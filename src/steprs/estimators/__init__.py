"""Advantage estimators by name. Importing this loads no torch: an estimator is imported when it is asked for."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, did_you_mean, unknown_name
from .settings import check_types

if TYPE_CHECKING:
    from .base import Estimator

_HOMES: Mapping[str, str] = MappingProxyType(
    {
        "steprs-grpo": "stepwise.StepRSGRPO",
        "centred": "baselines.Centred",
        "standardised": "baselines.Standardised",
        "rloo": "baselines.LeaveOneOut",
        "rs-grpo": "stepwise.ConstantRisk",
        "maxrl": "maxrl.MaxRL",
        "pkpo": "passk.PKPO",
        "passk-training": "passk.PassKTraining",
        "f-grpo": "fgrpo.FGRPO",
        "mapo": "mapo.MAPO",
        "a-grae": "agrae.AGRAE",
        "ha-dw": "hadw.HADW",
        "capo": "capo.CAPO",
        "wd1": "wd1.WD1",
        "wd1-batch": "wd1.WD1Batch",
        "dvao": "dvao.DVAO",
        "copo": "copo.COPO",
        "pvpo": "reference.PVPO",
        "aapo": "reference.AAPO",
        "sas": "sas.StepAdvantageSelection",
        "egspo": "egspo.EntropySelection",
        "egspo-sa": "egspo.StepwiseAdvantage",
        "state-anchor": "state_anchor.StateAnchor",
        "gain": "gain.Gain",
        "mdpo": "gain.MDPO",
        "vsrm": "vsrm.VSRM",
        "bae": "bae.BlockwiseAdvantage",
    }
)

__all__ = ["ESTIMATORS", "get_estimator"]


class _Registry(Mapping[str, "type[Estimator]"]):
    """Estimators by name; their names are known without importing any."""

    def __getitem__(self, name: str) -> type[Estimator]:
        module, _, kind = _HOMES[name].partition(".")
        found: type[Estimator] = getattr(importlib.import_module(f".{module}", __name__), kind)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)


ESTIMATORS: Mapping[str, type[Estimator]] = _Registry()
"""Every estimator that ships, by the name used in configurations."""


def get_estimator(name: str, /, **settings: Any) -> Estimator:
    """The estimator of that name with its settings.

    Raises:
        ConfigError: an unknown name, with the nearest one, a setting that it does not take, or one of a wrong type.
        ArgumentError: a setting outside its range.

    >>> get_estimator("standardised", ddof=0)
    Standardised(ddof=0, eps=0.0001)
    """
    if name not in ESTIMATORS:
        raise ConfigError(unknown_name("estimator", name, sorted(ESTIMATORS)))
    kind = ESTIMATORS[name]
    allowed = [entry.name for entry in dataclasses.fields(kind)]
    for given in settings:
        if given not in allowed:
            raise ConfigError(
                f"estimator {name!r} takes no setting {given!r}; allowed: {', '.join(allowed) or 'none'}. "
                "advantage.options=null drops those of another estimator."
                f"{did_you_mean(given, allowed)}"
            )
    check_types(name, kind, settings)
    return kind(**settings)
