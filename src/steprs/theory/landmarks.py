"""Where c(p, b) has its landmarks, and the coefficient that each calibration rule gives."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..calibration import RULES, calibrate_risk
from ..errors import CalibrationError
from ..risk import crossover_pass_rate, risk_scale
from .sheet import Sheet
from .weights import checked_group_size

_INPUTS = {"target": "target", "weight-cap": "weight"}


def coefficient_sheet(risk_coefs: Sequence[float], *, group_size: int = 16) -> Sheet:
    """One row a coefficient b: crossover, peaks, ends and bounds.

    | column | |
    |---|---|
    | `crossover` | p* = 1/b - 1/expm1(b), where c = 1; for b > 0 harder prompts are amplified |
    | `RMS peak` | sigmoid(-b): the pass rate with the largest sqrt(p (1 - p)) c |
    | `mean abs peak` | sigmoid(-b/2): the pass rate with the largest mean absolute advantage 2 p (1 - p) c |
    | `c(0)`, `c(1)` | expm1(b)/b and (1 - e^-b)/b |
    | `least A`, `most A` | bounds for any rewards: [-1/b, (G-1)/b] for b > 0, mirrored for b < 0, none for b = 0 |

    Args:
        risk_coefs: coefficients b, unit 1/reward.
        group_size: G of the bounds.

    >>> coefficient_sheet([2.0], group_size=8).rows[0][1:4]
    (0.343..., 0.119..., 0.268...)
    """
    size = checked_group_size(group_size)
    rows = []
    for coef in risk_coefs:
        low, high = sorted((-1 / coef, (size - 1) / coef)) if coef else (None, None)
        peaks = [float(torch.sigmoid(torch.tensor(-coef / part, dtype=torch.float64))) for part in (1, 2)]
        ends = [float(risk_scale(rate, coef)) for rate in (0.0, 1.0)]
        rows.append((coef, float(crossover_pass_rate(coef)), *peaks, *ends, low, high))
    return Sheet(
        title="landmarks of c(p, b)",
        columns=("risk_coef", "crossover", "RMS peak", "mean abs peak", "c(0)", "c(1)", "least A", "most A"),
        rows=tuple(rows),
        notes=(f"bounds of the advantage are for any rewards in groups of {size}",),
    )


def rule_sheet(pass_rates: Sequence[float], *, weight: float = 4.0, target: float = 0.5) -> Sheet:
    """One row a calibration rule, one column a measured pass rate; None where the rule has no solution.

    Args:
        pass_rates: p0, each as if it were the pooled measurement.
        weight: for `weight-cap`.
        target: for `target`.

    >>> sheet = rule_sheet([0.25])
    >>> {rule: round(coef, 3) for rule, coef in sheet.rows}["halve-failure"]
    1.609
    """
    inputs = {"weight": weight, "target": target}
    rows, notes = [], []
    for rule in RULES:
        name = _INPUTS.get(rule)
        cells: list[float | None] = []
        for rate in pass_rates:
            try:
                cells.append(calibrate_risk(rate, rule, **({name: inputs[name]} if name else {})))  # type: ignore[arg-type]
            except CalibrationError as error:
                cells.append(None)
                notes.append(str(error))
        rows.append((f"{rule}({inputs[name]:g})" if name else rule, *cells))
    return Sheet(
        title="risk coefficient by calibration rule and measured pass rate",
        columns=("rule", *(f"p0={rate:g}" for rate in pass_rates)),
        rows=tuple(rows),
        notes=(
            "halve-failure is clipped to [0.5, 4]; mass-neutral looks at the pass rates of all prompts, and where they "
            "are one number it is crossover",
            *notes,
        ),
    )
