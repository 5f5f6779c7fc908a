"""The learning rate is a function of the update; a bad gradient changes nothing and is named."""

import math
from types import SimpleNamespace

import pytest
import torch

from steprs.errors import NonFiniteError, RunFolderError
from steprs.training.optim import (
    apply_update,
    learning_rate_at,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
)
from steprs.training.settings import OptimSettings


def settings(**changes):
    return OptimSettings(
        **{
            "learning_rate": 1.0,
            "schedule": "linear",
            "warmup_updates": 2,
            "betas": (0.9, 0.95),
            "weight_decay": 0.5,
            "max_grad_norm": 1.0,
            **changes,
        }
    )


def small_policy(seed=0):
    generator = torch.Generator().manual_seed(seed)
    module = torch.nn.Linear(3, 2)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return SimpleNamespace(
        module=module,
        parameters=lambda: list(module.parameters()),
        named_parameters=lambda: list(module.named_parameters()),
    )


def test_linear_rate_by_hand():
    rates = [learning_rate_at(update, 6, settings()) for update in range(1, 7)]
    assert rates == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]


def test_cosine_rate_by_hand():
    rates = [learning_rate_at(update, 6, settings(schedule="cosine")) for update in range(3, 7)]
    assert rates == pytest.approx([0.5 * (1 - math.cos(math.pi * left)) for left in (1.0, 0.75, 0.5, 0.25)])


def test_constant_rate_after_warmup():
    rates = [learning_rate_at(update, 5, settings(schedule="constant")) for update in range(1, 6)]
    assert rates == [0.5, 1.0, 1.0, 1.0, 1.0]


def test_matrices_decay_and_vectors_do_not():
    policy = small_policy()
    optimizer = make_optimizer(policy, settings())
    before = [weight.detach().clone() for weight in policy.parameters()]
    for weight in policy.parameters():
        weight.grad = torch.zeros_like(weight)
    apply_update(policy, optimizer, learning_rate=0.1, max_grad_norm=1.0, update=1)
    matrix, bias = policy.parameters()
    torch.testing.assert_close(matrix, before[0] * (1 - 0.1 * 0.5), rtol=1e-6, atol=0)
    assert torch.equal(bias, before[1])


def test_gradient_is_clipped_to_its_norm_and_the_norm_before_is_returned():
    policy = small_policy()
    optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    before = [weight.detach().clone() for weight in policy.parameters()]
    for weight in policy.parameters():
        weight.grad = torch.full_like(weight, 2.0)
    norm = apply_update(policy, optimizer, learning_rate=1.0, max_grad_norm=0.5, update=1)
    assert norm == pytest.approx(2.0 * math.sqrt(8))
    moved = torch.cat([(b - w).detach().flatten() for b, w in zip(before, policy.parameters(), strict=True)])
    assert float(moved.norm()) == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_gradient_is_named_and_changes_nothing(bad):
    policy = small_policy()
    optimizer = make_optimizer(policy, settings())
    before = [weight.detach().clone() for weight in policy.parameters()]
    matrix, bias = policy.parameters()
    matrix.grad, bias.grad = torch.zeros_like(matrix), torch.full_like(bias, bad)
    with pytest.raises(NonFiniteError, match="update 7: the gradient of bias is not finite"):
        apply_update(policy, optimizer, learning_rate=0.1, max_grad_norm=1.0, update=7)
    assert all(torch.equal(b, w) for b, w in zip(before, policy.parameters(), strict=True))


def test_optimiser_state_goes_through_named_tensors_bit_for_bit():
    def step(policy, optimizer, seed):
        generator = torch.Generator().manual_seed(seed)
        for weight in policy.parameters():
            weight.grad = torch.randn(weight.shape, generator=generator)
        apply_update(policy, optimizer, learning_rate=0.1, max_grad_norm=1.0, update=1)

    through, straight = small_policy(), small_policy()
    first, second = make_optimizer(through, settings()), make_optimizer(straight, settings())
    step(through, first, 1)
    step(straight, second, 1)
    saved = optimizer_tensors(through, first)
    assert sorted(saved) == sorted(f"{n}/{s}" for n in ("weight", "bias") for s in ("step", "exp_avg", "exp_avg_sq"))
    fresh = make_optimizer(through, settings())
    load_optimizer_tensors(through, fresh, saved)
    step(through, fresh, 2)
    step(straight, second, 2)
    assert all(torch.equal(a, b) for a, b in zip(through.parameters(), straight.parameters(), strict=True))


def test_state_of_another_policy_is_refused():
    policy = small_policy()
    with pytest.raises(RunFolderError, match="'head'"):
        load_optimizer_tensors(policy, make_optimizer(policy, settings()), {"head/step": torch.tensor(1.0)})
