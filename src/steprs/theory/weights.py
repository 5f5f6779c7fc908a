"""How much a prompt weighs by its pass rate p: c, c_G, and the weights of neighbouring methods.

A method's weight w(p) is the factor on the gradient of p in its expected update. For methods that only reweigh a group
it is A+/(1 - p), the advantage of a right answer over its centred one, with the group's pass rate at its expectation:

| name | w(p) | method |
|---|---|---|
| `centred` | 1 | r - p |
| `c(b)` | c(p, b) | entropic, infinite group |
| `c_G(b)` | c_G(p, b) | entropic, mean over groups of G |
| `standardised` | 1 / sqrt(p (1 - p)) | GRPO's division by the standard deviation (Shao et al. 2024), infinite group |
| `MaxRL` | 1 / p | gradient of log p (arXiv 2602.02710), infinite group |
| `pass@k` | k (1 - p)^(k - 1) | gradient of 1 - (1 - p)^k (arXiv 2505.15201) |
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..risk import finite_group_scale, risk_scale
from .sheet import Sheet

LARGEST_GROUP = 1024  # beyond it the number of ways to choose members exceeds float64


def standardised_weight(pass_rate_N: Tensor) -> Tensor:
    """1 / sqrt(p (1 - p)): what GRPO's standardisation makes of r - p; infinite at p = 0 and 1.

    >>> standardised_weight(torch.tensor([0.5])).tolist()
    [2.0]
    """
    return (pass_rate_N * (1 - pass_rate_N)).rsqrt()


def max_rl_weight(pass_rate_N: Tensor) -> Tensor:
    """1 / p, the slope of log p; infinite at p = 0.

    >>> max_rl_weight(torch.tensor([0.25])).tolist()
    [4.0]
    """
    return 1 / pass_rate_N


def pass_at_k_weight(pass_rate_N: Tensor, k: int) -> Tensor:
    """k (1 - p)^(k - 1), the slope of pass@k = 1 - (1 - p)^k.

    >>> pass_at_k_weight(torch.tensor([0.0, 0.5, 1.0]), 4).tolist()
    [4.0, 0.5, 0.0]
    """
    if k < 1:
        raise ArgumentError(f"k is {k}; pass@k needs k >= 1")
    return k * (1 - pass_rate_N).pow(k - 1)


def checked_rates(pass_rates: Sequence[float]) -> Tensor:
    """Pass rates strictly inside (0, 1), where every weight is finite, as float64 [N].

    Raises:
        ArgumentError: none was given, or one is outside.
    """
    bad = next((rate for rate in pass_rates if not 0 < rate < 1), None)
    if bad is not None or not pass_rates:
        raise ArgumentError(
            f"pass rate {bad} cannot be weighed; give rates strictly between 0 and 1, e.g. 0.05,0.25,0.5"
        )
    return torch.tensor(list(pass_rates), dtype=torch.float64)


def checked_group_size(group_size: int) -> int:
    """The size, if the binomial expectation over groups of it can be taken.

    Raises:
        ArgumentError: below 2 or above 1024.
    """
    if not 2 <= group_size <= LARGEST_GROUP:
        raise ArgumentError(f"group size {group_size} is outside [2, {LARGEST_GROUP}]; a group needs >= 2 rollouts")
    return group_size


def prompt_weights(
    pass_rates: Sequence[float],
    risk_coefs: Sequence[float],
    *,
    group_sizes: Sequence[int] = (),
    k: Sequence[int] = (16,),
    same_mean: bool = False,
) -> dict[str, Tensor]:
    """Every weight of the table above at the given pass rates.

    Args:
        pass_rates: N pass rates in (0, 1).
        risk_coefs: coefficients b of c and c_G, unit 1/reward.
        group_sizes: G of c_G; none gives c alone.
        k: tries of pass@k.
        same_mean: divide each weight by its mean over the given pass rates, so that only its shape is compared. An
            optimiser that normalises the size of updates does about this.

    Returns:
        Name -> float64 [N], in the order of the table.

    Raises:
        ArgumentError: a pass rate, group size or k that cannot be used.

    >>> weights = prompt_weights([0.05, 0.5], [2.0], group_sizes=[8], k=[4])
    >>> {name: round(float(w_N[0]), 2) for name, w_N in weights.items()}
    {'centred': 1.0, 'c(2)': 2.42, 'c_8(2)': 1.42, 'standardised': 4.59, 'MaxRL': 20.0, 'pass@4': 3.43}
    """
    rates_N = checked_rates(pass_rates)
    weights = {"centred": torch.ones_like(rates_N)}
    for coef in risk_coefs:
        weights[f"c({coef:g})"] = risk_scale(rates_N, coef)
        for size in group_sizes:
            weights[f"c_{size}({coef:g})"] = finite_group_scale(rates_N, coef, checked_group_size(size))
    weights["standardised"] = standardised_weight(rates_N)
    weights["MaxRL"] = max_rl_weight(rates_N)
    weights |= {f"pass@{tries}": pass_at_k_weight(rates_N, tries) for tries in k}
    return {name: w_N / w_N.mean() for name, w_N in weights.items()} if same_mean else weights


def curve_sheet(
    pass_rates: Sequence[float], risk_coefs: Sequence[float], *, group_sizes: Sequence[int] = (), k: Sequence[int] = ()
) -> Sheet:
    """c and the RMS advantage sqrt(p (1 - p)) c by pass rate, with c_G and the neighbours beside them."""
    weights = prompt_weights(pass_rates, risk_coefs, group_sizes=group_sizes, k=k)
    del weights["centred"]
    rates_N = checked_rates(pass_rates)
    columns = {"pass rate": rates_N}
    for name, w_N in weights.items():
        columns[name] = w_N
        if name.startswith("c("):
            columns[f"RMS{name[1:]}"] = (rates_N * (1 - rates_N)).sqrt() * w_N
    return Sheet(
        title="weight of a prompt by its pass rate",
        columns=tuple(columns),
        rows=tuple(zip(*(column.tolist() for column in columns.values()), strict=True)),
        notes=(
            "c(b): factor on r - p at risk coefficient b; RMS(b): sqrt(p (1 - p)) c; c_G(b): mean over groups of G. "
            "Centred GRPO is 1 everywhere.",
        ),
    )


def compare_sheet(
    pass_rates: Sequence[float],
    risk_coefs: Sequence[float],
    *,
    group_sizes: Sequence[int] = (16,),
    k: Sequence[int] = (16,),
    same_mean: bool = False,
) -> Sheet:
    """All weights side by side: one row a method, one column a pass rate."""
    weights = prompt_weights(pass_rates, risk_coefs, group_sizes=group_sizes, k=k, same_mean=same_mean)
    scaled = "each divided by its mean over these pass rates" if same_mean else "as they are"
    return Sheet(
        title=f"weights of a prompt by its pass rate, {scaled}",
        columns=("weight", *(f"p={rate:g}" for rate in pass_rates)),
        rows=tuple((name, *w_N.tolist()) for name, w_N in weights.items()),
        notes=("centred, c and the neighbours are for an infinite group, c_G is the mean over groups of G.",),
    )
