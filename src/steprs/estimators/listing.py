"""What `steprs estimators list | show` and the documentation's page say, as plain records."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from ..schedules import AbstractSchedule
from . import ESTIMATORS, get_estimator


def list_estimators() -> list[dict[str, Any]]:
    """One record an estimator, in the order of the registry.

    >>> [record["name"] for record in list_estimators()][:3]
    ['steprs-grpo', 'centred', 'standardised']
    """
    return [describe_estimator(name) for name in ESTIMATORS]


def describe_estimator(name: str) -> dict[str, Any]:
    """Its spec, `formula` (the class's documentation) and `settings` with their defaults, as plain values.

    Raises:
        ConfigError: an unknown name, with the nearest one.

    >>> describe_estimator("standardised")["settings"]
    {'ddof': 1, 'eps': 0.0001}
    """
    estimator = get_estimator(name)
    spec = dataclasses.asdict(estimator.spec)
    return {
        **spec,
        "requires": list(estimator.spec.requires),
        "settings": {key: _plain(value) for key, value in estimator.settings().items()},
        "formula": inspect.cleandoc(type(estimator).__doc__ or ""),
    }


def traits(record: dict[str, Any]) -> list[str]:
    """What is peculiar about an estimator, in a few words each, from its record.

    >>> traits(describe_estimator("a-grae"))
    ['looks at the whole batch', 'rewards 0 and 1 only', 'does not sum to 0 in a group']
    """
    coupling = {"batch": "looks at the whole batch", "history": "remembers earlier updates"}
    said = [
        (record["coupling"] in coupling, coupling.get(record["coupling"], "")),
        (record["binary"], "rewards 0 and 1 only"),
        (record["granularity"] != "sequence", f"differs by {record['granularity']}"),
        (record["zero_sum"] == "none", "does not sum to 0 in a group"),
        (record["alive"], "alive on groups of equal rewards"),
        (bool(record["requires"]), f"needs {', '.join(record['requires'])}"),
    ]
    return [words for holds, words in said if holds]


def _plain(value: Any) -> Any:
    return value.describe() if isinstance(value, AbstractSchedule) else value
