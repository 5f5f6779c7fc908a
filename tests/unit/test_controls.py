"""Each control keeps what it says it keeps, under the weights of each loss aggregation."""

from __future__ import annotations

import math

import pytest
import torch

from steprs.advantages import stepwise_advantages, stepwise_advantages_flat
from steprs.controls import matched_constant, mirrored, shuffled_states, shuffled_tokens
from steprs.errors import ArgumentError, CalibrationError
from steprs.risk import entropic_advantages, risk_scale
from steprs.schedules import ConstantSchedule, LinearSchedule, PassRateSchedule, scaled

P, G, L = 5, 6, 24
SCHEDULE = LinearSchedule(3.0, -0.5)
AGGREGATIONS = ("token-mean", "sequence-mean", "state-mean")


class Batch:
    """Rollouts with ragged lengths, several tokens a state, garbage progress in the padding."""

    def __init__(self, seed=0):
        draw = torch.Generator().manual_seed(seed)
        self.rewards = torch.zeros(P, G, dtype=torch.float64)
        for prompt, right in enumerate((1, 3, 5, 0, 2)):
            self.rewards[prompt, torch.randperm(G, generator=draw)[:right]] = 1
        lengths = torch.randint(L // 2, L + 1, (P, G, 1), generator=draw)
        self.mask = torch.arange(L) < lengths
        self.state = torch.randint(0, 9, (P, G, L), generator=draw)
        self.progress = (self.state / 8.0).double().masked_fill(~self.mask, math.nan)
        self.draw = draw

    def weights(self, aggregation):
        if aggregation == "token-mean":
            return None
        if aggregation == "sequence-mean":
            return self.mask / self.mask.sum(2, keepdim=True).double()
        same = (self.state.unsqueeze(3) == self.state.unsqueeze(2)) & self.mask.unsqueeze(2)
        return self.mask / same.sum(3).clamp(min=1).double()

    def make(self, aggregation="token-mean", schedule=SCHEDULE, **options):
        return stepwise_advantages(
            self.rewards, self.progress, schedule, mask_PGL=self.mask, weights_PGL=self.weights(aggregation), **options
        )

    def scale(self, made):
        """c of each token, read off the advantages; live groups only."""
        centred = self.rewards - self.rewards.mean(1, keepdim=True)
        live = self.rewards.std(1) > 0
        return (made.values_PGL / centred.unsqueeze(2))[live], self.mask[live]

    def mass(self, made, aggregation):
        scale, mask = self.scale(made)
        weights = self.weights(aggregation)
        live = self.rewards.std(1) > 0
        return (scale * (mask.double() if weights is None else weights[live])).sum((1, 2))


@pytest.fixture(scope="module")
def batch():
    return Batch()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("control", ["flat", "reverse", "shuffle-state"])
def test_the_mass_of_each_prompt_is_kept(batch, control, aggregation):
    full = batch.mass(batch.make(aggregation), aggregation)
    made = batch.make(aggregation, control=control, seed=3)
    torch.testing.assert_close(batch.mass(made, aggregation), full, rtol=1e-12, atol=0)
    assert not torch.allclose(made.values_PGL, batch.make(aggregation).values_PGL, rtol=1e-2)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_state_only_keeps_the_mass_of_centred(batch, aggregation):
    centred = batch.mass(batch.make(aggregation, control="centred"), aggregation)
    made = batch.make(aggregation, control="state-only")
    torch.testing.assert_close(batch.mass(made, aggregation), centred, rtol=1e-12, atol=0)
    scale, mask = batch.scale(made)
    full, _ = batch.scale(batch.make(aggregation))
    for one, other, active in zip(scale, full, mask, strict=True):
        ratio = one[active] / other[active]
        torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio), rtol=1e-12, atol=0)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_flat_has_one_scale_a_prompt(batch, aggregation):
    scale, mask = batch.scale(batch.make(aggregation, control="flat"))
    for one, active in zip(scale, mask, strict=True):
        torch.testing.assert_close(one[active], one[active][:1].expand_as(one[active]), rtol=1e-13, atol=0)


def test_weights_matter(batch):
    other = batch.make("state-mean", control="flat")
    assert not torch.allclose(batch.make("token-mean", control="flat").values_PGL, other.values_PGL, rtol=1e-4)


def test_the_two_by_two(batch):
    """full / flat and state-only / centred differ by the same factor: the prompt's mean scale."""
    made = {name: batch.scale(batch.make(control=name))[0] for name in ("full", "flat", "state-only", "centred")}
    _, mask = batch.scale(batch.make())
    torch.testing.assert_close(
        (made["full"] / made["state-only"])[mask], (made["flat"] / made["centred"])[mask], rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("schedule", [SCHEDULE, LinearSchedule(0.0, 3.0), LinearSchedule(-3.0, -1.0)])
def test_constant_has_the_schedules_mass_at_the_reference(batch, aggregation, schedule):
    made = batch.make(aggregation, schedule, control="constant", reference_pass_rate=0.3)
    b = made.metrics["constant_risk_coef"]
    weights = batch.mask.double() if aggregation == "token-mean" else batch.weights(aggregation)
    coef = schedule(batch.progress.masked_fill(~batch.mask, 0.0))
    wanted = (weights * risk_scale(0.3, coef)).sum()
    assert float(risk_scale(0.3, b) * weights.sum()) == pytest.approx(float(wanted), rel=1e-11)
    assert b * float((weights * coef).sum()) > 0
    assert torch.equal(made.values_PGL, batch.make(schedule=ConstantSchedule(b)).values_PGL)


def test_constant_of_a_constant_is_itself(batch):
    for b in (0.0, 0.7, 3.5, -2.0, 20.0):
        made = batch.make(schedule=ConstantSchedule(b), control="constant", reference_pass_rate=0.25)
        assert made.metrics["constant_risk_coef"] == pytest.approx(b, rel=1e-9)


def test_constant_at_the_peak_and_at_one_half():
    tau = torch.linspace(0, 1, 9)
    for schedule, sign in ((LinearSchedule(0.0, 2.0), 1), (LinearSchedule(0.0, -2.0), -1)):
        assert matched_constant(schedule, tau, torch.ones(9), 0.5) * sign > 0
    peak = matched_constant(ConstantSchedule(1.632), tau, torch.ones(9), 0.25)
    assert peak == pytest.approx(1.632, abs=2e-3)


def test_constant_reduces_over_processes(batch):
    tau = batch.progress.masked_fill(~batch.mask, 0.0)
    whole = matched_constant(SCHEDULE, tau, batch.mask.double(), 0.3)
    parts = [(tau[rows], batch.mask[rows].double()) for rows in (slice(0, 2), slice(2, P))]
    sums = []
    for part in parts:
        matched_constant(SCHEDULE, *part, 0.3, all_reduce=lambda s: (sums.append(s), s)[1])
    total = sums[0] + sums[1]
    apart = matched_constant(SCHEDULE, *parts[0], 0.3, all_reduce=lambda _: total)
    assert apart == pytest.approx(whole, rel=1e-12)


def test_constant_refuses_what_it_cannot_match(batch):
    with pytest.raises(ArgumentError, match="reference_pass_rate"):
        batch.make(control="constant")
    with pytest.raises(ArgumentError, match="reference_pass_rate"):
        batch.make(control="constant", reference_pass_rate=1.0)
    with pytest.raises(CalibrationError, match="no active token"):
        matched_constant(SCHEDULE, torch.zeros(3), torch.zeros(3), 0.5)


def test_constant_follows_a_pass_rate_schedule_at_the_reference(batch):
    schedule = scaled(PassRateSchedule(), 2.0)
    made = batch.make(schedule=schedule, control="constant", reference_pass_rate=0.1)
    below = batch.make(schedule=schedule.below, control="constant", reference_pass_rate=0.1)
    assert made.metrics["constant_risk_coef"] == below.metrics["constant_risk_coef"]


def test_reverse_mirrors_each_trajectory(batch):
    made = batch.make(control="reverse")
    for p, g in ((0, 0), (2, 4)):
        active = batch.mask[p, g]
        tau = batch.progress[p, g][active]
        torch.testing.assert_close(made.risk_coef_PGL[p, g][active], SCHEDULE(tau.min() + tau.max() - tau))
    twice = mirrored(mirrored(batch.progress[0], batch.mask[0]), batch.mask[0])
    torch.testing.assert_close(twice[batch.mask[0]], batch.progress[0][batch.mask[0]])


def test_shuffle_token_keeps_the_multiset_of_scales_bit_for_bit(batch):
    full, mask = batch.scale(batch.make())
    made = batch.make(control="shuffle-token", seed=5)
    shuffled, _ = batch.scale(made)
    for g in range(G):
        assert torch.equal(full[0, g][mask[0, g]].sort().values, shuffled[0, g][mask[0, g]].sort().values)
    assert not torch.equal(full[mask], shuffled[mask])
    assert torch.equal(made.values_PGL, batch.make(control="shuffle-token", seed=5).values_PGL)
    assert not torch.equal(made.values_PGL, batch.make(control="shuffle-token", seed=6).values_PGL)


@pytest.mark.parametrize("given", [True, False])
def test_shuffle_state_permutes_states_as_wholes(batch, given):
    state = batch.state if given else None
    made = batch.make(control="shuffle-state", seed=5, state_index_PGL=state)
    moved = False
    for p, g in ((0, 1), (1, 3), (4, 5)):
        active = batch.mask[p, g]
        before = batch.progress[p, g][active]
        coef = made.risk_coef_PGL[p, g][active]
        names = before.unique()
        after = [coef[before == name] for name in names]
        assert all(bool((values == values[0]).all()) for values in after)
        found = torch.stack([values[0] for values in after])
        assert torch.equal(found.sort().values, SCHEDULE(names).sort().values)
        moved |= not torch.equal(found, SCHEDULE(names))
    assert moved


def test_shuffles_follow_the_rollout_and_not_its_place(batch):
    keys = torch.arange(100, 100 + P * G).view(P, G)
    order = torch.randperm(P, generator=torch.Generator().manual_seed(1))
    for control in ("shuffle-token", "shuffle-state"):
        whole = batch.make(control=control, seed=1, row_keys_PG=keys).values_PGL
        moved = stepwise_advantages(
            batch.rewards[order], batch.progress[order], SCHEDULE, mask_PGL=batch.mask[order], control=control, seed=1,
            row_keys_PG=keys[order],
        ).values_PGL  # fmt: skip
        assert torch.equal(moved, whole[order])


def test_shuffles_are_uniform():
    tau = torch.arange(4).double().expand(4000, 4) / 3
    mask, keys = torch.ones(4000, 4).bool(), torch.arange(4000)
    for shuffled in (
        shuffled_tokens(tau, mask, seed=2, row_keys_B=keys),
        shuffled_states(tau, mask, None, seed=2, row_keys_B=keys),
    ):
        codes = (shuffled * 3).long() @ torch.tensor([64, 16, 4, 1])
        counts = codes.unique(return_counts=True)[1]
        assert counts.numel() == 24
        assert float(((counts - 4000 / 24) ** 2 / (4000 / 24)).sum()) < 50  # chi-square, 23 degrees, p = .001


def test_shuffle_state_refuses_a_state_without_one_progress():
    tau, mask = torch.tensor([[0.0, 0.5, 1.0]]).double(), torch.ones(1, 3).bool()
    with pytest.raises(ArgumentError, match="one state"):
        shuffled_states(tau, mask, torch.tensor([[0, 0, 1]]), seed=0, row_keys_B=torch.zeros(1).long())


def test_shuffles_need_a_seed(batch):
    with pytest.raises(ArgumentError, match="seed"):
        batch.make(control="shuffle-token")


def test_graded_rewards_have_flat_and_nothing_else(batch):
    graded = batch.rewards.clone()
    graded[0, 0] = 0.4
    graded[0, 1:3] = torch.tensor([0.0, 1.0])

    def make(control, **options):
        return stepwise_advantages(graded, batch.progress, SCHEDULE, mask_PGL=batch.mask, control=control, **options)

    for control in ("constant", "reverse", "shuffle-token", "shuffle-state", "state-only"):
        with pytest.raises(ArgumentError, match="two-valued"):
            make(control, seed=0, reference_pass_rate=0.3)
    found = make("flat")
    coefs = SCHEDULE(batch.progress[0][batch.mask[0]])
    wanted = torch.stack([entropic_advantages(graded[:1], float(b))[0] for b in coefs]).mean(0)
    torch.testing.assert_close(
        found.values_PGL[0][batch.mask[0]], wanted.unsqueeze(1).expand(G, L)[batch.mask[0]], rtol=1e-11, atol=1e-14
    )
    torch.testing.assert_close(found.values_PGL[1:], batch.make(control="flat").values_PGL[1:], rtol=1e-13, atol=0)
    assert found.metrics["binary_exact"] == 0.0


def test_graded_flat_equals_the_two_valued_one_in_the_limit(batch):
    nearly = batch.rewards.clone()
    nearly[0, batch.rewards[0].argmin()] = 1e-13
    found = stepwise_advantages(nearly, batch.progress, SCHEDULE, mask_PGL=batch.mask, control="flat")
    torch.testing.assert_close(found.values_PGL, batch.make(control="flat").values_PGL, rtol=1e-10, atol=1e-12)


def weighted_rms(values, weights):
    return ((weights * values.square()).sum() / weights.sum()).sqrt()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("granularity", ["batch", "group", "state", "group-state"])
@pytest.mark.parametrize("base", ["centred", "standardised"])
def test_rms_matching_attains_its_rms(batch, aggregation, granularity, base):
    made = batch.make(aggregation, rms_match=granularity, state_index_PGL=batch.state, base=base).values_PGL
    centred = batch.make(aggregation, control="centred", base=base).values_PGL
    weights = batch.mask.double() if aggregation == "token-mean" else batch.weights(aggregation)
    buckets = {"batch": [...], "group": range(P)}.get(granularity, [batch.state == s for s in range(9)])
    for bucket in buckets:
        wanted = weighted_rms(centred[bucket], weights[bucket])
        assert float(weighted_rms(made[bucket], weights[bucket])) == pytest.approx(float(wanted), rel=1e-12)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("given", [True, False])
def test_rms_by_group_and_state_is_centred_grpo(batch, aggregation, given):
    state = batch.state if given else None
    made = batch.make(aggregation, rms_match="group-state", state_index_PGL=state)
    centred = batch.make(aggregation, control="centred")
    torch.testing.assert_close(made.values_PGL, centred.values_PGL, rtol=1e-13, atol=0)
    assert not torch.allclose(batch.make(aggregation).values_PGL, centred.values_PGL, rtol=1e-2)


def test_batch_rms_is_one_scalar_and_is_reported(batch):
    plain, made = batch.make(), batch.make(rms_match="batch")
    torch.testing.assert_close(made.values_PGL, plain.values_PGL * made.metrics["rms_scale"], rtol=1e-14, atol=0)
    assert made.metrics["rms_scale"] != 1.0


def test_batch_rms_does_not_depend_on_the_split_over_processes(batch):
    whole = batch.make("state-mean", rms_match="batch")
    weights = batch.weights("state-mean")

    def part(rows, reduce):
        return stepwise_advantages(
            batch.rewards[rows], batch.progress[rows], SCHEDULE, mask_PGL=batch.mask[rows], weights_PGL=weights[rows],
            rms_match="batch", all_reduce=reduce,
        )  # fmt: skip

    splits = [slice(0, 1), slice(1, 4), slice(4, P)]
    sums = []
    for rows in splits:
        part(rows, lambda s: (sums.append(s.clone()), s)[1])
    total = torch.stack(sums).sum(0)
    assert total.dtype == torch.float64
    parts = [part(rows, lambda _: total) for rows in splits]
    torch.testing.assert_close(torch.cat([made.values_PGL for made in parts]), whole.values_PGL, rtol=1e-13, atol=0)
    assert len({made.metrics["rms_scale"] for made in parts}) == 1


def test_no_active_group_leaves_the_factor_at_one(batch):
    for granularity in ("batch", "group", "state", "group-state"):
        made = stepwise_advantages(
            torch.ones(P, G), batch.progress, SCHEDULE, mask_PGL=batch.mask, rms_match=granularity
        )
        assert made.metrics["rms_scale"] == 1.0
        assert torch.equal(made.values_PGL, torch.zeros(P, G, L))


def test_rms_by_state_is_refused_over_processes(batch):
    with pytest.raises(ArgumentError, match="one-process"):
        batch.make(rms_match="state", all_reduce=lambda s: s)


@pytest.mark.parametrize("control", ["full", "flat", "reverse", "shuffle-token", "shuffle-state", "state-only"])
def test_controls_work_on_rows_in_any_order(batch, control):
    options = {"control": control, "seed": 2}
    keys = torch.arange(P * G)
    order = torch.randperm(P * G, generator=torch.Generator().manual_seed(4))
    made = stepwise_advantages_flat(
        batch.rewards.flatten()[order], (keys // G)[order] * 17 - 5, batch.progress.flatten(0, 1)[order], SCHEDULE,
        mask_BL=batch.mask.flatten(0, 1)[order], row_keys_B=keys[order], **options,
    )  # fmt: skip
    wanted = batch.make(**options).values_PGL.flatten(0, 1)[order]
    torch.testing.assert_close(made.values_PGL, wanted, rtol=1e-13, atol=0)
