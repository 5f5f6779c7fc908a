"""Errors say what was given, what is allowed and what to do.

Each class is also the builtin kind it resembles, so `except ValueError` written by a user works.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class StepRSError(Exception):
    """Base of everything this package raises on purpose."""


class ConfigError(StepRSError, ValueError):
    """A setting is missing, misspelt, of the wrong type or contradicts another."""


class ArgumentError(StepRSError, ValueError):
    """A function was given a value or shape it cannot use."""


class RewardError(StepRSError, ValueError):
    """A reward is None, NaN or infinite; names the problem."""


class NormalisationError(StepRSError, ValueError):
    """Standardising an advantage that was already weighted would cancel the weighting exactly."""


class CalibrationError(StepRSError, ValueError):
    """A calibration rule has no solution for the measured pass rate."""


class TaskError(StepRSError, ValueError):
    """A task, its file or one of its rows cannot be used."""


class PolicyError(StepRSError, ValueError):
    """A checkpoint cannot be loaded as the family that was asked for."""


class SamplingError(StepRSError, ValueError):
    """A decoding setting cannot be carried out exactly."""


class NonFiniteError(StepRSError, RuntimeError):
    """A loss, gradient, weight or log-probability is NaN or infinite; names it and the update."""


class RunFolderError(StepRSError, OSError):
    """A run folder is locked, torn, or not what the command expects."""


class DependencyError(StepRSError, RuntimeError, ImportError):
    """An optional package is needed; the message holds the install command."""


def did_you_mean(given: str, allowed: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the nearest allowed name, or an empty string.

    >>> did_you_mean("liner", ["linear", "cosine"])
    " Did you mean 'linear'?"
    """
    near = difflib.get_close_matches(given, list(allowed), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def unknown_name(kind: str, given: str, allowed: Iterable[str]) -> str:
    """One sentence for a name that is not in a table.

    >>> unknown_name("schedule", "liner", ["cosine", "linear"])
    "unknown schedule 'liner'; allowed: cosine, linear. Did you mean 'linear'?"
    """
    names = sorted(allowed)
    return f"unknown {kind} {given!r}; allowed: {', '.join(names)}.{did_you_mean(given, names)}"
