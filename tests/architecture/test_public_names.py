"""The names that people outside rely on exist, are typed, explained and shown at work."""

from __future__ import annotations

import inspect

import pytest

import steprs

PUBLIC = [
    "entropic_advantages",
    "risk_scale",
    "stepwise_advantages",
    "stepwise_advantages_flat",
    "ConstantSchedule",
    "LinearSchedule",
    "CosineSchedule",
    "PowerSchedule",
    "SigmoidSchedule",
    "ExponentialSchedule",
    "GeometricSchedule",
    "StepSchedule",
    "KnotSchedule",
    "ReversedSchedule",
    "PassRateSchedule",
    "calibrate_risk",
    "pass_at_k",
    "distinct_at_k",
    "check_answer",
    "Trajectory",
    "state_at",
    "denoising_progress",
    "load_policy",
    "train",
    "evaluate",
    "errors",
]
# These need a recorded rollout, a checkpoint or a run; their pages show them instead.
WITHOUT_DOCTEST = {"Trajectory", "state_at", "denoising_progress", "load_policy", "train", "evaluate", "errors"}


@pytest.mark.parametrize("name", PUBLIC)
def test_is_there(name: str) -> None:
    assert getattr(steprs, name) is not None
    assert name in steprs.__all__
    assert name in dir(steprs)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="entropic_advantage"):
        steprs.entropic_advantage  # noqa: B018


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "errors"])
def test_is_explained(name: str) -> None:
    thing = getattr(steprs, name)
    documentation = inspect.getdoc(thing) or ""
    assert len(documentation) > 40, f"{name} has no docstring worth the name"
    if name not in WITHOUT_DOCTEST:
        assert ">>> " in documentation, f"{name} has no example"


@pytest.mark.parametrize("name", [name for name in PUBLIC if name.islower() and name != "errors"])
def test_is_typed(name: str) -> None:
    signature = inspect.signature(getattr(steprs, name))
    untyped = [p.name for p in signature.parameters.values() if p.annotation is inspect.Parameter.empty]
    assert not untyped
    assert signature.return_annotation is not inspect.Signature.empty
