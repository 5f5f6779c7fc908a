"""From the base policy's capability to a risk coefficient: one number b0 that schedules are multiples of.

The measured quantity is the pass rate p0 of the base policy under the *training* sampler on training prompts. Each
rule asks for a coefficient with a stated effect at that pass rate. Source: the rules are this project's; the published
method says only that the coefficient is matched to capability.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from .errors import ArgumentError, CalibrationError, unknown_name
from .risk import crossover_pass_rate, risk_scale, tilt

Rule = Literal["halve-failure", "odds", "log-inverse", "max-scale", "crossover", "weight-cap", "mass-neutral", "target"]
Clip = tuple[float, float] | None

# |b| is clipped by default for one rule only; see `calibrate_risk`.
DEFAULT_CLIP: dict[str, Clip] = {"halve-failure": (0.5, 4.0)}


def calibrate_risk(
    pass_rate: float | Tensor,
    rule: Rule = "halve-failure",
    *,
    clip: Clip | Literal["the rule's own"] = "the rule's own",
    target: float | None = None,
    weight: float | None = None,
) -> float:
    """The coefficient b0 that `rule` gives for a measured pass rate.

    | rule | b0 | effect |
    |---|---|---|
    | `halve-failure` | log(1 + 1/p0) | the tilt halves the failure rate; floor 1/expm1(b) = p0 |
    | `odds` | log((1-p0)/p0) | the RMS advantage over prompts peaks at p0 |
    | `log-inverse` | log(1/p0) | |
    | `max-scale` | argmax_b c(p0, b) | the largest weight on prompts at p0 |
    | `crossover` | c(p0, b) = 1, b != 0 | prompts harder than p0 are amplified, easier ones damped |
    | `weight-cap` | expm1(b)/b = weight | no prompt weighs more than `weight` |
    | `mass-neutral` | sum_x c p(1-p) = sum_x p(1-p), b != 0, nearest 0 | total mass over prompts is kept |
    | `target` | logit(target) - logit(p0) | the tilt moves p0 to `target` |

    Args:
        pass_rate: p0, or the measured pass rates of prompts (tensor): pooled by their mean, except by `mass-neutral`,
            which weighs every prompt. Not looked at by `weight-cap`.
        rule: a name of the table.
        clip: bounds (low, high) on |b0|, None for none. By default (0.5, 4) for `halve-failure`, none for the others.
            The sign is kept; 0 counts as positive.
        target: pass rate in (0, 1) for `target`.
        weight: largest weight > 0 for `weight-cap`; below 1 the coefficient is negative.

    Returns:
        b0, unit 1/reward.

    Raises:
        CalibrationError: the rule has no solution for this pass rate, e.g. nothing was solved.
        ArgumentError: unknown rule, or a missing, superfluous or impossible input.

    >>> round(calibrate_risk(0.25), 3), round(calibrate_risk(0.25, "odds"), 3)
    (1.609, 1.099)
    >>> calibrate_risk(0.001), round(calibrate_risk(0.001, clip=None), 3)
    (4.0, 6.909)
    """
    if rule not in _POOLED and rule not in ("weight-cap", "mass-neutral", "target"):
        raise ArgumentError(unknown_name("calibration rule", rule, RULES))
    _check_input("target", target, needed=rule == "target", rule=rule)
    _check_input("weight", weight, needed=rule == "weight-cap", rule=rule)
    if rule == "weight-cap":
        risk_coef = _weight_cap(float(weight or 0.0))
    else:
        rates = _pass_rates(pass_rate)
        if rule == "mass-neutral":
            risk_coef = _mass_neutral(rates)
        elif rule == "target":
            risk_coef = _target(float(rates.mean()), float(target or 0.0))
        else:
            risk_coef = _POOLED[rule](float(rates.mean()))
    bounds = DEFAULT_CLIP.get(rule) if isinstance(clip, str) else clip
    return risk_coef if bounds is None else _clipped(risk_coef, bounds)


def _halve_failure(p0: float) -> float:
    _require(p0 > 0, "halve-failure", p0)
    return math.log1p(1 / p0)


def _odds(p0: float) -> float:
    _require(0 < p0 < 1, "odds", p0)
    return math.log1p(-p0) - math.log(p0)


def _log_inverse(p0: float) -> float:
    _require(p0 > 0, "log-inverse", p0)
    return -math.log(p0) + 0.0


def _max_scale(p0: float) -> float:
    """The slope of log c over b is tilt(p, b) against 1 - p*(b): the peak is where they meet."""
    _require(0 < p0 < 1, "max-scale", p0)
    if p0 == 0.5:
        return 0.0
    if p0 > 0.5:
        return -_max_scale(1 - p0)
    return bisect_root(lambda b: 1 - float(crossover_pass_rate(b)) - float(tilt(p0, b)), 0.0, _beyond(p0))


def _crossover(p0: float) -> float:
    """Inverse of p*(b) = 1/b - 1/expm1(b), which falls from 1 to 0."""
    _require(0 < p0 < 1, "crossover", p0)
    if p0 == 0.5:
        return 0.0
    if p0 > 0.5:
        return -_crossover(1 - p0)
    return bisect_root(lambda b: float(crossover_pass_rate(b)) - p0, 0.0, _beyond(p0))


_POOLED: dict[str, Callable[[float], float]] = {
    "halve-failure": _halve_failure,
    "odds": _odds,
    "log-inverse": _log_inverse,
    "max-scale": _max_scale,
    "crossover": _crossover,
}
RULES: tuple[str, ...] = (*_POOLED, "weight-cap", "mass-neutral", "target")


def _target(p0: float, target: float) -> float:
    _require(0 < p0 < 1, "target", p0)
    if not 0 < target < 1:
        raise ArgumentError(f"target is {target}; rule 'target' needs a pass rate strictly between 0 and 1")
    return math.log(target) - math.log1p(-target) - math.log(p0) + math.log1p(-p0)


def _weight_cap(weight: float) -> float:
    """Root of expm1(b)/b = weight: c(0, b), the weight of a prompt that is never solved, rises through 1 at b = 0."""
    if not 0 < weight < math.inf:
        raise ArgumentError(f"weight is {weight}; rule 'weight-cap' needs a finite weight > 0")

    def excess(b: float) -> float:
        return math.log(float(risk_scale(0.0, b))) - math.log(weight)

    # expm1(b)/b > b/2 for b > 0 and < 1/|b| for b < 0 bound the root.
    return 0.0 if weight == 1 else bisect_root(excess, *((0.0, 700.0) if weight > 1 else (0.0, -1 / weight)))


def _mass_neutral(rates: Tensor) -> float:
    live = rates[(rates > 0) & (rates < 1)]
    if live.numel() == 0:
        raise CalibrationError(
            "no prompt has a pass rate strictly between 0 and 1, so 'mass-neutral' has nothing to weigh; "
            "measure more prompts or more samples"
        )
    if rates.numel() == 1:
        return _crossover(float(rates))
    mass = live * (1 - live)

    def gained(b: float) -> float:
        return float((mass * (risk_scale(live, b) - 1)).sum())

    # Around 0 the gained mass is b (slope + b curvature) to third order.
    slope = float((mass * (0.5 - live)).sum())
    curvature = float((mass * (1 / 6 - mass)).sum())
    flat = abs(slope) <= 1e-12 * float(mass.sum())
    near = 0.0 if flat or curvature == 0 else -slope / curvature
    if 0 < abs(near) < 1e-3:
        return near
    decades = 1 + math.ceil(math.log10(_beyond(float(live.min()))))
    grid = torch.logspace(-3, decades, 20 * (3 + decades) + 1, dtype=torch.float64)
    signs = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    scales = risk_scale(live[:, None, None], signs * grid)
    gains = (mass[:, None, None] * (scales - 1)).sum(0)
    crossed = ((gains[:, :-1] > 0) & (gains[:, 1:] <= 0)) | ((gains[:, :-1] < 0) & (gains[:, 1:] >= 0))
    nearest_first = crossed.T.nonzero()
    if len(nearest_first):
        place, side = nearest_first[0].tolist()
        low, high = (signs[side] * grid[place : place + 2]).tolist()
        return bisect_root(gained, low, high)
    # Mass is lost on both sides of 0: the root has merged with b = 0, as at p = 1/2.
    return 0.0


def _beyond(p0: float) -> float:
    """A coefficient past every root at pass rate p0: p*(b) < 1/b."""
    return 2 / min(p0, 1 - p0)


def bisect_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Root between two points where the sign changes, to the last bit; low may be where the function is 0 trivially."""
    positive_beyond = function(high) > 0
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if (function(middle) > 0) == positive_beyond else (middle, high)
    return (low + high) / 2


def _clipped(risk_coef: float, bounds: tuple[float, float]) -> float:
    low, high = bounds
    if not 0 <= low <= high:
        raise ArgumentError(f"clip is {bounds}; give bounds 0 <= low <= high on |risk_coef|, or None")
    return math.copysign(min(max(abs(risk_coef), low), high), risk_coef)


def _pass_rates(pass_rate: float | Tensor) -> Tensor:
    rates = torch.as_tensor(pass_rate, dtype=torch.float64).detach().reshape(-1).cpu()
    if rates.numel() == 0:
        raise ArgumentError("pass_rate is empty; give one number or the measured pass rates of prompts")
    if not bool(((rates >= 0) & (rates <= 1)).all()):
        raise ArgumentError("pass_rate holds a value outside [0, 1]; give shares of right answers, e.g. 0.25")
    return rates


def _check_input(name: str, value: float | None, *, needed: bool, rule: str) -> None:
    if needed and value is None:
        raise ArgumentError(f"rule {rule!r} needs {name}=...")
    if not needed and value is not None:
        raise ArgumentError(f"{name}={value} has no meaning for rule {rule!r}; leave it out")


def _require(solvable: bool, rule: str, p0: float) -> None:
    if not solvable:
        kind = (
            "nothing was solved: use easier prompts, more samples"
            if p0 == 0
            else "everything was solved: use harder prompts"
        )
        raise CalibrationError(
            f"rule {rule!r} has no finite coefficient at a pass rate of {p0:g}; {kind}, or set the coefficient yourself"
        )
