"""The exact laboratory: arms follow their *expected* gradient in a world that is enumerated, without sampling noise.

On policy and unclipped, the expected update of groups of G is sum_x sum_t c_G(p_x, t) g_t(x), with
g_t = E[(R - p) grad log pi_t] and c_G(p, t) the binomial mean of the factor that the arm's advantages put on r - K/G in
state t of a group with K right answers (`steprs.risk.expected_factor`). The factors come from `stepwise_advantages`
itself, one made-up group for each K, so schedules, controls and bases are the ones that training uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..advantages import stepwise_advantages
from ..errors import ArgumentError
from ..risk import expected_factor
from .arms import CENTRED, Arm
from .sheet import Sheet
from .weights import checked_group_size
from .world import Prompts, Tree, World, answer_logprobs, make_world, state_gradients

ADAM_BETAS, ADAM_EPS = (0.9, 0.95), 1e-8
DEFAULT_RATES = {"adam": 0.05, "norm": 0.3}
CHECKPOINTS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class LabSettings:
    """A laboratory. `steprs theory lab` sets every field by its name.

    Attributes:
        prompts: P to learn from, and as many held-out ones.
        vocabulary, states: V tokens in each of S states; V^S answers.
        features: D of a prompt; parameters are shared through them.
        right_answers: fewest and most right answers of a prompt.
        instances: independent worlds; standard errors are over them.
        capability: mean pass rate of the base policy on the training prompts of every instance.
        group_size: G.
        updates: optimiser steps, each on all prompts.
        optimiser: "adam", or "norm": steps whose norm is the learning rate, whatever the gradient's size.
        learning_rate: None takes .05 for adam and .3 for norm.
        tries: k of pass@k and of distinct right answers.
        seed: of the worlds.
    """

    prompts: int = 48
    vocabulary: int = 2
    states: int = 6
    features: int = 8
    right_answers: tuple[int, int] = (2, 6)
    instances: int = 12
    capability: float = 0.06
    group_size: int = 16
    updates: int = 60
    optimiser: Literal["adam", "norm"] = "adam"
    learning_rate: float | None = None
    tries: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        checked_group_size(self.group_size)
        for name, least in (("prompts", 1), ("features", 1), ("instances", 2), ("updates", 0), ("tries", 1)):
            if getattr(self, name) < least:
                raise ArgumentError(f"{name} is {getattr(self, name)}; the laboratory needs {name} >= {least}")
        if self.optimiser not in DEFAULT_RATES:
            raise ArgumentError(f"optimiser is {self.optimiser!r}; allowed: adam, norm")

    def world(self) -> World:
        """The worlds of these settings."""
        return make_world(
            Tree(vocabulary=self.vocabulary, states=self.states), instances=self.instances, prompts=self.prompts,
            features=self.features, right_answers=self.right_answers, capability=self.capability, seed=self.seed,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class LabResult:
    """What the arms reached on held-out prompts.

    Attributes:
        settings: of the laboratory.
        labels: E arms; the first is centred GRPO.
        measures: pass@1, pass@k, distinct right answers among k.
        updates: when they were measured, 0 first and the last update last.
        values_EUQI: float64 [arms, times, measures, instances], means over held-out prompts.
    """

    settings: LabSettings
    labels: tuple[str, ...]
    measures: tuple[str, ...]
    updates: tuple[int, ...]
    values_EUQI: Tensor

    def differences(self) -> tuple[Tensor, Tensor]:
        """Mean over instances of (arm - centred) after the last update, and its standard error; each [E, Q]."""
        last_EQI = self.values_EUQI[:, -1]
        gap_EQI = last_EQI - last_EQI[:1]
        return gap_EQI.mean(-1), gap_EQI.std(-1, correction=1) / gap_EQI.shape[-1] ** 0.5

    def sheet(self) -> Sheet:
        """One row a measure and arm."""
        s, (gap_EQ, error_EQ) = self.settings, self.differences()
        last_EQ, first_Q = self.values_EUQI[:, -1].mean(-1), self.values_EUQI[0, 0].mean(-1)
        rows: list[tuple[float | str | None, ...]] = []
        for q, measure in enumerate(self.measures):
            rows.append((measure, "base policy", float(first_Q[q]), None, None))
            for e, label in enumerate(self.labels):
                compared = (float(gap_EQ[e, q]), float(error_EQ[e, q])) if e else (None, None)
                rows.append((measure, label, float(last_EQ[e, q]), *compared))
        return Sheet(
            title=f"laboratory: held-out prompts after {s.updates} exact updates",
            columns=("measure", "arm", "value", "minus centred", "SE"),
            rows=tuple(rows),
            signed=("minus centred",),
            notes=(
                f"{s.instances} instances x {s.prompts} prompts, {s.vocabulary}^{s.states} answers, "
                f"{s.right_answers[0]} to {s.right_answers[1]} of them right, base pass rate {s.capability:g}, "
                f"groups of {s.group_size}, {s.optimiser} at {learning_rate_of(s):g}, seed {s.seed}; "
                "SE: standard error of the difference over instances",
            ),
        )


def run_lab(
    arms: Sequence[Arm], settings: LabSettings | None = None, *, advance: Callable[[str], None] | None = None
) -> LabResult:
    """Follow centred GRPO and every arm from the same base policies.

    Args:
        arms: what is compared with centred GRPO, which is added in front.
        settings: of the laboratory; None is the defaults.
        advance: called with an arm's label when it is done.

    Returns:
        A result; about a third of a second of work an arm at the default size.

    Raises:
        ArgumentError: settings that fit no world.
        CalibrationError: a `constant` control that no coefficient can match.

    >>> from steprs.theory import parse_arm
    >>> small = LabSettings(prompts=8, states=4, features=3, right_answers=(1, 3), instances=2, updates=5)
    >>> result = run_lab([parse_arm("constant 0")], small)
    >>> result.labels, bool((result.values_EUQI[0] == result.values_EUQI[1]).all())
    (('centred', 'constant 0'), True)
    """
    settings = settings or LabSettings()
    world = settings.world()
    followed = [CENTRED, *(arm for arm in arms if arm != CENTRED)]
    every = max(1, settings.updates // CHECKPOINTS)
    times = tuple(u for u in range(settings.updates + 1) if u % every == 0 or u == settings.updates)
    values = []
    for arm in followed:
        values.append(_follow(arm, world, settings, times))
        if advance is not None:
            advance(arm.label)
    k = settings.tries
    return LabResult(
        settings=settings,
        labels=tuple(arm.label for arm in followed),
        measures=("pass@1", f"pass@{k}", f"distinct right@{k}"),
        updates=times,
        values_EUQI=torch.stack(values),
    )


def group_factors(arm: Arm, group_size: int, states: int, reference_pass_rate: float) -> Tensor:
    """The factor on r - K/G in each state of a group with K = 1 .. G-1 right answers, float64 [S, G-1].

    Args:
        arm: schedule, control and base.
        group_size: G.
        states: S; state t has progress t / (S - 1).
        reference_pass_rate: p0, where the control `constant` is matched.

    >>> from steprs.theory import parse_arm
    >>> group_factors(parse_arm("linear 2 0"), 4, 2, 0.25)[0].tolist()  # c(K/4, 2)
    [1.22..., 0.76..., 0.55...]
    """
    count_K = torch.arange(1, group_size)
    rewards_KG = (torch.arange(group_size) < count_K[:, None]).double()
    shape = (group_size - 1, group_size, states)
    tau_S = torch.arange(states, dtype=torch.float64) / max(1, states - 1)
    made = stepwise_advantages(
        rewards_KG, tau_S.expand(shape), arm.schedule,
        mask_PGL=torch.ones(shape, dtype=torch.bool), control=arm.control, base=arm.base,
        reference_pass_rate=reference_pass_rate if arm.control == "constant" else None,
    )  # fmt: skip
    # Member 0 is right in every group.
    return (made.values_PGL[:, 0] / (1 - count_K.double() / group_size)[:, None]).T.contiguous()


def expected_update(parameters_IDM: Tensor, prompts: Prompts, tree: Tree, factors_SK: Tensor) -> Tensor:
    """Mean over prompts of sum_t c_G(p, t) g_t, as a gradient of the parameters to *ascend*, [I, D, M]."""
    rates_IP, gradients = state_gradients(parameters_IDM, prompts, tree)
    scale_IPS = expected_factor(rates_IP.unsqueeze(-1), factors_SK)
    weighted_IPM = torch.cat([scale_IPS[..., t : t + 1] * g_t for t, g_t in enumerate(gradients)], -1)
    return prompts.features_IPD.mT @ weighted_IPM / rates_IP.shape[1]


def held_out_measures(parameters_IDM: Tensor, prompts: Prompts, tree: Tree, tries: int) -> Tensor:
    """pass@1, pass@k = 1 - (1 - p)^k and distinct right@k = sum_a [1 - (1 - pi_a)^k], means over prompts, [3, I]."""
    right_IPA = answer_logprobs(parameters_IDM, prompts.features_IPD, tree).exp() * prompts.right_IPA
    rates_IP = right_IPA.sum(-1)
    found_IP = (1 - (1 - right_IPA).pow(tries)).sum(-1)
    return torch.stack([rates_IP, 1 - (1 - rates_IP).pow(tries), found_IP]).mean(-1)


def learning_rate_of(settings: LabSettings) -> float:
    """The learning rate, or the optimiser's default one."""
    return DEFAULT_RATES[settings.optimiser] if settings.learning_rate is None else settings.learning_rate


def _follow(arm: Arm, world: World, settings: LabSettings, times: Sequence[int]) -> Tensor:
    """Held-out measures at the given updates, [U, Q, I]."""
    factors_SK = group_factors(arm, settings.group_size, settings.states, settings.capability)
    parameters = world.base_IDM.clone()
    mean, square = torch.zeros_like(parameters), torch.zeros_like(parameters)
    rate, (keep, keep_square) = learning_rate_of(settings), ADAM_BETAS
    measured = []
    for update in range(settings.updates + 1):
        if update:
            gradient = expected_update(parameters, world.train, world.tree, factors_SK)
            if settings.optimiser == "adam":
                mean = keep * mean + (1 - keep) * gradient
                square = keep_square * square + (1 - keep_square) * gradient.square()
                size = (square / (1 - keep_square**update)).sqrt() + ADAM_EPS
                parameters = parameters + rate * mean / (1 - keep**update) / size
            else:
                norm_I = gradient.flatten(1).norm(dim=1)[:, None, None]
                parameters = parameters + rate * gradient / norm_I.clamp(min=ADAM_EPS)
        if update in times:
            measured.append(held_out_measures(parameters, world.held_out, world.tree, settings.tries))
    return torch.stack(measured)
