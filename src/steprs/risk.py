"""The entropic risk transformation of group-relative advantages, at given coefficients.

With group rewards r_1..r_G and coefficient b, let w_i = exp(b r_i) / mean_j exp(b r_j). Then

    A_i(b) = (w_i - 1) / b,    A_i(0) = r_i - mean(r)

and for two-valued rewards A_i(b) = c(p, b) (r_i - p): only the weight of the prompt (through p) and of the denoising
state (through b) changes. Source: the exponential utility of Howard and Matheson (1972), group-relative as in
risk-sensitive GRPO. Every function computes in float64, detaches its inputs and casts at the end. Operations that are
not exactly rounded are limited to `exp` and `expm1`, whose bits do not depend on the place in a tensor.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .errors import ArgumentError, RewardError, unknown_name

Baseline = Literal["group", "leave-one-out"]

# Below this |b| (max r - min r) the transformation differs from the centred reward by less than float64 can show.
_LINEAR_BELOW = 2.0**-60
# exp of this is finite with room for a sum over a group; beyond it w_i is 0 to the last bit of (w_i - 1).
_EXPONENT_LIMIT = 600.0
_TINY = 1e-300
_SHARP_BELOW = 2.0**-10


@torch.no_grad()
def risk_scale(pass_rate: float | Tensor, risk_coef: float | Tensor) -> Tensor:
    """c(p, b) = expm1(b) / (b (1 + p expm1(b))), the factor on the centred reward r - p of a two-valued group.

    c > 0, c(p, 0) = 1, c(p, b) = c(1 - p, -b); for b > 0 it exceeds 1 iff p < `crossover_pass_rate(b)`.

    Args:
        pass_rate: p in [0, 1], share of rewards at the higher value; number or tensor.
        risk_coef: b, unit 1/reward, either sign; number or tensor that broadcasts with `pass_rate`.

    Returns:
        Tensor of the broadcast shape; float64 unless every tensor given is of a smaller floating type.
        c(0, b) is infinite once exp(b) is (b > 709).

    Raises:
        ArgumentError: a pass rate outside [0, 1] or a coefficient that is not finite.

    >>> [round(c, 4) for c in risk_scale(torch.tensor([0.05, 0.5, 0.95]).double(), 2.0).tolist()]
    [2.4211, 0.7616, 0.4519]
    """
    rate, coef = _float64(pass_rate), _float64(risk_coef)
    if not bool(((rate >= 0) & (rate <= 1)).all()):
        raise ArgumentError("pass_rate holds a value outside [0, 1]; give the share of right answers, e.g. 0.25")
    _check_finite(coef)
    rate, coef = _together(rate, coef)
    return two_valued_scale(rate, coef).to(_promoted(pass_rate, risk_coef))


def two_valued_scale(pass_rate: Tensor, risk_coef: Tensor) -> Tensor:
    """`risk_scale` without checks, for float64 tensors where `pass_rate` broadcasts into `risk_coef`.

    One form for both signs and all sizes: with a = |b|, t = 1 - e^-a and m = p (b > 0) or 1 - p (b < 0),
    c = t / (a (1 - (1 - m) t)), where the bracket is e^-a + m t for small m. Nothing cancels and nothing overflows.
    """
    if risk_coef.numel() == 0:
        return torch.ones_like(risk_coef)
    low, high = (float(bound) for bound in torch.aminmax(risk_coef))
    if low >= 0:
        side = pass_rate
    elif high <= 0:
        side = 1 - pass_rate
    else:
        side = torch.where(risk_coef < 0, 1 - pass_rate, pass_rate)
    # The clamp makes b = 0 exact without a mask: 1e-300 / 1e-300 = 1.
    minus_size = risk_coef.abs().clamp_(min=_TINY).neg_()
    minus_lift = torch.expm1(minus_size)
    # Each product and sum is rounded by itself: a fused operation would round differently on some paths.
    below = ((1 - side) * minus_lift).add_(1.0)
    sharp = side < _SHARP_BELOW
    if bool(sharp.any()):
        # 1 - (1 - m) t cancels for small m; live groups of up to 1024 never come here.
        below = torch.where(sharp, torch.exp(minus_size).sub_(side * minus_lift), below)
    return minus_lift.div_(below.mul_(minus_size))


@torch.no_grad()
def finite_group_scale(
    pass_rate: float | Tensor, risk_coef: float | Tensor | Callable[[Tensor], Tensor], group_size: int
) -> Tensor:
    """c_G(p, b): the factor that a group of G rollouts applies *on average* to the gradient of p.

    c_G(p, b) = E_{K ~ Bin(G, p)}[c(K/G, b) (K/G)(1 - K/G)] / (p (1 - p)). Groups with K = 0 or G give nothing, so this
    stays below c(p, b) where prompts are hard: with b = 2 and p = .05, c = 2.42 but c_8 = 1.42.

    Args:
        pass_rate: true pass rate p in [0, 1]; number or tensor [...].
        risk_coef: b as a number or a tensor that broadcasts with `pass_rate`, or a function from the observed
            pass rates K/G, shape [G-1], to coefficients of that shape (a schedule that looks at the group).
        group_size: G >= 2. The result is float64 of the broadcast shape.

    Raises:
        ArgumentError: group_size < 2, a pass rate outside [0, 1], or a coefficient that is not finite.

    >>> round(float(finite_group_scale(0.05, 2.0, 16)), 2)
    1.84
    """
    if group_size < 2:
        raise ArgumentError(f"group_size is {group_size}; a group needs >= 2 rollouts to be compared")
    rate = _float64(pass_rate)
    observed = torch.arange(1, group_size, dtype=torch.float64, device=rate.device) / group_size
    coef = _float64(risk_coef(observed) if callable(risk_coef) else risk_coef).to(rate.device)
    return expected_factor(rate, risk_scale(observed, coef if callable(risk_coef) else coef.unsqueeze(-1)))


def expected_factor(pass_rate: Tensor, factor: Tensor) -> Tensor:
    """E_{K ~ Bin(G, p)}[f_K (K/G)(1 - K/G)] / (p (1 - p)) for the factors f_1 .. f_{G-1} that groups put on r - K/G.

    Computed in the equal form (1 - 1/G) E_{J ~ Bin(G-2, p)}[f_{J+1}], which has no singularity at p = 0 or 1; float64.
    """
    size = factor.shape[-1] + 1
    others = torch.arange(size - 1, dtype=torch.float64, device=pass_rate.device)
    ways = others.new_tensor([math.comb(size - 2, j) for j in range(size - 1)])
    rate = pass_rate.unsqueeze(-1)
    return (1 - 1 / size) * (ways * rate.pow(others) * (1 - rate).pow(size - 2 - others) * factor).sum(-1)


@torch.no_grad()
def crossover_pass_rate(risk_coef: float | Tensor) -> Tensor:
    """p* = 1/b - 1/expm1(b), where c(p*, b) = 1: for b > 0 harder prompts are amplified, easier ones damped.

    Args:
        risk_coef: b, either sign; 0 gives the limit 1/2. The result is float64 in (0, 1), of its shape.

    >>> round(float(crossover_pass_rate(2.0)), 4)
    0.3435
    """
    coef = _float64(risk_coef)
    small = coef.abs() < 0.05
    safe = torch.where(small, torch.ones_like(coef), coef)
    # The two poles cancel near 0; the series of the Bernoulli numbers does not.
    square = coef * coef
    series = 0.5 - coef / 12 * (1 - square / 60 * (1 - square / 42 * (1 - square / 40)))
    return torch.where(small, series, 1 / safe - 1 / torch.expm1(safe))


@torch.no_grad()
def tilt(pass_rate: float | Tensor, risk_coef: float | Tensor) -> Tensor:
    """p_b = sigmoid(logit p + b): the pass rate after reweighting answers by exp(b r). c = (p_b - p) / (b p (1 - p)).

    Args:
        pass_rate: p in [0, 1].
        risk_coef: b, either sign; broadcasts. The result is float64.

    >>> round(float(tilt(0.05, 3.0446)), 3)  # log(1 + 1/p) halves the failure rate: .95 -> .475
    0.525
    """
    rate, coef = _together(_float64(pass_rate), _float64(risk_coef))
    right = rate * torch.exp(coef.clamp(max=0))
    wrong = (1 - rate) * torch.exp(-coef.clamp(min=0))
    # Certainty is not tilted, however far its exponential underflows.
    return torch.where((rate == 0) | (rate == 1), rate, right / (right + wrong))


@torch.no_grad()
def surrogate_objective(pass_rate: float | Tensor, risk_coef: float | Tensor) -> Tensor:
    """F(p) = log(1 + p expm1(b)) / b, whose slope is c(p, b): a log-likelihood smoothed by a floor 1/expm1(b).

    Args:
        pass_rate: p in [0, 1].
        risk_coef: b, either sign; 0 gives F(p) = p. The result is float64; F(0) = 0 and F(1) = 1.

    >>> surrogate_objective(torch.tensor([0.0, 1.0]), 4.0).tolist()
    [0.0, 1.0]
    """
    rate, coef = _together(_float64(pass_rate), _float64(risk_coef))
    near = torch.log1p(rate * torch.expm1(coef.clamp(-1, 1)))
    # log E exp(b r) with the larger exponent taken out; exactly 0 at p = 0 and b at p = 1.
    lead = coef.clamp(min=0)
    far = lead + torch.log(rate * torch.exp(coef - lead) + (1 - rate) * torch.exp(-lead))
    far = torch.where(rate == 0, torch.zeros_like(far), far)
    whole = torch.where(coef.abs() <= 1, near, far)
    safe = torch.where(coef == 0, torch.ones_like(coef), coef)
    return torch.where(coef == 0, rate, whole / safe)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupScore:
    """What the rewards of P groups say before any coefficient is chosen. Everything is float64 and detached.

    Attributes:
        centred_PG: reward minus the baseline; exactly 0 in a group of equal rewards.
        pass_rate_PG: the p of c(p, b): share at the higher value in the group, or among the other members for
            leave-one-out. 1/2 in a group of equal rewards, where c multiplies an exact 0 and must stay finite.
        share_PG: share at the higher value in the group, whatever the baseline; the mean reward where the group
            is not two-valued or all its rewards are equal. What a schedule sees as the observed pass rate.
        width_P1: highest minus lowest reward.
        two_valued_P: at most two different rewards.
    """

    centred_PG: Tensor
    pass_rate_PG: Tensor
    share_PG: Tensor
    width_P1: Tensor
    two_valued_P: Tensor


def group_score(rewards_PG: Tensor, baseline: Baseline = "group") -> GroupScore:
    """Statistics of float64 rewards [P, G]; `check_rewards` must have passed."""
    size = rewards_PG.shape[1]
    low_P1, high_P1 = rewards_PG.amin(1, keepdim=True), rewards_PG.amax(1, keepdim=True)
    at_high_PG = rewards_PG == high_P1
    equal_P1 = low_P1 == high_P1
    two_valued_P = (at_high_PG | (rewards_PG == low_P1)).all(1)
    right_PG = at_high_PG.double()
    count_P1 = right_PG.sum(1, keepdim=True)
    mean_P1 = rewards_PG.mean(1, keepdim=True)
    if baseline == "group":
        centred_PG = rewards_PG - mean_P1
        rate_PG = (count_P1 / size).expand_as(rewards_PG)
    else:
        centred_PG = rewards_PG - (rewards_PG.sum(1, keepdim=True) - rewards_PG) / (size - 1)
        rate_PG = (count_P1 - right_PG) / (size - 1)
    share_P1 = torch.where(two_valued_P.unsqueeze(1) & ~equal_P1, count_P1 / size, mean_P1)
    return GroupScore(
        centred_PG=centred_PG.masked_fill(equal_P1, 0.0),
        pass_rate_PG=rate_PG.masked_fill(equal_P1, 0.5),
        share_PG=share_P1.expand_as(rewards_PG),
        width_P1=high_P1 - low_P1,
        two_valued_P=two_valued_P,
    )


def general_advantages(rewards_PG: Tensor, risk_coef_PGN: Tensor, baseline: Baseline = "group") -> Tensor:
    """A_i(b) for any rewards, float64 [P, G] and coefficients [P, G, N]; without checks.

    Seen from member i, A_i = -s / (b (1 + s)) with s = mean_j expm1(b (r_j - r_i)). Near b = 0 this is the centred
    reward to the last digits, and where (w - 1)/b would overflow the exponent is capped without changing a bit; no
    switch between two forms is needed. Memory is O(P G N): members are added one at a time.
    """
    size = rewards_PG.shape[1]
    own_PG1 = rewards_PG.unsqueeze(2)
    over_PGN = torch.zeros_like(risk_coef_PGN)
    mass_PGN = torch.zeros_like(risk_coef_PGN)
    for j in range(size):
        gap_PGN = (risk_coef_PGN * (rewards_PG[:, j, None, None] - own_PG1)).clamp_(max=_EXPONENT_LIMIT)
        over_PGN += torch.expm1(gap_PGN)
        if baseline == "leave-one-out":
            # 1 + s cancels when a member towers over the others, so the exponentials are summed as well.
            others = torch.exp(gap_PGN)
            others[:, j] = 0
            mass_PGN += others
    over_PGN /= size if baseline == "group" else size - 1
    mass_PGN = 1 + over_PGN if baseline == "group" else mass_PGN / (size - 1)
    values_PGN = -over_PGN / (risk_coef_PGN * mass_PGN)
    width_P11 = (rewards_PG.amax(1) - rewards_PG.amin(1))[:, None, None]
    linear_PGN = risk_coef_PGN.abs() * width_P11 < _LINEAR_BELOW
    centred_PG1 = group_score(rewards_PG, baseline).centred_PG.unsqueeze(2)
    return torch.where(linear_PGN, centred_PG1, values_PGN)


@torch.no_grad()
def entropic_advantages(
    rewards_PG: Tensor, risk_coef: float | Tensor, *, baseline: Baseline = "group", cap: float | None = None
) -> Tensor:
    """A_i(b) = (exp(b r_i) / mean_j exp(b r_j) - 1) / b for every member of every group.

    No division by the standard deviation: for two-valued rewards it would cancel c(p, b) exactly. b = 0 is
    r - mean(r) bit for bit; a group of equal rewards gives exactly 0. For b > 0, -1/b <= A <= (G-1)/b.

    Args:
        rewards_PG: finite rewards [P, G], G >= 2; any real type. Two-valued groups take c(p, b)(r - p).
        risk_coef: b, unit 1/reward: one number, or a tensor [P, G, ...] whose leading dimensions are the rewards';
            A_i then uses its own coefficient, with the group's normaliser at that coefficient.
        baseline: "group", or "leave-one-out": the mean of exp(b r) over the *other* members (b = 0 gives RLOO,
            G/(G-1) (r - mean)). Not zero-sum, and at one right answer as large as expm1(b)/b, hence the cap.
        cap: bound on |A| for leave-one-out; None means G - 1, `math.inf` none.

    Returns:
        [P, G] for a number, else the shape of `risk_coef`; the rewards' floating type, or the default one for integer
        and boolean rewards. Never requires grad.

    Raises:
        ArgumentError: wrong shape, G < 2, unknown baseline, a coefficient that is not finite.
        RewardError: a reward is NaN or infinite.

    >>> entropic_advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), 2.0)
    tensor([[ 0.9225, -0.3075, -0.3075, -0.3075]])
    >>> entropic_advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), 0.0)
    tensor([[ 0.7500, -0.2500, -0.2500, -0.2500]])
    """
    check_rewards(rewards_PG)
    check_baseline(baseline, cap)
    device = rewards_PG.device
    rewards64_PG = rewards_PG.detach().to(float64_device(device)).double()
    coef_PGN = _coefficients(risk_coef, rewards64_PG)
    values_PGN = _entropic(rewards64_PG, coef_PGN, baseline)
    if baseline == "leave-one-out":
        bound = rewards_PG.shape[1] - 1.0 if cap is None else cap
        values_PGN = values_PGN.clamp_(-bound, bound)
    shape = risk_coef.shape if isinstance(risk_coef, Tensor) and risk_coef.ndim else rewards_PG.shape
    return values_PGN.reshape(shape).to(dtype=reward_dtype(rewards_PG), device=device)


def _entropic(rewards_PG: Tensor, coef_PGN: Tensor, baseline: Baseline) -> Tensor:
    """Each group by its kind: two-valued ones through c(p, b), the others through the general form."""
    score = group_score(rewards_PG, baseline)
    scale_PGN = two_valued_scale(score.pass_rate_PG.unsqueeze(2), coef_PGN * score.width_P1.unsqueeze(2))
    values_PGN = scale_PGN.mul_(score.centred_PG.unsqueeze(2))
    general_P = ~score.two_valued_P
    if bool(general_P.any()):
        values_PGN[general_P] = general_advantages(rewards_PG[general_P], coef_PGN[general_P], baseline)
    return values_PGN


def _coefficients(risk_coef: float | Tensor, rewards_PG: Tensor) -> Tensor:
    """The coefficient as float64 [P, G, N] on the rewards' device."""
    coef = _float64(risk_coef).to(rewards_PG.device)
    _check_finite(coef)
    if coef.ndim == 0:
        return torch.full_like(rewards_PG, float(coef)).unsqueeze(2)
    if coef.shape[:2] != rewards_PG.shape:
        raise ArgumentError(
            f"risk_coef has shape {list(coef.shape)} but rewards are {list(rewards_PG.shape)}; "
            "give one number, or a tensor whose leading two dimensions are the rewards'"
        )
    return coef.reshape(*rewards_PG.shape, math.prod(coef.shape[2:])).contiguous()


def check_rewards(rewards_PG: Tensor) -> None:
    """Rewards are a real, finite [P, G] tensor with G >= 2.

    >>> check_rewards(torch.tensor([[1.0, float("nan")]]))
    Traceback (most recent call last):
    ...
    steprs.errors.RewardError: reward of prompt 0, rollout 1 is nan; rewards must be finite: fix the verifier or mask \
the sample
    """
    if not isinstance(rewards_PG, Tensor) or rewards_PG.ndim != 2 or rewards_PG.is_complex():
        given = list(rewards_PG.shape) if isinstance(rewards_PG, Tensor) else type(rewards_PG).__name__
        raise ArgumentError(f"rewards are {given}; give a real tensor [P, G]: one row a prompt, one column a rollout")
    if rewards_PG.shape[1] < 2:
        raise ArgumentError(
            f"group_size is {rewards_PG.shape[1]}; a group needs >= 2 rollouts to be compared, set group_size >= 2"
        )
    bad_PG = ~torch.isfinite(rewards_PG)
    if bool(bad_PG.any()):
        prompt, rollout = bad_PG.nonzero()[0].tolist()
        raise RewardError(
            f"reward of prompt {prompt}, rollout {rollout} is {float(rewards_PG[prompt, rollout])}; "
            "rewards must be finite: fix the verifier or mask the sample"
        )


def _check_finite(coef: Tensor) -> None:
    if not bool(torch.isfinite(coef).all()):
        raise ArgumentError("risk_coef holds NaN or infinity; give finite numbers, e.g. 2.0")


def check_baseline(baseline: str, cap: float | None) -> None:
    """The baseline is known and a cap is given only where it acts."""
    if baseline not in ("group", "leave-one-out"):
        raise ArgumentError(unknown_name("baseline", baseline, ("group", "leave-one-out")))
    if cap is not None and baseline == "group":
        raise ArgumentError("cap is for baseline='leave-one-out'; the group baseline is bounded by (G-1)/|risk_coef|")
    if cap is not None and not cap > 0:
        raise ArgumentError(f"cap is {cap}; give a positive bound on |advantage|, or math.inf for none")


def reward_dtype(rewards: Tensor) -> torch.dtype:
    """Type of the advantages: the rewards' own when floating, else the default."""
    return rewards.dtype if rewards.is_floating_point() else torch.get_default_dtype()


def float64_device(device: torch.device) -> torch.device:
    """Where float64 work on tensors of `device` is done: Apple GPUs have no float64."""
    return torch.device("cpu") if device.type == "mps" else device


def _float64(value: float | Tensor) -> Tensor:
    return value.detach().double() if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)


def _together(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Both at their broadcast shape, contiguous."""
    zero = torch.zeros_like(first) * torch.zeros_like(second)
    return first.expand_as(zero).contiguous(), second.expand_as(zero).contiguous()


def _promoted(*values: float | Tensor) -> torch.dtype:
    """Common floating type of the tensors; float64 where only plain numbers and integers were given."""
    types = [value.dtype for value in values if isinstance(value, Tensor) and value.is_floating_point()]
    return functools.reduce(torch.promote_types, types) if types else torch.float64
