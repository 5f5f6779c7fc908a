"""The laboratory against slow enumeration: answers, groups and steps one by one, with autograd for gradients."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import torch

from steprs.advantages import stepwise_advantages
from steprs.errors import ArgumentError
from steprs.theory import LabSettings, parse_arm, run_lab
from steprs.theory.lab import expected_update, group_factors, held_out_measures
from steprs.theory.world import Tree, make_world, pass_rates

TINY = LabSettings(
    prompts=3, vocabulary=2, states=3, features=3, right_answers=(1, 3), instances=2, capability=0.3,
    group_size=3, updates=3, tries=5, seed=4,
)  # fmt: skip
ARMS = [
    "centred", "constant 3", "linear 4 -1", "pass-rate 0.5 linear 4 0 / linear -1 3", "standardised",
    "linear 4 0 control=flat", "linear 4 0 control=reverse", "power 4 0 control=state-only",
    "linear 4 0 control=constant",
    "pass-rate 0.5 linear 4 0 / linear -1 3 control=flat", "linear 4 0 base=standardised",
]  # fmt: skip


def step_logprobs(theta: torch.Tensor, features: torch.Tensor, tree: Tree, answer: tuple[int, ...]) -> torch.Tensor:
    """log pi of each token of one answer, [S]; logits stand state by state, prefix by prefix."""
    logits = features @ theta
    found, offset, prefix = [], 0, 0
    for state, token in enumerate(answer):
        begin = offset + prefix * tree.vocabulary
        found.append(torch.log_softmax(logits[begin : begin + tree.vocabulary], -1)[token])
        offset += tree.vocabulary ** (state + 1)
        prefix = prefix * tree.vocabulary + token
    return torch.stack(found)


def all_answers(tree: Tree) -> list[tuple[int, ...]]:
    return list(itertools.product(range(tree.vocabulary), repeat=tree.states))


def slow_pass_rate(theta, features, right_A, tree) -> torch.Tensor:
    return sum(
        step_logprobs(theta, features, tree, answer).sum().exp()
        for answer, right in zip(all_answers(tree), right_A.tolist(), strict=True)
        if right
    )


def test_pass_rates_by_enumeration_and_capability_in_every_instance():
    world = TINY.world()
    found = pass_rates(world.base_IDM, world.train, world.tree)
    for i, p in itertools.product(range(TINY.instances), range(TINY.prompts)):
        wanted = slow_pass_rate(
            world.base_IDM[i], world.train.features_IPD[i, p], world.train.right_IPA[i, p], world.tree
        )
        assert float(found[i, p]) == pytest.approx(float(wanted), rel=1e-12)
    assert found.mean(-1).tolist() == pytest.approx([0.3, 0.3], abs=1e-9)


@pytest.mark.parametrize("coef", [0.0, 3.0, -2.0])
def test_constant_coefficients_follow_the_enumerated_objective(coef):
    """The update is the mean over prompts of c_G(p, b) grad p, with c_G summed by hand."""
    world, size = TINY.world(), TINY.group_size
    arm = parse_arm(f"constant {coef}")
    found = expected_update(world.base_IDM, world.train, world.tree, group_factors(arm, size, TINY.states, 0.3))
    scale = lambda p: 1.0 if coef == 0 else math.expm1(coef) / (coef * (1 + p * math.expm1(coef)))  # noqa: E731
    for i in range(TINY.instances):
        theta = world.base_IDM[i].clone().requires_grad_()
        objective = torch.zeros((), dtype=torch.float64)
        for features, right_A in zip(world.train.features_IPD[i], world.train.right_IPA[i], strict=True):
            rate = slow_pass_rate(theta, features, right_A, world.tree)
            p = float(rate.detach())
            weight = sum(
                math.comb(size, k) * p**k * (1 - p) ** (size - k) * scale(k / size) * (k / size) * (1 - k / size)
                for k in range(size + 1)
            ) / (p * (1 - p))  # fmt: skip
            objective = objective + weight * rate / TINY.prompts
        wanted = torch.autograd.grad(objective, theta)[0]
        torch.testing.assert_close(found[i], wanted, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("group_size", [2, 3])
@pytest.mark.parametrize("text", ARMS)
def test_expected_update_is_the_mean_over_all_groups(text, group_size):
    """Every group of G answers with its chance, the package's advantages, autograd of the log-probabilities."""
    tree = Tree(vocabulary=2, states=2)
    world = make_world(
        tree, instances=1, prompts=2, features=2, right_answers=(1, 2), capability=0.4, seed=2
    )  # fmt: skip
    arm = parse_arm(text)
    found = expected_update(world.base_IDM, world.train, tree, group_factors(arm, group_size, 2, 0.4))[0]
    theta = world.base_IDM[0].clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for features, right_A in zip(world.train.features_IPD[0], world.train.right_IPA[0], strict=True):
        logp_AS = torch.stack([step_logprobs(theta, features, tree, answer) for answer in all_answers(tree)])
        chance_A = logp_AS.sum(1).exp().detach()
        groups_NG = torch.cartesian_prod(*[torch.arange(tree.answers)] * group_size)
        tau = torch.tensor([0.0, 1.0], dtype=torch.float64).expand(*groups_NG.shape, 2)
        # The constant control is matched once, over prompts of every kind, as at the start of a run.
        made = stepwise_advantages(
            right_A[groups_NG], tau, arm.schedule, mask_PGL=torch.ones_like(tau, dtype=torch.bool),
            control=arm.control, base=arm.base, reference_pass_rate=0.4 if arm.control == "constant" else None,
        ).values_PGL  # fmt: skip
        estimate_N = (made * logp_AS[groups_NG]).sum(2).mean(1)
        total = total + (chance_A[groups_NG].prod(1) * estimate_N).sum() / 2
    wanted = torch.autograd.grad(total, theta)[0]
    assert float(wanted.abs().max()) > 1e-4
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("text", ["constant 0", "linear 0 0", "linear 4 0 control=centred", "step 0 0 control=flat"])
def test_coefficient_zero_is_centred_bit_for_bit(text):
    result = run_lab([parse_arm(text)], TINY)
    assert result.values_EUQI[0].equal(result.values_EUQI[1])


def test_equal_ends_are_the_constant_bit_for_bit():
    result = run_lab([parse_arm("constant 3"), parse_arm("linear 3 3")], TINY)
    assert result.values_EUQI[1].equal(result.values_EUQI[2])
    assert not result.values_EUQI[1].equal(result.values_EUQI[0])


def test_measures_by_plain_sums():
    world, k = TINY.world(), TINY.tries
    found = held_out_measures(world.base_IDM, world.held_out, world.tree, k)
    for i in range(TINY.instances):
        sums = [0.0, 0.0, 0.0]
        for features, right_A in zip(world.held_out.features_IPD[i], world.held_out.right_IPA[i], strict=True):
            chances = [
                math.exp(float(step_logprobs(world.base_IDM[i], features, world.tree, answer).sum()))
                for answer, right in zip(all_answers(world.tree), right_A.tolist(), strict=True)
                if right
            ]
            p = sum(chances)
            sums = [sums[0] + p, sums[1] + 1 - (1 - p) ** k, sums[2] + sum(1 - (1 - q) ** k for q in chances)]
        assert found[:, i].tolist() == pytest.approx([value / TINY.prompts for value in sums], rel=1e-12)


def test_adam_is_the_adam_of_torch():
    arm = parse_arm("linear 4 0")
    world = TINY.world()
    factors = group_factors(arm, TINY.group_size, TINY.states, TINY.capability)
    parameters = torch.nn.Parameter(world.base_IDM.clone())
    optimizer = torch.optim.Adam([parameters], lr=0.05, betas=(0.9, 0.95), eps=1e-8, maximize=True)
    for _ in range(TINY.updates):
        parameters.grad = expected_update(parameters.detach(), world.train, world.tree, factors)
        optimizer.step()
    wanted = held_out_measures(parameters.detach(), world.held_out, world.tree, TINY.tries)
    found = run_lab([arm], TINY).values_EUQI[1, -1]
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=0)


def test_norm_matched_steps_ignore_the_size_of_the_gradient():
    """A flat control of a constant differs from centred by a factor a prompt; with one prompt, by one factor."""
    one = dataclasses.replace(TINY, prompts=1, capability=0.25, optimiser="norm")
    flat = run_lab([parse_arm("constant 5")], one).values_EUQI
    torch.testing.assert_close(flat[0], flat[1], rtol=1e-12, atol=0)
    adam = run_lab([parse_arm("constant 5")], dataclasses.replace(one, optimiser="adam", learning_rate=1.0)).values_EUQI
    assert not torch.allclose(adam[0], adam[1], rtol=1e-9)


def test_more_instances_leave_the_first_ones_as_they_were():
    more = run_lab([], dataclasses.replace(TINY, instances=4)).values_EUQI[..., :2]
    torch.testing.assert_close(more, run_lab([], TINY).values_EUQI, rtol=1e-9, atol=0)


def test_the_reverse_of_a_schedule_is_its_mirror():
    result = run_lab([parse_arm("linear 4 0 control=reverse"), parse_arm("linear 0 4")], TINY)
    torch.testing.assert_close(result.values_EUQI[1], result.values_EUQI[2], rtol=1e-12, atol=0)


def test_the_table_holds_means_and_standard_errors():
    result = run_lab([parse_arm("constant 4")], TINY)
    sheet = result.sheet()
    gaps = (result.values_EUQI[1, -1] - result.values_EUQI[0, -1])[1].tolist()
    mean = sum(gaps) / 2
    error = math.sqrt(sum((gap - mean) ** 2 for gap in gaps)) / math.sqrt(2)
    row = next(row for row in sheet.rows if row[:2] == ("pass@5", "constant 4"))
    assert row[3:] == pytest.approx((mean, error), rel=1e-12)
    assert row[2] == pytest.approx(float(result.values_EUQI[1, -1, 1].mean()), rel=1e-12)
    base = next(row for row in sheet.rows if row[:2] == ("pass@5", "base policy"))
    world = TINY.world()
    assert base[2] == pytest.approx(float(held_out_measures(world.base_IDM, world.held_out, world.tree, 5)[1].mean()))


def test_what_the_page_says_of_the_direction():
    """Positive coefficients raise pass@16 and distinct right answers of a weak base, negative ones lower them."""
    small = LabSettings(instances=6, updates=40)
    gaps, errors = run_lab([parse_arm("constant 4"), parse_arm("constant -2")], small).differences()
    assert float(gaps[1, 1]) > 2 * float(errors[1, 1])
    assert float(gaps[1, 2]) > 2 * float(errors[1, 2])
    assert float(gaps[2, 1]) < -2 * float(errors[2, 1])
    assert float(gaps[2, 2]) < -2 * float(errors[2, 2])


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"instances": 1}, "instances >= 2"),
        ({"group_size": 1}, "group size 1"),
        ({"capability": 0.999}, "capability 0.999 cannot be had"),
        ({"right_answers": (3, 8)}, "1 <= fewest <= most < 8"),
        ({"states": 20}, "at most 4096"),
        ({"optimiser": "sgd"}, "adam, norm"),
    ],
)
def test_settings_that_fit_no_world_are_refused(changed, says):
    with pytest.raises(ArgumentError, match=says):
        run_lab([], dataclasses.replace(TINY, **changed))
