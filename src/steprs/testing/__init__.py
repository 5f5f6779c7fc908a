"""Conformance checks for schedules, policies and tasks of your own: each raises AssertionError naming the rule."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..errors import did_you_mean

if TYPE_CHECKING:
    from .estimators import check_estimator as check_estimator
    from .policies import check_policy as check_policy
    from .schedules import check_schedule as check_schedule
    from .tasks import check_task as check_task

_HOME_OF = {
    "check_estimator": "estimators",
    "check_policy": "policies",
    "check_schedule": "schedules",
    "check_task": "tasks",
}
__all__ = ["check_estimator", "check_policy", "check_schedule", "check_task"]


def __getattr__(name: str) -> Any:
    """Import a check on first use: a schedule's needs torch alone, a policy's needs transformers."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'steprs.testing' has no attribute {name!r}.{did_you_mean(name, __all__)}")
    return getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
