"""The facts of the method as axioms, over both signs and twelve decades of the coefficient."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from steprs.risk import crossover_pass_rate, entropic_advantages, risk_scale, surrogate_objective, tilt

settings.register_profile("axioms", max_examples=50, deadline=None, derandomize=True)
settings.load_profile("axioms")

exponents = st.floats(math.log10(1e-8), math.log10(5e3))
coefs = st.builds(lambda e, sign: sign * 10.0**e, exponents, st.sampled_from([1, -1]))
positive_coefs = exponents.map(lambda e: 10.0**e)
rates = st.floats(0.001, 0.999)
binary_groups = st.integers(2, 24).flatmap(
    lambda n: st.integers(1, n - 1).map(lambda k: torch.tensor([[1.0] * k + [0.0] * (n - k)], dtype=torch.float64))
)
reward_values = st.floats(-3, 3).map(lambda r: round(r, 3))
groups = st.lists(reward_values, min_size=2, max_size=12).map(lambda r: torch.tensor([r], dtype=torch.float64))


def close(found, wanted, relative=1e-11, scale=None):
    found, wanted = (torch.as_tensor(value, dtype=torch.float64) for value in (found, wanted))
    size = wanted.abs() if scale is None else torch.as_tensor(scale, dtype=torch.float64)
    return bool(((found - wanted).abs() <= relative * size + 1e-300).all())


@given(rates, coefs)
def test_symmetry(p, b):
    assert close(risk_scale(p, b), risk_scale(1 - p, -b), 1e-10)


@given(rates, st.floats(-1e-3, 1e-3))
def test_small_coefficient_expansion(p, b):
    series = 1 + b * (0.5 - p) + b**2 * (1 / 6 - p + p**2)
    assert abs(float(risk_scale(p, b)) - series) <= abs(b) ** 3 + 1e-15


@given(rates, st.floats(700, 5000))
def test_limits_of_large_coefficients(p, b):
    assert close(risk_scale(p, b), 1 / (b * p))
    assert close(risk_scale(p, -b), 1 / (b * (1 - p)))


@given(coefs.filter(lambda b: abs(b) < 700))
def test_limits_of_never_and_always_right(b):
    assert close(risk_scale(0.0, b), math.expm1(b) / b)
    assert close(risk_scale(1.0, b), -math.expm1(-b) / b)


@given(coefs.filter(lambda b: abs(b) > 1e-3), st.floats(-0.2, 0.2))
def test_crossover(b, offset):
    p_star = float(crossover_pass_rate(b))
    assert 0 < p_star < 1
    assert close(risk_scale(p_star, b), 1.0, 1e-9 * max(1.0, abs(b)))
    p = min(max(p_star + offset, 0.0), 1.0)
    if abs(p - p_star) > 1e-6:
        assert (float(risk_scale(p, b)) > 1) == ((p < p_star) == (b > 0))


@given(rates, coefs.filter(lambda b: 1e-2 < abs(b) < 500))
def test_log_odds_form(p, b):
    tilted = float(tilt(p, b))
    assert abs(tilted - 1 / (1 + math.exp(-(math.log(p / (1 - p)) + b)))) <= 1e-12
    assert close(risk_scale(p, b), (tilted - p) / (b * p * (1 - p)), 1e-8)


@given(coefs.filter(lambda b: 1e-2 < abs(b) < 20), st.floats(-0.05, 0.05))
def test_rms_and_mean_size_peak_where_stated(b, offset):
    def rms(p):
        return float(risk_scale(p, b)) * math.sqrt(p * (1 - p))

    def mean_size(p):
        return 2 * float(risk_scale(p, b)) * p * (1 - p)

    for size, peak in ((rms, 1 / (1 + math.exp(b))), (mean_size, 1 / (1 + math.exp(b / 2)))):
        nearby = min(max(peak + offset, 1e-12), 1 - 1e-12)
        assert size(nearby) <= size(peak) * (1 + 1e-12)


@given(binary_groups, coefs)
def test_rms_in_the_group(rewards, b):
    p = float(rewards.mean())
    found = entropic_advantages(rewards, b).square().mean().sqrt()
    assert close(found, float(risk_scale(p, b)) * math.sqrt(p * (1 - p)))


@given(groups, positive_coefs)
def test_bounds(rewards, b):
    values = entropic_advantages(rewards, b)
    slack = 1 + 1e-11
    assert float(values.min()) >= -slack / b
    assert float(values.max()) <= slack * (rewards.shape[1] - 1) / b


@given(groups, coefs)
def test_zero_sum_at_a_shared_coefficient(rewards, b):
    values = entropic_advantages(rewards, b)
    assert abs(float(values.sum())) <= 1e-11 * rewards.shape[1] * float(values.abs().max()) + 1e-300


@given(groups, coefs)
def test_monotone_in_the_reward(rewards, b):
    order = rewards[0].argsort()
    values = entropic_advantages(rewards, b)[0]
    assert bool((values[order].diff() >= -1e-12 * values.abs().max()).all())


@given(binary_groups, coefs)
def test_the_sign_never_flips(rewards, b):
    assert torch.equal(entropic_advantages(rewards, b).sign(), rewards * 2 - 1)


@given(binary_groups, coefs)
def test_the_ratio_of_right_to_wrong_is_untouched(rewards, b):
    centred, values = rewards - rewards.mean(), entropic_advantages(rewards, b)
    assert close(values[0, 0] * centred[0, -1], values[0, -1] * centred[0, 0], 1e-13)


@given(groups, coefs, st.floats(-5, 5))
def test_shift_invariance(rewards, b, shift):
    values = entropic_advantages(rewards, b)
    # The shift itself rounds the rewards; the exponent magnifies that by |b|.
    rounding = 1e-11 + 1e-14 * abs(b)
    assert close(entropic_advantages(rewards + shift, b), values, rounding * 10, values.abs().max() + 1e-13)


@given(groups, coefs, st.sampled_from([0.25, 0.5, 2.0, 8.0]))
def test_scaling_rewards_scales_the_coefficient(rewards, b, w):
    wanted = w * entropic_advantages(rewards, b * w)
    assert close(entropic_advantages(rewards * w, b), wanted, 1e-11, wanted.abs().max())


@given(st.floats(0.01, 0.99), coefs.filter(lambda b: 1e-2 < abs(b) < 50))
def test_the_scale_is_the_slope_of_the_surrogate_objective(p, b):
    step = 1e-5 * min(p, 1 - p)
    slope = float(surrogate_objective(p + step, b) - surrogate_objective(p - step, b)) / (2 * step)
    assert close(slope, risk_scale(p, b), 1e-4)


@given(st.integers(2, 9), reward_values, coefs)
def test_equal_rewards_are_exactly_zero(size, value, b):
    assert torch.equal(entropic_advantages(torch.full((1, size), value), b), torch.zeros(1, size))


@given(groups, coefs, st.randoms(use_true_random=False))
def test_permutation_equivariance(rewards, b, random):
    order = list(range(rewards.shape[1]))
    random.shuffle(order)
    values = entropic_advantages(rewards, b)[:, order]
    assert close(entropic_advantages(rewards[:, order], b), values, 1e-11, values.abs().max())


@given(binary_groups, coefs)
def test_the_other_side_of_zero_mirrors(rewards, b):
    wanted = -entropic_advantages(rewards, b)
    assert close(entropic_advantages(1 - rewards, -b), wanted, 1e-12)
