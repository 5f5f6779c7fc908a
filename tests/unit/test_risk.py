"""Values against 60-digit references, bit patterns, types, and refusals."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path

import mpmath
import pytest
import torch

from steprs.errors import ArgumentError, RewardError
from steprs.risk import (
    crossover_pass_rate,
    entropic_advantages,
    finite_group_scale,
    general_advantages,
    group_score,
    risk_scale,
    surrogate_objective,
    tilt,
)

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "risk.json").read_text())
TOLERANCE = 1e-11


def relative_error(found: torch.Tensor, wanted: list[float]) -> float:
    """Largest error over the group's largest magnitude."""
    wanted_G = torch.tensor(wanted, dtype=torch.float64)
    return float((found - wanted_G).abs().max() / wanted_G.abs().max().clamp(min=1e-300))


def slow_advantages(rewards: list[float], risk_coef: float, leave_one_out: bool = False) -> list[float]:
    """The definition in 400 digits: at b = 1e-320 the first 320 cancel."""
    mpmath.mp.dps = 400
    exact = [mpmath.mpf(r) for r in rewards]
    b = mpmath.mpf(risk_coef)
    result = []
    for i, own in enumerate(exact):
        others = [r for j, r in enumerate(exact) if not (leave_one_out and j == i)]
        if b == 0:
            result.append(own - sum(others) / len(others))
        else:
            result.append((1 / (sum(mpmath.exp(b * (r - own)) for r in others) / len(others)) - 1) / b)
    return [float(value) for value in result]


def test_binary_golden_values():
    for row in GOLDEN["binary"]:
        rewards = torch.tensor([[1.0] * row["k"] + [0.0] * (row["n"] - row["k"])], dtype=torch.float64)
        found = entropic_advantages(rewards, row["risk_coef"])[0]
        wanted = [row["advantage_right"]] * row["k"] + [row["advantage_wrong"]] * (row["n"] - row["k"])
        assert relative_error(found, wanted) <= TOLERANCE, row


def test_scale_golden_values():
    for row in GOLDEN["binary"]:
        if row["scale"] is not None:
            found = float(risk_scale(row["k"] / row["n"], row["risk_coef"]))
            assert found == pytest.approx(row["scale"], rel=TOLERANCE), row


def test_general_golden_values():
    for row in GOLDEN["general"]:
        found = entropic_advantages(torch.tensor([row["rewards"]], dtype=torch.float64), row["risk_coef"])[0]
        assert relative_error(found, row["advantages"]) <= TOLERANCE, row


def test_general_form_agrees_with_the_two_valued_one():
    for row in GOLDEN["binary"]:
        if 0 < row["k"] < row["n"]:
            rewards = torch.tensor([[1.0] * row["k"] + [0.0] * (row["n"] - row["k"])], dtype=torch.float64)
            coef = torch.full((1, row["n"], 1), float(row["risk_coef"]), dtype=torch.float64)
            wanted = entropic_advantages(rewards, row["risk_coef"])[0]
            assert relative_error(general_advantages(rewards, coef)[0, :, 0], wanted.tolist()) <= TOLERANCE


@pytest.mark.parametrize("baseline", ["group", "leave-one-out"])
@pytest.mark.parametrize("rewards", [[0.0, 0.3, 1.0, 0.31], [-4.0, 9.0, 8.5], [1.0, 0.0, 0.0], [7.0, 7.0, -1.5, -1.5]])
def test_every_size_of_coefficient_in_both_signs(rewards, baseline):
    for size in (0.0, 1e-320, 1e-300, 1e-18, 1e-12, 1e-8, 1e-3, 0.05, 0.3, 1.0, 3.0, 20.0, 40.0, 700.0, 745.0, 5000.0):
        for b in (size, -size):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                found = entropic_advantages(
                    torch.tensor([rewards], dtype=torch.float64), b, baseline=baseline,
                    cap=None if baseline == "group" else 1e9,
                )[0]  # fmt: skip
            wanted = [min(max(a, -1e9), 1e9) for a in slow_advantages(rewards, b, baseline != "group")]
            assert bool(torch.isfinite(found).all())
            for one, exact in zip(found.tolist(), wanted, strict=True):
                largest = max(map(abs, wanted)) if baseline == "group" else abs(exact)
                assert abs(one - exact) <= TOLERANCE * max(largest, 1e-300), (b, found, wanted)


def test_zero_coefficient_is_the_centred_reward_bit_for_bit():
    rewards = torch.rand(50, 7, generator=torch.Generator().manual_seed(1))
    rewards[0] = torch.tensor([1.0, 0, 0, 1, 0, 0, 1])
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        given = rewards.to(dtype)
        wanted = (given.double() - given.double().mean(1, keepdim=True)).to(dtype)
        assert torch.equal(entropic_advantages(given, 0.0), wanted)
        assert torch.equal(entropic_advantages(given, -0.0), wanted)


def test_number_and_tensor_coefficients_agree_bit_for_bit():
    draw = torch.Generator().manual_seed(2)
    binary = (torch.rand(13, 8, generator=draw) < 0.4).double()
    graded = torch.rand(13, 8, generator=draw, dtype=torch.float64)
    for rewards in (binary, graded, binary * 0.7 - 0.2):
        for b in (0.0, 1e-8, -0.3, 2.0, -30.0, 5000.0):
            alone = entropic_advantages(rewards, b)
            spread = entropic_advantages(rewards, torch.full((13, 8, 3, 2), b, dtype=torch.float64))
            assert torch.equal(spread, alone[:, :, None, None].expand_as(spread))


def test_bits_do_not_depend_on_the_position_in_a_tensor():
    draw = torch.Generator().manual_seed(3)
    coef = (torch.rand(1001, generator=draw, dtype=torch.float64) - 0.3) * 20
    rate = torch.rand(1001, generator=draw, dtype=torch.float64)
    together = risk_scale(rate, coef)
    apart = torch.stack([risk_scale(p, b) for p, b in zip(rate, coef, strict=True)])
    assert torch.equal(together, apart)
    assert torch.equal(torch.cat([risk_scale(rate[:3], coef[:3]), risk_scale(rate[3:], coef[3:])]), together)


def test_own_coefficient_with_the_groups_normaliser_at_it():
    rewards = torch.tensor([[0.2, 0.9, 0.5]], dtype=torch.float64)
    coef = torch.tensor([[1.0, -2.0, 0.0]], dtype=torch.float64)
    found = entropic_advantages(rewards, coef)
    for i in range(3):
        assert float(found[0, i]) == pytest.approx(
            float(entropic_advantages(rewards, float(coef[0, i]))[0, i]), rel=1e-14
        )


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8])
def test_integer_and_boolean_rewards_become_the_default_float(dtype):
    rewards = torch.tensor([[1, 0, 0, 1]]).to(dtype)
    found = entropic_advantages(rewards, 2.0)
    assert found.dtype == torch.get_default_dtype()
    assert torch.equal(found, entropic_advantages(rewards.double(), 2.0).to(found.dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_small_types_are_computed_in_float64_and_cast_once(dtype):
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.1, 0.7, 0.3, 0.7]], dtype=dtype)
    for b in (1e-6, 3.0, -800.0):
        assert torch.equal(entropic_advantages(rewards, b), entropic_advantages(rewards.double(), b).to(dtype))


def test_equal_rewards_give_exactly_zero():
    for value in (0.0, 1.0, 0.1, -3.3):
        for b in (0.0, 1e-8, -1.0, 710.0, -5000.0):
            for baseline in ("group", "leave-one-out"):
                found = entropic_advantages(torch.full((2, 3), value), b, baseline=baseline)
                assert torch.equal(found, torch.zeros(2, 3))


def test_no_gradient_flows():
    rewards = torch.tensor([[1.0, 0.0, 0.5]], requires_grad=True)
    coef = torch.full((1, 3, 2), 2.0, requires_grad=True)
    assert not entropic_advantages(rewards, coef).requires_grad
    assert not risk_scale(rewards[0], coef[0, 0, 0]).requires_grad


def test_leave_one_out_at_zero_is_rloo():
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.3, 0.9, 0.4, 0.1]], dtype=torch.float64)
    wanted = 4 / 3 * (rewards - rewards.mean(1, keepdim=True))
    torch.testing.assert_close(entropic_advantages(rewards, 0.0, baseline="leave-one-out"), wanted, rtol=1e-14, atol=0)


def test_leave_one_out_reaches_its_closed_form_and_its_cap():
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    found = entropic_advantages(rewards, 1.5, baseline="leave-one-out")
    assert float(found[0, 0]) == pytest.approx(math.expm1(1.5) / 1.5, rel=1e-14)
    assert float(entropic_advantages(rewards, 4.0, baseline="leave-one-out")[0, 0]) == 3.0
    assert float(entropic_advantages(rewards, 900.0, baseline="leave-one-out", cap=5.0)[0, 0]) == 5.0
    uncapped = entropic_advantages(rewards, 4.0, baseline="leave-one-out", cap=math.inf)
    assert float(uncapped[0, 0]) == pytest.approx(math.expm1(4) / 4, rel=1e-14)


@pytest.mark.parametrize(("group_size", "wanted"), [(8, 1.42), (16, 1.84)])
def test_finite_group_scale_of_the_method_page(group_size, wanted):
    assert round(float(finite_group_scale(0.05, 2.0, group_size)), 2) == wanted


def test_finite_group_scale_is_the_binomial_expectation():
    for size, p, b in [(2, 0.3, 1.0), (5, 0.01, 4.0), (16, 0.6, -3.0), (64, 0.2, 30.0)]:
        wanted = sum(
            math.comb(size, k)
            * p**k
            * (1 - p) ** (size - k)
            * float(risk_scale(k / size, b))
            * k
            / size
            * (1 - k / size)
            for k in range(1, size)
        ) / (p * (1 - p))
        assert float(finite_group_scale(p, b, size)) == pytest.approx(wanted, rel=1e-12)
    assert float(finite_group_scale(0.0, 2.0, 8)) == pytest.approx(7 / 8 * float(risk_scale(1 / 8, 2.0)), rel=1e-14)
    assert finite_group_scale(torch.tensor([0.1, 0.2]), torch.tensor([[1.0], [2.0], [3.0]]), 4).shape == (3, 2)


def test_finite_group_scale_with_a_coefficient_of_the_observed_rate():
    def chosen(rate_K: torch.Tensor) -> torch.Tensor:
        return torch.where(rate_K < 0.4, 3.0, -1.0).double()

    size, p = 6, 0.35
    wanted = sum(
        math.comb(size, k) * p**k * (1 - p) ** (size - k)
        * float(risk_scale(k / size, 3.0 if k / size < 0.4 else -1.0)) * k / size * (1 - k / size)
        for k in range(1, size)
    ) / (p * (1 - p))  # fmt: skip
    assert float(finite_group_scale(p, chosen, size)) == pytest.approx(wanted, rel=1e-12)


def test_helpers_against_high_precision():
    mpmath.mp.dps = 50
    for b in (1e-9, 1e-4, 0.049, 0.051, 1.0, 6.0, 40.0, -1e-4, -0.3, -25.0):
        exact = mpmath.mpf(b)
        wanted = float(1 / exact - 1 / mpmath.expm1(exact))
        assert float(crossover_pass_rate(b)) == pytest.approx(wanted, rel=1e-13)
        for p in (0.0, 1e-6, 0.3, 1.0):
            raised = mpmath.log(1 + mpmath.mpf(p) * mpmath.expm1(exact))
            assert float(surrogate_objective(p, b)) == pytest.approx(float(raised / exact), rel=1e-13)
            tilted = p * mpmath.exp(exact) / (1 + mpmath.mpf(p) * mpmath.expm1(exact))
            assert float(tilt(p, b)) == pytest.approx(float(tilted), rel=1e-13)
    assert crossover_pass_rate(0.0) == 0.5
    assert tilt(torch.tensor([0.0, 1.0]), torch.tensor([5000.0, -5000.0])).tolist() == [0.0, 1.0]


def test_share_is_what_a_schedule_sees():
    rewards = torch.tensor([[1.0, 0, 0, 0], [1, 1, 1, 1], [-1, 3, 3, 3], [0.2, 0.4, 0.6, 0.8]], dtype=torch.float64)
    assert group_score(rewards).share_PG[:, 0].tolist() == pytest.approx([0.25, 1.0, 0.75, 0.5])


def test_type_of_the_scale():
    assert risk_scale(0.3, 1).dtype == torch.float64
    assert risk_scale(torch.tensor([0.3]), 1.0).dtype == torch.float32
    assert risk_scale(torch.tensor([0.3]), torch.tensor([1.0]).double()).dtype == torch.float64


def test_a_group_of_one_is_refused_with_the_settings_name():
    with pytest.raises(ArgumentError, match="group_size"):
        entropic_advantages(torch.ones(3, 1), 1.0)
    with pytest.raises(ArgumentError, match="group_size"):
        finite_group_scale(0.5, 1.0, 1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rewards_that_are_not_finite_are_named(bad):
    with pytest.raises(RewardError, match="prompt 1, rollout 2"):
        entropic_advantages(torch.tensor([[1.0, 0, 0], [0, 1, bad]]), 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"risk_coef": math.nan}, "finite"),
        ({"risk_coef": torch.ones(3, 2)}, "leading two"),
        ({"risk_coef": 1.0, "baseline": "leave-one-uot"}, "leave-one-out"),
        ({"risk_coef": 1.0, "cap": 2.0}, "leave-one-out"),
        ({"risk_coef": 1.0, "baseline": "leave-one-out", "cap": -1.0}, "positive"),
    ],
)
def test_what_cannot_be_used_is_refused(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        entropic_advantages(torch.tensor([[1.0, 0.0]]), **arguments)
    with pytest.raises(ArgumentError, match=r"\[P, G\]"):
        entropic_advantages(torch.tensor([1.0, 0.0]), 1.0)
    with pytest.raises(ArgumentError, match=r"\[0, 1\]"):
        risk_scale(1.2, 1.0)
