"""The composition: bit patterns between its paths, agreement with other trainers' formulas, masks, refusals."""

from __future__ import annotations

import math

import polgrad
import pytest
import torch

from steprs.advantages import Score, dead_groups, standardise, stepwise_advantages, stepwise_advantages_flat
from steprs.errors import ArgumentError, NormalisationError, RewardError
from steprs.risk import entropic_advantages, risk_scale
from steprs.schedules import (
    AbstractSchedule,
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    GeometricSchedule,
    KnotSchedule,
    LinearSchedule,
    PassRateSchedule,
    PowerSchedule,
    SigmoidSchedule,
    StepSchedule,
)

P, G, L = 7, 8, 33
FAMILIES = [
    LinearSchedule,
    CosineSchedule,
    PowerSchedule,
    SigmoidSchedule,
    ExponentialSchedule,
    GeometricSchedule,
    StepSchedule,
]
DRAW = torch.Generator().manual_seed(11)
BINARY = (torch.rand(P, G, generator=DRAW) < torch.linspace(0, 1, P).unsqueeze(1)).float()
GRADED = torch.rand(P, G, generator=DRAW).round(decimals=2)
TAU = torch.rand(P, G, L, generator=DRAW, dtype=torch.float64)
MASK = torch.arange(L) < torch.randint(1, L + 1, (P, G, 1), generator=DRAW)
LINEAR = LinearSchedule(3.0, -1.0)
REWARDS = {
    "binary": BINARY,
    "two-valued": BINARY * 1.7 - 0.3,
    "graded": GRADED,
    "mixed": torch.cat([BINARY[:3], GRADED[3:]]),
}


def make(rewards=BINARY, schedule=LINEAR, **options):
    return stepwise_advantages(rewards, TAU, schedule, mask_PGL=MASK, **options)


def spread(values_PG):
    return values_PG.unsqueeze(2).expand(P, G, L).masked_fill(~MASK, 0.0)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_equal_endpoints_are_risk_sensitive_grpo_bit_for_bit(family, rewards, dtype):
    rewards = rewards.to(dtype)
    for b in (2.3, -0.7, 1e-8, 900.0):
        wanted = spread(entropic_advantages(rewards, b))
        assert torch.equal(make(rewards, family(b, b)).values_PGL, wanted)
        assert torch.equal(make(rewards, ConstantSchedule(b)).values_PGL, wanted)


@pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_zero_endpoints_are_centred_grpo_bit_for_bit(rewards, dtype):
    rewards = rewards.to(dtype)
    exact = rewards.double()
    wanted = spread((exact - exact.mean(1, keepdim=True)).to(dtype))
    wanted[rewards.amax(1) == rewards.amin(1)] = 0
    zeros = [family(0.0, 0.0) for family in FAMILIES if family is not GeometricSchedule]
    for schedule in (ConstantSchedule(0.0), ConstantSchedule(-0.0), KnotSchedule(((0.0, 0.0), (1.0, 0.0))), *zeros):
        assert torch.equal(make(rewards, schedule).values_PGL, wanted)
    assert torch.equal(make(rewards, control="centred").values_PGL, wanted)


@pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS)
@pytest.mark.parametrize("baseline", ["group", "leave-one-out"])
def test_stepwise_is_entropic_at_each_tokens_coefficient(rewards, baseline):
    made = make(rewards, baseline=baseline)
    wanted = entropic_advantages(rewards, LINEAR(TAU), baseline=baseline).masked_fill(~MASK, 0.0)
    assert torch.equal(made.values_PGL, wanted)
    assert torch.equal(made.risk_coef_PGL, LINEAR(TAU).masked_fill(~MASK, 0.0))
    assert torch.equal(made.values_PGL, entropic_advantages(rewards, made.risk_coef_PGL, baseline=baseline) * MASK)


def test_values_are_c_times_the_centred_reward():
    made = make(BINARY.double())
    p = BINARY.double().mean(1)[:, None, None]
    wanted = (risk_scale(p.clamp(0.05, 0.95), LINEAR(TAU)) * (BINARY.double().unsqueeze(2) - p)).masked_fill(~MASK, 0.0)
    live = (p[:, 0, 0] > 0.05) & (p[:, 0, 0] < 0.95)
    torch.testing.assert_close(made.values_PGL[live], wanted[live], rtol=1e-13, atol=0)


@pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS)
@pytest.mark.parametrize("options", [{}, {"base": "standardised"}, {"baseline": "leave-one-out"}], ids=str)
def test_flat_equals_the_regular_form_bit_for_bit(rewards, options):
    ids = torch.arange(P).repeat_interleave(G) * 1000 - 7
    made = make(rewards, **options)
    flat = stepwise_advantages_flat(
        rewards.flatten(), ids, TAU.flatten(0, 1), LINEAR, mask_BL=MASK.flatten(0, 1), **options
    )
    assert torch.equal(flat.values_PGL, made.values_PGL.flatten(0, 1))
    assert torch.equal(flat.risk_coef_PGL, made.risk_coef_PGL.flatten(0, 1))
    assert flat.metrics == made.metrics


@pytest.mark.parametrize(
    "schedule", [LINEAR, CosineSchedule(2.0, 0.0), PowerSchedule(2.0, 0.0, 0.4), PassRateSchedule()]
)
def test_rows_in_any_order_bit_for_bit(schedule):
    order = torch.randperm(P * G, generator=torch.Generator().manual_seed(5))
    ids = torch.arange(P).repeat_interleave(G)
    for rewards in (BINARY, BINARY * 0.4 + 0.1):
        made = make(rewards, schedule).values_PGL.flatten(0, 1)
        moved = stepwise_advantages_flat(
            rewards.flatten()[order], ids[order], TAU.flatten(0, 1)[order], schedule, mask_BL=MASK.flatten(0, 1)[order]
        )
        assert torch.equal(moved.values_PGL, made[order])
    graded = make(GRADED, schedule).values_PGL.flatten(0, 1)
    moved = stepwise_advantages_flat(
        GRADED.flatten()[order], ids[order], TAU.flatten(0, 1)[order], schedule, mask_BL=MASK.flatten(0, 1)[order]
    )
    torch.testing.assert_close(moved.values_PGL, graded[order], rtol=1e-5, atol=1e-7)


def test_unequal_groups_are_each_their_own():
    sizes = (2, 5, 3, 5, 2, 9)
    ids = torch.cat([torch.full((n,), name) for name, n in zip((40, -3, 7, 12, 99, 5), sizes, strict=True)])
    draw = torch.Generator().manual_seed(8)
    rewards = torch.rand(ids.numel(), generator=draw).round()
    rewards[2:7] = torch.rand(5, generator=draw)
    tau = torch.rand(ids.numel(), 4, generator=draw, dtype=torch.float64)
    order = torch.randperm(ids.numel(), generator=draw)
    made = stepwise_advantages_flat(
        rewards[order], ids[order], tau[order], LINEAR, mask_BL=torch.ones_like(tau[order]).bool()
    )
    for name in ids.unique():
        rows = (ids[order] == name).nonzero().squeeze(1)
        wanted = entropic_advantages(rewards[order][rows].unsqueeze(0), LINEAR(tau[order][rows]).unsqueeze(0))[0]
        assert torch.equal(made.values_PGL[rows], wanted)


def trl(rewards_PG):
    """TRL's GRPO: (r - mean) / (std + 1e-4), std with ddof 1."""
    return (rewards_PG - rewards_PG.mean(1, keepdim=True)) / (rewards_PG.std(1, keepdim=True) + 1e-4)


def verl(rewards_PG, *, normalise):
    """verl's GRPO outcome advantage, group by group as there; epsilon 1e-6 when normalising."""
    result = torch.empty_like(rewards_PG)
    for p, group in enumerate(rewards_PG):
        mean, std = torch.mean(group), torch.std(group)
        result[p] = (group - mean) / (std + 1e-6) if normalise else group - mean
    return result


@pytest.mark.parametrize("rewards", [BINARY.double(), GRADED.double()], ids=["binary", "graded"])
class TestVanillaLimit:
    """Coefficient 0 is what other trainers compute."""

    def test_trl(self, rewards):
        made = make(rewards, ConstantSchedule(0.0), base="standardised")
        torch.testing.assert_close(made.values_PGL, spread(trl(rewards)), rtol=1e-13, atol=0)

    def test_verl(self, rewards):
        made = make(rewards, ConstantSchedule(0.0))
        torch.testing.assert_close(made.values_PGL, spread(verl(rewards, normalise=False)), rtol=1e-13, atol=1e-16)
        wanted = verl(rewards, normalise=True)
        found = standardise(Score(values_PG=rewards - rewards.mean(1, keepdim=True)), rewards, eps=1e-6)
        torch.testing.assert_close(found.values_PG, wanted, rtol=1e-12, atol=1e-9)

    def test_polgrad(self, rewards):
        ids = torch.arange(P).repeat_interleave(G)
        options = {"centred": polgrad.GroupNormConfig(scale="none"), "standardised": polgrad.GroupNormConfig()}
        for base, config in options.items():
            wanted = polgrad.broadcast_to_tokens(
                polgrad.grpo_advantages(rewards.flatten(), ids, config), MASK.flatten(0, 1)
            )
            made = stepwise_advantages_flat(
                rewards.flatten(), ids, TAU.flatten(0, 1), ConstantSchedule(0.0), mask_BL=MASK.flatten(0, 1), base=base
            )
            torch.testing.assert_close(made.values_PGL, wanted, rtol=1e-12, atol=1e-15)

    def test_polgrad_leave_one_out(self, rewards):
        ids = torch.arange(P).repeat_interleave(G)
        wanted = spread(polgrad.rloo_advantages(rewards.flatten(), ids).view(P, G))
        made = make(rewards, ConstantSchedule(0.0), baseline="leave-one-out")
        torch.testing.assert_close(made.values_PGL, wanted, rtol=1e-12, atol=1e-15)


def test_standardised_base_divides_by_the_rewards_deviation():
    rewards = BINARY.double()
    sigma = rewards.std(1, keepdim=True) + 1e-4
    wanted = (make(rewards).values_PGL / sigma.unsqueeze(2)).masked_fill(~MASK, 0.0)
    torch.testing.assert_close(make(rewards, base="standardised").values_PGL, wanted, rtol=1e-14, atol=0)
    zero = make(rewards, ConstantSchedule(0.0), base="standardised").values_PGL
    assert torch.equal(zero, spread((rewards - rewards.mean(1, keepdim=True)) / sigma))
    loose = make(rewards, base="standardised", std_ddof=0).values_PGL
    wanted = (make(rewards).values_PGL / (rewards.std(1, correction=0)[:, None, None] + 1e-4)).masked_fill(~MASK, 0.0)
    torch.testing.assert_close(loose, wanted, rtol=1e-14, atol=0)


def test_standardising_afterwards_would_be_plain_grpo_and_is_refused():
    values = entropic_advantages(BINARY.double()[2:5], 3.0)
    z_score = values / values.std(1, keepdim=True)
    plain = BINARY.double()[2:5] - BINARY.double()[2:5].mean(1, keepdim=True)
    torch.testing.assert_close(z_score, plain / plain.std(1, keepdim=True))
    with pytest.raises(NormalisationError, match="cancel"):
        make(base="standardised-after")
    with pytest.raises(NormalisationError, match="standardise the score first"):
        standardise(Score(values_PG=values, weighted=True), BINARY[2:5])


def test_leave_one_out_counts_what_hits_the_cap():
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    tau = torch.tensor([0.0, 0.5, 1.0]).expand(1, 4, 3)
    mask = torch.ones(1, 4, 3).bool()
    made = stepwise_advantages(rewards, tau, LinearSchedule(5.0, 0.0), mask_PGL=mask, baseline="leave-one-out")
    assert made.values_PGL[0, 0, 0] == 3.0
    assert made.metrics["cap_hits"] == 2.0  # expm1(5)/5 = 29 and expm1(2.5)/2.5 = 4.5 are above G - 1 = 3
    assert made.metrics["cap_share"] == pytest.approx(2 / 12)
    mask[0, 0, 0] = False
    made = stepwise_advantages(rewards, tau, LinearSchedule(5.0, 0.0), mask_PGL=mask, baseline="leave-one-out")
    assert made.metrics["cap_hits"] == 1.0
    assert make().metrics["cap_hits"] == 0.0


def test_schedule_by_pass_rate_sees_the_groups_share():
    rewards = torch.tensor([[1.0, 0, 0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 0]])
    tau = TAU[:3]
    schedule = PassRateSchedule(0.2, LinearSchedule(4.0, 0.0), LinearSchedule(0.0, 2.0))
    made = stepwise_advantages(rewards, tau, schedule, mask_PGL=torch.ones_like(tau).bool())
    assert torch.equal(made.risk_coef_PGL[0], schedule.below(tau[0]))
    assert torch.equal(made.risk_coef_PGL[1:], schedule.above(tau[1:]))
    signed = stepwise_advantages(rewards * 2 - 1, tau, schedule, mask_PGL=torch.ones_like(tau).bool())
    assert torch.equal(signed.risk_coef_PGL, made.risk_coef_PGL)
    with pytest.raises(ArgumentError, match="pass rate"):
        make(GRADED * 5, schedule)


def test_nothing_outside_the_mask_matters():
    rewards, dirty = BINARY.double(), TAU.masked_fill(~MASK, math.nan)
    dirty[0, 0, MASK[0, 0].sum() :] = -7.0
    for options in ({}, {"control": "reverse"}, {"control": "flat"}, {"rms_match": "batch"}):
        clean = make(rewards, **options)
        made = stepwise_advantages(rewards, dirty, LINEAR, mask_PGL=MASK, **options)
        assert torch.equal(made.values_PGL, clean.values_PGL)
        assert torch.equal(made.risk_coef_PGL, clean.risk_coef_PGL)
        assert not bool(made.values_PGL[~MASK].any())


def test_weights_outside_the_mask_do_not_count():
    weights = torch.rand(P, G, L, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    made = make(control="flat", weights_PGL=weights)
    assert torch.equal(
        make(control="flat", weights_PGL=weights.masked_fill(~MASK, math.nan)).values_PGL, made.values_PGL
    )
    with pytest.raises(ArgumentError, match=">= 0"):
        make(control="flat", weights_PGL=-weights)


def test_results_do_not_depend_on_how_the_batch_is_cut(monkeypatch):
    whole = make()
    for size in (1, 100, 1000):
        monkeypatch.setattr("steprs.advantages.composition.CHUNK", size)
        monkeypatch.setattr("steprs.advantages.parts.CHUNK", size)
        assert torch.equal(make().values_PGL, whole.values_PGL)
    apart = [stepwise_advantages(BINARY[p : p + 1], TAU[p : p + 1], LINEAR, mask_PGL=MASK[p : p + 1]) for p in range(P)]
    assert torch.equal(torch.cat([one.values_PGL for one in apart]), whole.values_PGL)


def test_masked_samples_leave_the_group():
    valid = torch.ones(P, G).bool()
    valid[2, 3] = valid[2, 5] = valid[4, 0] = False
    valid[5, 1:] = False
    bad = BINARY.clone()
    bad[~valid] = math.nan
    made = make(bad, valid_PG=valid)
    for p in (2, 4):
        keep = valid[p]
        wanted = entropic_advantages(BINARY[p][keep].unsqueeze(0), LINEAR(TAU[p][keep]).unsqueeze(0))[0]
        assert torch.equal(made.values_PGL[p][keep], wanted.masked_fill(~MASK[p][keep], 0.0))
    assert not bool(made.values_PGL[~valid].any())
    assert not bool(made.values_PGL[5].any())
    flat = stepwise_advantages_flat(
        bad.flatten(), torch.arange(P).repeat_interleave(G), TAU.flatten(0, 1), LINEAR, mask_BL=MASK.flatten(0, 1),
        valid_B=valid.flatten(),
    )  # fmt: skip
    assert torch.equal(flat.values_PGL, made.values_PGL.flatten(0, 1))


def test_a_reward_that_is_nan_is_named():
    bad = torch.tensor([[1.0, math.nan, 0.0, 0.0]])
    tau = torch.zeros(1, 4, 2)
    with pytest.raises(RewardError, match="prompt 0, rollout 1 is nan"):
        stepwise_advantages(bad, tau, LINEAR, mask_PGL=tau == 0)
    with pytest.raises(RewardError, match="row 1 .group 9"):
        stepwise_advantages_flat(bad[0], torch.full((4,), 9), tau[0], LINEAR, mask_BL=tau[0] == 0)


def test_a_group_of_one_is_refused_with_the_settings_name():
    with pytest.raises(ArgumentError, match="group_size"):
        stepwise_advantages(torch.ones(2, 1), torch.zeros(2, 1, 3), LINEAR, mask_PGL=torch.ones(2, 1, 3).bool())
    with pytest.raises(ArgumentError, match=r"group 4 .*group_size"):
        stepwise_advantages_flat(
            torch.ones(3), torch.tensor([2, 4, 2]), torch.zeros(3, 1), LINEAR, mask_BL=torch.ones(3, 1).bool()
        )


def test_groups_without_signal():
    rewards = torch.tensor(
        [[0.30000000000000004, 0.3], [0.0, 1.0], [5.0, 5.0 + 1e-7], [2e9, 2e9 + 1]], dtype=torch.float64
    )
    assert dead_groups(rewards).tolist() == [True, False, False, True]
    made = stepwise_advantages(rewards[:1], torch.zeros(1, 2, 1), LINEAR, mask_PGL=torch.ones(1, 2, 1).bool())
    assert float(made.values_PGL.abs().max()) < 1e-16
    assert dead_groups(torch.tensor([[1, 1], [1, 0]])).tolist() == [True, False]


def test_metrics():
    made = make().metrics
    equal = sum(float(group.max() == group.min()) for group in BINARY)
    assert made["dead_groups"] == pytest.approx(equal / P)
    assert made["binary_exact"] == 1.0
    assert made["rms_scale"] == 1.0
    assert make(GRADED).metrics["binary_exact"] == 0.0
    assert make(torch.cat([BINARY[:4], BINARY[4:] * 0.5])).metrics["binary_exact"] == 0.0
    assert all(isinstance(value, float) for value in made.values())


def test_types():
    assert make(BINARY.bool()).values_PGL.dtype == torch.get_default_dtype()
    assert make(BINARY.long()).values_PGL.dtype == torch.get_default_dtype()
    assert make(BINARY.bfloat16()).values_PGL.dtype == torch.bfloat16
    assert torch.equal(make(BINARY.bool()).values_PGL, make(BINARY).values_PGL)


def test_no_gradient_flows_and_nothing_is_changed():
    rewards, tau = BINARY.clone().requires_grad_(), TAU.clone().requires_grad_()
    for options in ({}, {"rms_match": "batch"}, {"control": "flat"}, {"baseline": "leave-one-out"}):
        made = stepwise_advantages(rewards, tau, LINEAR, mask_PGL=MASK, **options)
        assert not made.values_PGL.requires_grad
        assert not made.risk_coef_PGL.requires_grad
    assert torch.equal(rewards, BINARY)
    assert torch.equal(tau, TAU)


def test_advantages_are_repeatable():
    for options in ({}, {"control": "shuffle-state", "seed": 1}, {"rms_match": "group-state"}):
        assert torch.equal(make(**options).values_PGL, make(**options).values_PGL)


def test_two_valued_rewards_never_meet_an_axis_of_pairs(monkeypatch):
    def refuse(*_):
        raise AssertionError("the general form ran on two-valued rewards")

    monkeypatch.setattr("steprs.advantages.composition.general_advantages", refuse)
    make(BINARY)
    make(BINARY * 3 - 1)
    with pytest.raises(AssertionError, match="general form"):
        make(GRADED)


def test_empty_batches():
    none = stepwise_advantages(torch.zeros(0, 4), torch.zeros(0, 4, 3), LINEAR, mask_PGL=torch.zeros(0, 4, 3).bool())
    assert none.values_PGL.shape == (0, 4, 3)
    short = stepwise_advantages(BINARY, TAU[:, :, :0], LINEAR, mask_PGL=MASK[:, :, :0])
    assert short.values_PGL.shape == (P, G, 0)
    silent = stepwise_advantages(BINARY, TAU, LINEAR, mask_PGL=torch.zeros_like(MASK), rms_match="batch")
    assert not bool(silent.values_PGL.any())


class Broken(AbstractSchedule):
    """Gives what no schedule may give."""

    def __init__(self, value):
        self.value = value

    def _coefficients(self, tau, pass_rate):
        return self.value(tau)


@pytest.mark.parametrize(
    "value", [lambda tau: tau / 0, lambda tau: tau * math.nan, lambda tau: tau.float(), lambda tau: tau[:1, :1]]
)
def test_a_broken_schedule_is_named(value):
    with pytest.raises(ArgumentError, match="check_schedule"):
        make(schedule=Broken(value))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"control": "flatt"}, "Did you mean 'flat'"),
        ({"rms_match": "batches"}, "Did you mean 'batch'"),
        ({"base": "centered"}, "Did you mean 'centred'"),
        ({"baseline": "loo"}, "leave-one-out"),
        ({"control": "flat", "baseline": "leave-one-out"}, "baseline='group'"),
        ({"weights_PGL": torch.ones(P, G)}, "weights_PGL"),
        ({"state_index_PGL": torch.ones(P, G, 2)}, "state_index_PGL"),
        ({"valid_PG": torch.ones(G)}, "valid_PG"),
    ],
)
def test_what_cannot_be_used_is_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        make(**options)


def test_shapes_are_checked():
    with pytest.raises(ArgumentError, match="mask_PGL"):
        stepwise_advantages(BINARY, TAU, LINEAR, mask_PGL=MASK[:, :, :3])
    with pytest.raises(ArgumentError, match="progress_PGL"):
        stepwise_advantages(BINARY, TAU[0], LINEAR, mask_PGL=MASK)
    with pytest.raises(ArgumentError, match=r"\[0, 1\]"):
        stepwise_advantages(BINARY, TAU + 0.5, LINEAR, mask_PGL=torch.ones_like(MASK))
    with pytest.raises(ArgumentError, match="integers"):
        stepwise_advantages_flat(BINARY[0], torch.ones(G), TAU[0], LINEAR, mask_BL=MASK[0])
