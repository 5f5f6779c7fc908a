"""Unmasking rules: what they reveal first, how many, and whether selection is exact (by enumeration)."""

from __future__ import annotations

import itertools

import pytest
import torch

from steprs.errors import SamplingError
from steprs.randomness import uniforms
from steprs.rollout.unmasking import RULES, choose, confidences, get_rule

from .helpers import THRESHOLDS


def expected_gradient_of_revealed_logprob(name: str, minimum: int, seed: int = 0) -> torch.Tensor:
    """sum over all draws at 3 open positions of p(draws) * grad log p(the revealed ones)."""
    words, width = 4, 3
    generator = torch.Generator().manual_seed(seed)
    logits_WV = (1.5 * torch.randn(width, words, generator=generator, dtype=torch.float64)).requires_grad_()
    draws_RW = torch.tensor(list(itertools.product(range(words), repeat=width)))
    rows = draws_RW.shape[0]
    rule = get_rule(name, THRESHOLDS.get(name))
    open_RW = torch.ones(rows, width, dtype=torch.bool)
    if rule.order is not None:
        noise_RW = uniforms(torch.tensor([7]), 0, torch.arange(width), 1).expand(rows, -1)
        confidence_RW = rule.order(noise_RW, torch.arange(width))
    else:
        logits_NV = logits_WV.detach().repeat(rows, 1)
        confidence_RW = confidences(rule, logits_NV, draws_RW.flatten(), ()).reshape(rows, width)
    reveal_RW = choose(confidence_RW, open_RW, minimum, rule, THRESHOLDS.get(name))
    logprobs_RW = torch.log_softmax(logits_WV, -1)[torch.arange(width), draws_RW]
    weight_R = logprobs_RW.sum(1).exp().detach()
    return torch.autograd.grad((weight_R * (logprobs_RW * reveal_RW).sum(1)).sum(), logits_WV)[0]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("minimum", [1, 2])
def test_exact_means_no_selection_bias(name, minimum):
    """E[grad log pi(revealed)] is zero iff the rule calls itself exact."""
    largest = float(expected_gradient_of_revealed_logprob(name, minimum).abs().max())
    if RULES[name].exact:
        assert largest < 1e-12
    else:
        assert largest > 1e-2


def test_low_confidence_is_exact_once_everything_is_revealed():
    assert float(expected_gradient_of_revealed_logprob("low_confidence", 3).abs().max()) < 1e-12


def one_row(name: str, logits_WV: torch.Tensor, ids_W: torch.Tensor, minimum: int = 1, threshold=None) -> list[int]:
    rule = get_rule(name, threshold)
    confidence_RW = confidences(rule, logits_WV, ids_W, ())[None]
    open_RW = torch.ones_like(confidence_RW, dtype=torch.bool)
    return choose(confidence_RW, open_RW, minimum, rule, threshold)[0].nonzero().flatten().tolist()


PROBS = torch.tensor([[0.70, 0.15, 0.15], [0.60, 0.40, 0.00], [0.34, 0.33, 0.33], [0.05, 0.90, 0.05]])
IDS = torch.tensor([1, 0, 0, 2])


@pytest.mark.parametrize(
    ("name", "count", "expected"),
    [
        ("low_confidence", 1, [1]),  # p of the drawn tokens: .15 .60 .34 .05
        ("low_confidence", 2, [1, 2]),
        ("max_probability", 1, [3]),
        ("max_probability", 2, [0, 3]),
        ("entropy", 2, [1, 3]),  # entropies: .819 .673 1.098 .394
        ("entropy", 3, [0, 1, 3]),
    ],
)
def test_order_of_scheduled_rules(name, count, expected):
    assert one_row(name, PROBS.log(), IDS, count) == expected


@pytest.mark.parametrize(
    ("name", "threshold", "expected"),
    [
        ("confidence_threshold", 0.65, [0, 3]),
        ("confidence_threshold", 0.95, [3]),  # nothing reaches it: still one
        ("confidence_threshold", 0.0, [0, 1, 2, 3]),
        ("entropy_bound", 0.0, [3]),
        ("entropy_bound", 0.40, [1, 3]),  # .394 + .673 less .673 = .394
        ("entropy_bound", 1.00, [1, 3]),  # the next would make 1.067
        ("entropy_bound", 1.10, [0, 1, 3]),
        ("entropy_bound", 5.00, [0, 1, 2, 3]),
    ],
)
def test_number_revealed_by_dynamic_rules(name, threshold, expected):
    assert one_row(name, PROBS.log(), IDS, 1, threshold) == expected


def test_ties_go_to_the_left_and_closed_positions_are_never_chosen():
    rule = get_rule("max_probability")
    confidence = torch.tensor([[0.5, 0.5, 0.5, 0.5]])
    open_RW = torch.tensor([[False, True, True, True]])
    assert choose(confidence, open_RW, 2, rule, None).tolist() == [[False, True, True, False]]
    assert choose(confidence, open_RW, 4, rule, None).tolist() == open_RW.tolist()


def test_rows_may_ask_for_different_numbers():
    rule = get_rule("max_probability")
    confidence = torch.tensor([[0.1, 0.9, 0.5]]).expand(3, -1)
    chosen = choose(confidence, torch.ones(3, 3, dtype=torch.bool), torch.tensor([0, 1, 2]), rule, None)
    assert chosen.tolist() == [[False, False, False], [False, True, False], [False, True, True]]


@pytest.mark.parametrize(
    ("name", "threshold", "message"),
    [
        ("low_confidense", None, "Did you mean 'low_confidence'"),
        ("confidence_threshold", None, "needs a threshold from 0.0 to 1.0; given: None"),
        ("confidence_threshold", 1.5, "given: 1.5"),
        ("entropy_bound", -0.1, "given: -0.1"),
        ("max_probability", 0.5, "takes no threshold"),
    ],
)
def test_refused_settings_say_what_is_allowed(name, threshold, message):
    with pytest.raises(SamplingError, match=message):
        get_rule(name, threshold)
