"""A masked decision process small enough to enumerate: its policy, its pass rates and its exact gradients.

An answer is a sequence of S tokens out of V, revealed in a fixed order over S denoising states, so that a state is the
revealed prefix and pi(answer | prompt) is a product of softmaxes. Their logits are linear in the prompt's features with
parameters that all prompts share: logits = features @ parameters. A hidden teacher of the same form says which answers
are right: its likeliest ones. Nothing is sampled anywhere; expectations are sums over all V^S answers.

Axis letters beside those of `steprs.types`: I instances (independent worlds), D features, A = V^S answers,
M = V (V^S - 1) / (V - 1) logits, state by state, prefix by prefix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..randomness import row_keys, uniforms


@dataclass(frozen=True, kw_only=True, slots=True)
class Tree:
    """V tokens in each of S states; prefixes of t tokens are numbered 0 .. V^t - 1, first token first."""

    vocabulary: int
    states: int

    def __post_init__(self) -> None:
        if self.vocabulary < 2 or not 1 <= self.states <= 12 or self.answers > 4096:
            raise ArgumentError(
                f"vocabulary {self.vocabulary} and states {self.states} make no tree; give vocabulary >= 2, "
                "states >= 1 and vocabulary^states at most 4096 answers"
            )

    @property
    def answers(self) -> int:
        """A, the number of different answers."""
        return int(self.vocabulary**self.states)

    @property
    def sizes(self) -> list[int]:
        """Logits of each state."""
        return [self.vocabulary ** (state + 1) for state in range(self.states)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompts:
    """P prompts of each instance: float64 features [I, P, D] and right answers, 1 or 0, [I, P, A]."""

    features_IPD: Tensor
    right_IPA: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """Prompts to learn from, held-out prompts of the same teacher, and the parameters of the base policy [I, D, M]."""

    tree: Tree
    train: Prompts
    held_out: Prompts
    base_IDM: Tensor


def state_logprobs(parameters_IDM: Tensor, features_IPD: Tensor, tree: Tree) -> list[Tensor]:
    """log pi(token | prefix, prompt) of each state t, [I, P, V^t, V]."""
    logits_IPM = features_IPD @ parameters_IDM
    return [
        torch.log_softmax(part.unflatten(-1, (-1, tree.vocabulary)), -1) for part in logits_IPM.split(tree.sizes, -1)
    ]


def answer_logprobs(parameters_IDM: Tensor, features_IPD: Tensor, tree: Tree) -> Tensor:
    """log pi(answer | prompt), [I, P, A]."""
    first, *rest = state_logprobs(parameters_IDM, features_IPD, tree)
    whole_IPA = first.flatten(-2)
    for logprobs in rest:
        whole_IPA = (whole_IPA.unsqueeze(-1) + logprobs).flatten(-2)
    return whole_IPA


def pass_rates(parameters_IDM: Tensor, prompts: Prompts, tree: Tree) -> Tensor:
    """p of each prompt, [I, P]."""
    return (answer_logprobs(parameters_IDM, prompts.features_IPD, tree).exp() * prompts.right_IPA).sum(-1)


def state_gradients(parameters_IDM: Tensor, prompts: Prompts, tree: Tree) -> tuple[Tensor, list[Tensor]]:
    """Pass rates [I, P], and for each state the gradient g_t = E[(R - p) grad log pi_t] in its logits [I, P, V^(t+1)].

    With Q(u) the pass rate from prefix u on, g_t = pi(u) pi(v | u) (Q(uv) - Q(u)): the constant p drops out, since the
    expected score of a softmax is 0. One pass down for pi(u), one up for Q.
    """
    logprobs = state_logprobs(parameters_IDM, prompts.features_IPD, tree)
    reach = [torch.ones_like(logprobs[0][..., 0])]
    for log_pi in logprobs[:-1]:
        reach.append((reach[-1].unsqueeze(-1) * log_pi.exp()).flatten(-2))
    value = prompts.right_IPA
    gradients: list[Tensor] = []
    for log_pi, reached in zip(reversed(logprobs), reversed(reach), strict=True):
        pi = log_pi.exp()
        after = value.unflatten(-1, (-1, tree.vocabulary))
        value = (pi * after).sum(-1)
        gradients.append((reached.unsqueeze(-1) * pi * (after - value.unsqueeze(-1))).flatten(-2))
    return value.squeeze(-1), gradients[::-1]


def make_world(
    tree: Tree,
    *,
    instances: int,
    prompts: int,
    features: int,
    right_answers: tuple[int, int],
    capability: float,
    seed: int,
) -> World:
    """Independent worlds, each with a teacher, prompts and a base policy of the capability asked for.

    Features are a constant and normal numbers, over sqrt(D). A prompt has a random number of right answers, the
    teacher's likeliest. The base policy is a random one plus as much of the teacher as gives the capability.

    Args:
        tree: tokens and states.
        instances: I.
        prompts: P to learn from, and as many held-out ones.
        features: D.
        right_answers: fewest and most right answers of a prompt.
        capability: mean pass rate of the base policy over the training prompts, in every instance.
        seed: of everything random.

    Raises:
        ArgumentError: right answers that do not fit, or a capability that no mixture reaches.
    """
    low, high = right_answers
    if not 1 <= low <= high < tree.answers:
        raise ArgumentError(f"right answers {low} to {high} do not fit; give 1 <= fewest <= most < {tree.answers}")
    width = sum(tree.sizes)
    teacher_IDM = _normals(seed, "lab teacher", instances, (features, width))
    random_IDM = _normals(seed, "lab base", instances, (features, width))
    splits = []
    for name in ("train", "held out"):
        features_IPD = _normals(seed, f"lab features, {name}", instances, (prompts, features))
        features_IPD[..., 0] = 1.0
        features_IPD /= math.sqrt(features)
        order_IPA = answer_logprobs(teacher_IDM, features_IPD, tree).argsort(dim=-1, descending=True, stable=True)
        rank_IPA = order_IPA.argsort(dim=-1)
        count_IP = low + (_uniforms(seed, f"lab right answers, {name}", instances, prompts) * (high - low + 1)).long()
        right_IPA = (rank_IPA < count_IP.unsqueeze(-1)).double()
        splits.append(Prompts(features_IPD=features_IPD, right_IPA=right_IPA))
    base_IDM = _base_policy(teacher_IDM, random_IDM, splits[0], tree, capability)
    return World(tree=tree, train=splits[0], held_out=splits[1], base_IDM=base_IDM)


def _base_policy(teacher_IDM: Tensor, random_IDM: Tensor, train: Prompts, tree: Tree, capability: float) -> Tensor:
    """random + x teacher, with x of each instance found by bisection on its mean pass rate."""
    low_I, high_I = (random_IDM.new_full((len(random_IDM), 1, 1), bound) for bound in (-10.0, 10.0))

    def capability_of(share_I: Tensor) -> Tensor:
        return pass_rates(random_IDM + share_I * teacher_IDM, train, tree).mean(-1)[:, None, None]

    least, most = float(capability_of(low_I).max()), float(capability_of(high_I).min())
    if not least < capability < most:
        raise ArgumentError(
            f"capability {capability} cannot be had; with these right answers give one in ({least:.3g}, {most:.3g})"
        )
    for _ in range(60):
        middle_I = (low_I + high_I) / 2
        above_I = capability_of(middle_I) > capability
        low_I, high_I = torch.where(above_I, low_I, middle_I), torch.where(above_I, middle_I, high_I)
    return random_IDM + (low_I + high_I) / 2 * teacher_IDM


def _uniforms(seed: int, purpose: str, instances: int, count: int) -> Tensor:
    """Numbers in (0, 1) keyed by instance, [I, count]: more instances leave the first ones as they were."""
    index_I = torch.arange(instances)
    return uniforms(row_keys(seed, purpose, 0, index_I, torch.zeros_like(index_I)), 0, torch.arange(count))


def _normals(seed: int, purpose: str, instances: int, shape: tuple[int, int]) -> Tensor:
    """Standard normal numbers keyed by instance, [I, *shape]."""
    return torch.special.ndtri(_uniforms(seed, purpose, instances, math.prod(shape))).view(instances, *shape)
