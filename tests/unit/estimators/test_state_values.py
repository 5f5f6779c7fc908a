"""Per-state baselines and gains: identities of their definitions, and loops beside the tensors."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import pytest
import torch

from steprs.errors import NormalisationError
from steprs.estimators import get_estimator
from steprs.estimators.pipeline import estimate
from steprs.estimators.states import gains
from steprs.estimators.vsrm import spread_back
from steprs.testing.estimators import example_batch

from .uneven import G, P, S, advantages, by_token, close, group, mean, uneven

SEEDS = [0, 1, 2]


def reward(batch, p, i, t):
    """r_{i,t}; t from the last state on gives the rollout's own."""
    return float(batch.state_rewards_PGS[p, i, t])


def there(batch, p, t):
    """Rollouts of a group that have a state t."""
    return [j for j in group(batch, p) if t < batch.num_states_PG[p, j]]


# --- EGSPO-SA ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_egspo_sa_without_its_coefficient_is_centred(seed):
    batch = uneven(seed)
    assert torch.equal(advantages(batch, "egspo-sa", coefficient=0.0), advantages(batch, "centred"))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("divide", [True, False])
def test_egspo_sa_against_its_returns(seed, divide):
    batch, lam = uneven(seed, binary=False), 0.5

    def returned(p, i, t):
        final = float(batch.rewards_PG[p, i])
        return (final + lam * (final - reward(batch, p, i, t))) / (1 + lam if divide else 1)

    wanted = by_token(batch, lambda p, i, t: returned(p, i, t) - mean([returned(p, j, t) for j in group(batch, p)]))
    assert close(advantages(batch, "egspo-sa", coefficient=lam, divide=divide), wanted)


def test_egspo_sa_with_states_is_its_product_with_egspo():
    batch = uneven(1)
    kept = advantages(batch, "egspo", states=2) != 0
    alive = advantages(batch, "centred") != 0
    whole, found = advantages(batch, "egspo-sa"), advantages(batch, "egspo-sa", states=2)
    assert torch.equal(found[alive], (whole * kept)[alive]) and bool((found != whole).any())


# --- Gains ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_gains_telescope_to_the_reward_less_the_first_value(seed):
    batch = uneven(seed, binary=False)
    first = batch.state_rewards_PGS[..., 0]
    assert close(gains(batch).sum(-1), batch.state_rewards_PGS[..., -1] - first)


@pytest.mark.parametrize("seed", SEEDS)
def test_gamma_spans_the_gain_and_what_is_still_missing(seed):
    batch = uneven(seed, binary=False)

    def gain(p, i, t):
        return reward(batch, p, i, t + 1) - reward(batch, p, i, t)

    assert close(advantages(batch, "gain", norm="none", gamma=0.0), by_token(batch, gain))
    missing = by_token(batch, lambda p, i, t: reward(batch, p, i, S) - reward(batch, p, i, t))
    assert close(advantages(batch, "gain", norm="none", gamma=1.0), missing)

    def to_go(p, i, t):
        return sum(0.5 ** (k - t) * gain(p, i, k) for k in range(t, int(batch.num_states_PG[p, i])))

    assert close(advantages(batch, "gain", norm="none", gamma=0.5), by_token(batch, to_go))


def z(values, value):
    """Standard score with ddof 1; nothing where there is one value."""
    if len(values) < 2:
        return 0.0
    std = (sum((v - mean(values)) ** 2 for v in values) / (len(values) - 1)) ** 0.5
    return (value - mean(values)) / (std + 1e-4)


@pytest.mark.parametrize("seed", SEEDS)
def test_joint_and_state_norms_against_loops(seed):
    batch = uneven(seed)

    def gain(p, i, t):
        return reward(batch, p, i, t + 1) - reward(batch, p, i, t)

    def everywhere(p):
        return [gain(p, j, t) for j in group(batch, p) for t in range(int(batch.num_states_PG[p, j]))]

    joint = by_token(batch, lambda p, i, t: z(everywhere(p), gain(p, i, t)))
    assert close(advantages(batch, "gain"), joint)
    at_state = by_token(batch, lambda p, i, t: z([gain(p, j, t) for j in there(batch, p, t)], gain(p, i, t)))
    assert close(advantages(batch, "gain", norm="state"), at_state)


@pytest.mark.parametrize("name", ["gain", "vsrm"])
def test_joint_norm_sums_to_zero_over_rollouts_and_states_together(name):
    batch = example_batch([[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]], length=8, seed=3)
    values = advantages(batch, name)
    assert values.sum((1, 2)).abs().max() < 1e-9 < values.sum(1).abs().max()
    assert advantages(batch, name, norm="state").sum(1).abs().max() < 1e-9


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("states", [None, 2])
def test_mdpo_against_loops_over_several_prompts(seed, states):
    batch = uneven(seed)

    @functools.cache
    def raw(p, i, t):
        n = int(batch.num_states_PG[p, i])
        later = [reward(batch, p, i, s) for s in range(t + 2, n + 1)] or [reward(batch, p, i, n)]
        return reward(batch, p, i, t + 1) - reward(batch, p, i, t) + 1 + mean(later)

    @functools.cache
    def score(p, i, t):
        return z([raw(p, j, t) for j in there(batch, p, t)], raw(p, i, t))

    @functools.cache
    def kept(p):
        longest = max(int(batch.num_states_PG[p, j]) for j in group(batch, p))
        size = [sum(abs(score(p, j, t)) for j in there(batch, p, t)) for t in range(longest)]
        return sorted(range(longest), key=lambda t: -round(size[t], 9))[: states or longest]

    wanted = by_token(batch, lambda p, i, t: score(p, i, t) if t in kept(p) else 0.0)
    assert close(advantages(batch, "mdpo", states=states), wanted)


def test_mdpo_takes_each_prompt_for_itself():
    batch = uneven(2)
    alone = torch.cat([advantages(batch.prompts(slice(p, p + 1)), "mdpo") for p in range(P)])
    assert close(advantages(batch, "mdpo"), alone)


@pytest.mark.parametrize("lookahead", [0, 1, 4])
def test_vsrm_pays_each_change_to_itself_and_the_idle_states_before_it(lookahead):
    draw = torch.Generator().manual_seed(0)
    gain = torch.randint(-1, 2, (20, 3, 12), generator=draw).double() * (torch.rand(20, 3, 12, generator=draw) < 0.3)
    found = spread_back(gain, 0.7, lookahead)
    for row, paid in zip(gain.flatten(0, 1).tolist(), found.flatten(0, 1).tolist(), strict=True):
        total = 0.0
        for t, change in enumerate(row):
            if change:
                idle = len(list(itertools.takewhile(lambda g: g == 0, reversed(row[:t]))))
                total += change * sum(0.7**m for m in range(min(lookahead, idle) + 1))
            ahead = next((m for m in range(min(lookahead, len(row) - 1 - t) + 1) if row[t + m]), None)
            assert paid[t] == pytest.approx(0.0 if ahead is None else row[t + ahead] * 0.7**ahead)
        assert sum(paid) == pytest.approx(total)


def test_vsrm_without_lookahead_or_norm_is_twice_the_reward_less_the_state():
    batch = uneven(0)
    wanted = by_token(batch, lambda p, i, t: 2 * reward(batch, p, i, S) - reward(batch, p, i, t))
    assert close(advantages(batch, "vsrm", lookahead=0, norm="none"), wanted)


# --- State anchors ----------------------------------------------------------------------------------------------------


def visitors(batch, p, i, t):
    """Rollouts of the group that came through the canvas of rollout i's state t, and in which of their states."""
    key = int(batch.state_keys_PGS[p, i, t])
    return [
        (j, s) for j in group(batch, p) for s in range(int(batch.num_states_PG[p, j]))
        if int(batch.state_keys_PGS[p, j, s]) == key
    ]  # fmt: skip


def returned(batch, gamma, p, j, s):
    return gamma ** (int(batch.num_states_PG[p, j]) - 1 - s) * float(batch.rewards_PG[p, j])


def value(batch, gamma, p, i, t, *, without=False):
    """V of rollout i's state t."""
    others = [(j, s) for j, s in visitors(batch, p, i, t) if not (without and j == i)] or [(i, t)]
    return mean([returned(batch, gamma, p, j, s) for j, s in others])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("without", [False, True])
@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (1.0, 0.0), (0.9, 0.7)])
def test_state_anchor_against_generalised_advantage_estimation(seed, without, gamma, lam):
    batch = uneven(seed)

    def delta(p, i, t):
        last = t == int(batch.num_states_PG[p, i]) - 1
        ahead = float(batch.rewards_PG[p, i]) if last else gamma * value(batch, gamma, p, i, t + 1, without=without)
        return ahead - value(batch, gamma, p, i, t, without=without)

    def gae(p, i, t):
        return sum((gamma * lam) ** (k - t) * delta(p, i, k) for k in range(t, int(batch.num_states_PG[p, i])))

    settings = {"gae_lambda": lam, "gamma": gamma, "leave_one_out": without}
    wanted = by_token(batch, gae)
    assert close(advantages(batch, "state-anchor", episode=0.0, **settings), wanted)
    both = advantages(batch, "state-anchor", omega=0.5, **settings)
    assert close(both, advantages(batch, "centred") + 0.5 * wanted)


@pytest.mark.parametrize("seed", SEEDS)
def test_lambda_one_is_the_reward_less_the_value_of_the_state(seed):
    batch = uneven(seed)
    wanted = by_token(batch, lambda p, i, t: float(batch.rewards_PG[p, i]) - value(batch, 1.0, p, i, t))
    assert close(advantages(batch, "state-anchor", episode=0.0), wanted)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_lambda_zero_is_exactly_zero_once_nothing_is_shared(seed, gamma):
    batch = uneven(seed)
    found = advantages(batch, "state-anchor", episode=0.0, gae_lambda=0.0, gamma=gamma)
    alone = by_token(batch, lambda p, i, t: len(visitors(batch, p, i, t)) == 1) > 0
    assert bool(alone.any()) and not found[alone].any() and bool(found.any())


def balanced_tree(branch, depth, seed):
    """Leaves of a tree in which every inner node has `branch` children: rewards, and the node of each depth."""
    count = branch**depth
    leaves, levels = torch.arange(count), torch.arange(depth + 1)
    node_GT = leaves[:, None] // branch ** (depth - levels)
    rewards = torch.rand(1, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return rewards, node_GT


@pytest.mark.parametrize(("branch", "depth"), [(2, 3), (4, 2)])
def test_on_a_balanced_tree_lambda_zero_is_the_edge_advantage(branch, depth):
    """d-TreeRPO: V(node) = mean of its children's, A(edge) = V(child) - mean of the siblings' V."""
    rewards, node_GT = balanced_tree(branch, depth, 0)
    keys = node_GT + 1000 * torch.arange(depth + 1)
    batch = example_batch(rewards, length=2 * depth, state_keys_PGS=keys[None])
    values = {depth: rewards[0].tolist()}
    for level in range(depth - 1, -1, -1):
        children = values[level + 1]
        values[level] = [mean(children[branch * n : branch * (n + 1)]) for n in range(branch**level)]
    found = advantages(batch, "state-anchor", episode=0.0, gae_lambda=0.0)
    for leaf in range(len(node_GT)):
        for level in range(depth):
            node, child = int(node_GT[leaf, level]), int(node_GT[leaf, level + 1])
            siblings = values[level + 1][branch * node : branch * (node + 1)]
            edge = values[level + 1][child] - mean(siblings)
            assert found[0, leaf, 2 * level : 2 * level + 2].tolist() == pytest.approx([edge] * 2)


def test_the_first_state_is_centred_and_the_shared_fraction_is_logged():
    batch = uneven(1)
    first = (batch.state_PGL == 0) & batch.mask_PGL
    found = advantages(batch, "state-anchor", episode=0.0)
    assert close(found[first], advantages(batch, "centred")[first])
    later = [(p, i, t) for p in range(P) for i in group(batch, p) for t in range(1, int(batch.num_states_PG[p, i]))]
    shared = mean([len(visitors(batch, *one)) > 1 for one in later])
    logged = estimate(get_estimator("state-anchor"), batch, {})[0].metrics["estimator/shared_fraction"]
    assert logged == pytest.approx(shared) and 0 < shared < 1


def test_a_canvas_reached_in_different_steps_is_one_state():
    batch = example_batch([[1.0, 0.0]], length=6, state_keys_PGS=torch.tensor([[[0, 5, 6, 7], [0, 4, 5, 8]]]))
    found = advantages(batch, "state-anchor", episode=0.0)
    # State 1 of the first is state 2 of the second; states 2 and 1 are their own.
    assert found[0].tolist() == [[0.5, 0.5, 0.5, 0.5, 0.0, 0.0], [-0.5, -0.5, 0.0, 0.0, -0.5, -0.5]]


# --- Outcome-conditioned baseline -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shrink", [0.0, 2.0])
def test_bae_of_states_against_loops(seed, shrink):
    batch = uneven(seed)

    def less_baseline(p, i, t):
        alike = [j for j in there(batch, p, t) if reward(batch, p, j, t) == reward(batch, p, i, t)]
        total = sum(float(batch.rewards_PG[p, j]) for j in alike)
        at_t = mean([float(batch.rewards_PG[p, j]) for j in group(batch, p)])
        return float(batch.rewards_PG[p, i]) - (total + shrink * at_t) / (len(alike) + shrink)

    assert close(advantages(batch, "bae", shrink=shrink), by_token(batch, less_baseline))


def test_bae_is_silent_where_a_rollout_is_alone_in_its_stratum():
    rewards = torch.tensor([[[0.0, 0.0, 1.0]], [[1.0, 1.0, 1.0]], [[1.0, 0.0, 0.0]]]).transpose(0, 1)
    batch = example_batch([[1.0, 1.0, 0.0]], length=4, state_rewards_PGS=rewards[0][None].double())
    # State 0: values 0, 1, 1; state 1: values 0, 1, 0.
    assert advantages(batch, "bae")[0].tolist() == [[0, 0, 0.5, 0.5], [0.5, 0.5, 0, 0], [-0.5, -0.5, -0.5, -0.5]]


@pytest.mark.parametrize("seed", SEEDS)
def test_bae_of_regions_against_loops(seed):
    batch = uneven(seed)
    wanted = torch.zeros_like(batch.logprobs_PGL)
    for p in range(P):
        for i in group(batch, p):
            for place in batch.mask_PGL[p, i].nonzero().flatten().tolist():
                k = int(batch.regions_PGL[p, i, place])
                if k < 0:
                    continue
                own = [float(batch.components_PGK[p, j, k]) for j in range(G)]
                before = [float(batch.components_PGK[p, j, k - 1]) if k else 0.0 for j in range(G)]
                wanted[p, i, place] = own[i] - mean([own[j] for j in group(batch, p) if before[j] == before[i]])
    assert close(advantages(batch, "bae", form="regions"), wanted)


def test_a_region_without_a_component_is_refused():
    batch = uneven(0)
    with pytest.raises(ValueError, match="region 7.* 2 reward components"):
        advantages(dataclasses.replace(batch, regions_PGL=batch.regions_PGL + 6), "bae", form="regions")


def test_discounted_anchors_are_alive_on_equal_rewards_and_say_so():
    """One canvas, right after two states and after three: returns .5 and .25, so that the quicker one is credited."""
    batch = example_batch(
        [[1.0, 1.0]], num_states_PG=torch.tensor([[2, 3]]), state_keys_PGS=torch.tensor([[[0, 1, 2, 2], [0, 3, 4, 5]]])
    )
    estimator = get_estimator("state-anchor", gamma=0.5, episode=0)
    made = estimate(estimator, batch, {})[0].values_PGL
    assert made[0, :, 0].tolist() == [0.125, -0.125]
    assert estimator.spec.alive
    with pytest.raises(NormalisationError, match="groups of equal rewards"):
        estimate(estimator, batch, {}, normalisation="group-std")
    for settings in ({}, {"gamma": 0.5, "omega": 0}):
        still = get_estimator("state-anchor", **settings)
        assert not still.spec.alive
        assert not estimate(still, batch, {})[0].values_PGL.any()
