"""Rules that choose which masked positions a denoising step reveals.

A rule turns each open position into a confidence; the step reveals the highest ones (the leftmost on a tie). How many
is scheduled, except for the dynamic rules, which may reveal more.

Selection is *exact* for the policy gradient if, given the state, the chosen positions do not depend on the tokens
drawn there: then E[grad log pi(revealed tokens)] = 0 and the score-function estimator has no selection bias.
`low_confidence` looks at the drawn token and is not exact; every other rule here is.

| rule | reveals first | exact | number a step |
|---|---|---|---|
| `low_confidence` | the largest probability of the token drawn (LLaDA's low-confidence remasking) | no | scheduled |
| `max_probability` | the largest probability of any token | yes | scheduled |
| `entropy` | the smallest entropy | yes | scheduled |
| `entropy_bound` | as `entropy`, while their sum less the largest stays within the threshold | yes | dynamic |
| `confidence_threshold` | as `max_probability`, all that reach the threshold | yes | dynamic |
| `random` | positions in random order | yes | scheduled |
| `left_to_right` | the leftmost | yes | scheduled |

Confidences are the model's own: temperature 1, nothing truncated, forbidden ids removed. Dynamic rules reveal at least
one position a step, and as many as it takes to finish within the steps allowed.
Sources: S. Nie et al., "Large Language Diffusion Models", 2025 (low_confidence, random); C. Wu et al., "Fast-dLLM",
2025 (confidence_threshold); H. Ben-Hamu et al., "Accelerated Sampling from Masked Diffusion Models via Entropy Bounded
Unmasking", 2025 (entropy_bound).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..errors import SamplingError, unknown_name
from ..policies.distribution import token_logprobs
from .sampling import row_chunks


@dataclass(frozen=True, kw_only=True, slots=True)
class UnmaskingRule:
    """How one rule orders open positions.

    Attributes:
        exact: selection does not depend on the drawn tokens (`selection_exact` of a trajectory).
        fixed_steps: the number of steps is known before the rollout (`steps_fixed`).
        looks_at: "nothing", so that positions can be chosen before the forward and only their logits computed;
            "logits"; or "draws", so that a token is drawn at every open position first.
        confidence: (logprobs_NV, ids_N) -> [N], for rules that look at something; ids are None without draws.
        order: (noise_RW, positions_W) -> [R, W], for rules that look at nothing.
        dynamic: (sorted confidences_RW, threshold) -> [R], how many of the highest the rule itself would reveal.
        threshold: allowed thresholds (low, high), ends included; None: the rule takes none.
    """

    exact: bool
    fixed_steps: bool
    looks_at: Literal["nothing", "logits", "draws"]
    confidence: Callable[[Tensor, Tensor | None], Tensor] | None = None
    order: Callable[[Tensor, Tensor], Tensor] | None = None
    dynamic: Callable[[Tensor, float], Tensor] | None = None
    threshold: tuple[float, float] | None = None


def get_rule(name: str, threshold: float | None = None) -> UnmaskingRule:
    """The rule of that name, its threshold checked.

    Raises:
        SamplingError: unknown name; a threshold missing, out of range, or given to a rule that has none.

    >>> get_rule("max_probability").exact, get_rule("low_confidence").exact
    (True, False)
    """
    if name not in RULES:
        raise SamplingError(unknown_name("unmasking rule", name, RULES))
    rule = RULES[name]
    if rule.threshold is None and threshold is not None:
        takers = ", ".join(other for other, found in RULES.items() if found.threshold)
        raise SamplingError(f"unmasking {name!r} takes no threshold (given: {threshold}); rules that do: {takers}")
    if rule.threshold is not None:
        low, high = rule.threshold
        if threshold is None or not low <= threshold <= high:
            raise SamplingError(f"unmasking {name!r} needs a threshold from {low} to {high}; given: {threshold}")
    return rule


def confidences(rule: UnmaskingRule, logits_NV: Tensor, ids_N: Tensor | None, forbidden: Sequence[int]) -> Tensor:
    """The rule's confidence in each open position, float [N], from the model's own distribution there."""
    assert rule.confidence is not None
    parts = []
    for rows in row_chunks(logits_NV):
        logprobs_NV = token_logprobs(logits_NV[rows], temperature=1.0, forbidden_ids=forbidden)
        parts.append(rule.confidence(logprobs_NV, None if ids_N is None else ids_N[rows]))
    return torch.cat(parts)


def choose(
    confidence_RW: Tensor, open_RW: Tensor, minimum_R: Tensor | int, rule: UnmaskingRule, threshold: float | None
) -> Tensor:
    """Which open positions this step reveals.

    Args:
        confidence_RW: floating [R, W]; ignored where not open.
        open_RW: bool [R, W], still masked.
        minimum_R: the scheduled number, one for all or int64 [R].
        rule: decides whether more than that are revealed.
        threshold: of the rule.

    Returns:
        bool [R, W], a subset of `open_RW`.
    """
    closed_last_RW = confidence_RW.masked_fill(~open_RW, float("-inf"))
    sorted_RW, order_RW = closed_last_RW.sort(dim=1, descending=True, stable=True)
    count_R: Tensor | int = minimum_R
    if rule.dynamic is not None and threshold is not None:
        dynamic_R = rule.dynamic(sorted_RW, threshold)
        count_R = torch.maximum(dynamic_R, torch.as_tensor(minimum_R, device=dynamic_R.device))
    count_R1 = count_R[:, None] if isinstance(count_R, Tensor) else count_R
    first_RW = torch.arange(open_RW.shape[1], device=open_RW.device) < count_R1
    return torch.empty_like(open_RW).scatter_(1, order_RW, first_RW.expand_as(open_RW)) & open_RW


def _drawn_probability(logprobs_NV: Tensor, ids_N: Tensor | None) -> Tensor:
    assert ids_N is not None
    return logprobs_NV.gather(-1, ids_N[:, None]).squeeze(-1).exp()


def _max_probability(logprobs_NV: Tensor, ids_N: Tensor | None) -> Tensor:
    return torch.exp(logprobs_NV.amax(-1))


def _negative_entropy(logprobs_NV: Tensor, ids_N: Tensor | None) -> Tensor:
    entropy_N: Tensor = torch.special.entr(logprobs_NV.exp()).sum(-1)
    return -entropy_N


def _reaches(sorted_RW: Tensor, threshold: float) -> Tensor:
    return (sorted_RW >= threshold).sum(1)


def _within_bound(sorted_RW: Tensor, threshold: float) -> Tensor:
    """The largest set of lowest entropies whose sum less its largest is at most the threshold."""
    entropy_RW = -sorted_RW.double()
    # Closed positions come last as +inf, and inf - inf must not count as within the bound.
    before_RW = torch.cat([torch.zeros_like(entropy_RW[:, :1]), entropy_RW[:, :-1].cumsum(1)], dim=1)
    return ((before_RW <= threshold) & entropy_RW.isfinite()).sum(1)


RULES: dict[str, UnmaskingRule] = {
    "low_confidence": UnmaskingRule(exact=False, fixed_steps=True, looks_at="draws", confidence=_drawn_probability),
    "max_probability": UnmaskingRule(exact=True, fixed_steps=True, looks_at="logits", confidence=_max_probability),
    "entropy": UnmaskingRule(exact=True, fixed_steps=True, looks_at="logits", confidence=_negative_entropy),
    "entropy_bound": UnmaskingRule(
        exact=True,
        fixed_steps=False,
        looks_at="logits",
        confidence=_negative_entropy,
        dynamic=_within_bound,
        threshold=(0.0, float("inf")),
    ),
    "confidence_threshold": UnmaskingRule(
        exact=True,
        fixed_steps=False,
        looks_at="logits",
        confidence=_max_probability,
        dynamic=_reaches,
        threshold=(0.0, 1.0),
    ),
    "random": UnmaskingRule(
        exact=True, fixed_steps=True, looks_at="nothing", order=lambda noise_RW, positions_W: noise_RW
    ),
    "left_to_right": UnmaskingRule(
        exact=True,
        fixed_steps=True,
        looks_at="nothing",
        order=lambda noise_RW, positions_W: -positions_W.double().expand_as(noise_RW),
    ),
}
