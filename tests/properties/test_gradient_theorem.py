"""The expected gradient of stepwise advantages, by exact enumeration of a two-step masked decision process.

Two positions, three tokens, states rebuilt from what is revealed; the order of positions is fixed or drawn before the
tokens are. Every group of G trajectories is enumerated with its probability, the package's own function gives the
advantages, and autograd in float64 gives the gradient. The other side of the theorem uses the finite-group scale.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from steprs.advantages import stepwise_advantages
from steprs.risk import finite_group_scale
from steprs.schedules import ConstantSchedule, LinearSchedule, PassRateSchedule, PowerSchedule

TOKENS, POSITIONS = 3, 2
# Right completions: neither symmetric in the positions nor rare.
RIGHT = {(0, 0), (1, 2), (2, 1), (0, 2)}


def logits() -> torch.Tensor:
    """Free logits of every (state, position, token): state = revealed token at the other position, or none."""
    draw = torch.Generator().manual_seed(7)
    return torch.randn(TOKENS + 1, POSITIONS, TOKENS, generator=draw, dtype=torch.float64, requires_grad=True)


def enumerate_by_order(theta: torch.Tensor, order_chances: tuple[float, float]):
    """All trajectories: (chance, [log-probability of step 0, of step 1], reward, first position)."""
    rows = []
    for first, chance in enumerate(order_chances):
        for one, two in itertools.product(range(TOKENS), repeat=2):
            if chance == 0:
                continue
            second = 1 - first
            steps = [
                torch.log_softmax(theta[TOKENS, first], -1)[one],
                torch.log_softmax(theta[one, second], -1)[two],
            ]
            completion = (one, two) if first == 0 else (two, one)
            rows.append((chance * torch.exp(steps[0] + steps[1]), steps, float(completion in RIGHT), first))
    return rows


def enumerate_by_sampled_confidence(theta: torch.Tensor):
    """LLaDA's order: both positions are sampled, the likelier token is kept and the other drawn again."""
    rows = []
    start = torch.log_softmax(theta[TOKENS], -1)
    for sampled in itertools.product(range(TOKENS), repeat=2):
        chance = torch.exp(start[0, sampled[0]] + start[1, sampled[1]])
        first = int(start[1, sampled[1]] > start[0, sampled[0]])
        for two in range(TOKENS):
            steps = [start[first, sampled[first]], torch.log_softmax(theta[sampled[first], 1 - first], -1)[two]]
            completion = (sampled[0], two) if first == 0 else (two, sampled[1])
            rows.append((chance * torch.exp(steps[1]), steps, float(completion in RIGHT), first))
    return rows


def progress_of(rows) -> torch.Tensor:
    """tau of both steps, known before their tokens: the second depends on which position came first."""
    return torch.tensor([[0.1, 0.6 if first == 0 else 0.9] for *_, first in rows], dtype=torch.float64)


def expected_estimate(rows, theta, schedule, group_size) -> torch.Tensor:
    """E[1/G sum_i sum_t A_it grad log pi_t], every group enumerated."""
    chance_N = torch.stack([row[0] for row in rows]).detach()
    logp_NL = torch.stack([torch.stack(row[1]) for row in rows])
    reward_N = torch.tensor([row[2] for row in rows], dtype=torch.float64)
    index_PG = torch.cartesian_prod(*[torch.arange(len(rows))] * group_size)
    tau_PGL = progress_of(rows)[index_PG]
    made = stepwise_advantages(reward_N[index_PG], tau_PGL, schedule, mask_PGL=torch.ones_like(tau_PGL).bool())
    estimate_P = (made.values_PGL * logp_NL[index_PG]).sum(2).mean(1)
    return torch.autograd.grad((chance_N[index_PG].prod(1) * estimate_P).sum(), theta, retain_graph=True)[0]


def stated(rows, theta, scale_NL) -> torch.Tensor:
    """sum_t E[scale (R - p) grad log pi_t]."""
    chance_N = torch.stack([row[0] for row in rows]).detach()
    logp_NL = torch.stack([torch.stack(row[1]) for row in rows])
    reward_N = torch.tensor([row[2] for row in rows], dtype=torch.float64)
    p = float((chance_N * reward_N).sum())
    weight_NL = (chance_N * (reward_N - p)).unsqueeze(1) * scale_NL(p)
    return torch.autograd.grad((weight_NL * logp_NL).sum(), theta, retain_graph=True)[0]


def finite_scale(rows, schedule, group_size):
    """c_G(p, b(s_t)) of every trajectory's steps; b may look at the group's K/G."""
    taus = progress_of(rows)

    def scale(p: float) -> torch.Tensor:
        return torch.tensor(
            [[float(finite_group_scale(p, lambda rate, tau=tau: schedule(tau, rate).expand_as(rate), group_size))
              for tau in row] for row in taus.tolist()], dtype=torch.float64,
        )  # fmt: skip

    return scale


SCHEDULES = {
    "centred": ConstantSchedule(0.0),
    "constant": ConstantSchedule(3.0),
    "decreasing": LinearSchedule(4.0, -1.0),
    "increasing": PowerSchedule(-2.0, 5.0, gamma=0.7),
    "by pass rate": PassRateSchedule(0.5, LinearSchedule(4.0, 0.0), LinearSchedule(-1.0, 3.0)),
}


@pytest.mark.parametrize("order_chances", [(1.0, 0.0), (0.3, 0.7)], ids=["fixed order", "random order"])
@pytest.mark.parametrize("group_size", [2, 3])
@pytest.mark.parametrize("name", SCHEDULES)
def test_expected_gradient_is_a_positive_per_step_preconditioning(name, group_size, order_chances):
    theta, schedule = logits(), SCHEDULES[name]
    rows = enumerate_by_order(theta, order_chances)
    found = expected_estimate(rows, theta, schedule, group_size)
    wanted = stated(rows, theta, finite_scale(rows, schedule, group_size))
    assert float(wanted.abs().max()) > 1e-3
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-13)


def test_centred_is_the_policy_gradient_of_the_pass_rate():
    theta = logits()
    rows = enumerate_by_order(theta, (0.3, 0.7))
    pass_rate = sum(row[0] * row[2] for row in rows)
    wanted = torch.autograd.grad(pass_rate, theta, retain_graph=True)[0] * (1 - 1 / 3)
    found = expected_estimate(rows, theta, ConstantSchedule(0.0), 3)
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-13)


def test_selection_by_the_sampled_token_breaks_it():
    theta = logits()
    rows = enumerate_by_sampled_confidence(theta)
    assert float(sum(row[0].detach() for row in rows)) == pytest.approx(1.0)
    pass_rate = sum(row[0] * row[2] for row in rows)
    true = torch.autograd.grad(pass_rate, theta, retain_graph=True)[0] * (1 - 1 / 2)
    found = expected_estimate(rows, theta, ConstantSchedule(0.0), 2)
    assert float((found - true).abs().max()) > 0.03 * float(true.abs().max())
    score = torch.autograd.grad(sum(row[0].detach() * row[1][0] for row in rows), theta, retain_graph=True)[
        0
    ]  # E[grad log pi(revealed)], zero for every exact rule
    assert float(score.abs().max()) > 1e-2
