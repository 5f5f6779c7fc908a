"""Masks over states and blocks: SAS and EGSPO against loops."""

from __future__ import annotations

import math

import pytest
import torch

from steprs.errors import ArgumentError, ConfigError
from steprs.estimators import get_estimator
from steprs.testing.estimators import example_batch

from .uneven import G, L, P, advantages, group, mean, uneven


def units(batch, unit_PGL, p, i):
    """Places of each unit of a rollout that has any, by unit."""
    found = {}
    for place in range(L):
        if batch.mask_PGL[p, i, place]:
            found.setdefault(int(unit_PGL[p, i, place]), []).append(place)
    return dict(sorted(found.items()))


def slow_sas(batch, unit_PGL, count):
    """Centred advantages less the `count(n)` units that speak against a rollout's reward, earlier ones first."""
    wanted = torch.zeros(P, G, L, dtype=torch.float64)
    for p in range(P):
        p_hat = mean([float(batch.rewards_PG[p, i]) for i in group(batch, p)])
        for i in group(batch, p):
            places = units(batch, unit_PGL, p, i)
            surprise = {u: mean([float(batch.logprobs_PGL[p, i, k]) for k in ks]) for u, ks in places.items()}
            above = float(batch.rewards_PG[p, i]) > p_hat
            order = sorted(places, key=lambda u: (surprise[u] if above else -surprise[u], u))
            for unit in order[count(len(places)) :]:
                for place in places[unit]:
                    wanted[p, i, place] = float(batch.rewards_PG[p, i]) - p_hat
    return wanted


@pytest.mark.parametrize("unit", ["state", "block"])
@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.7, 0.99])
def test_sas_against_loops(unit, ratio):
    batch = uneven(3)
    unit_PGL = batch.state_PGL if unit == "state" else batch.block_PGL
    found = advantages(batch, "sas", base="centred", unit=unit, ratio=ratio)
    assert torch.allclose(found, slow_sas(batch, unit_PGL, lambda n: math.ceil(ratio * n - 1e-9)), atol=1e-12)


def test_sas_releases_precedence_masks_every_step_of_right_rollouts():
    """ceil(n + 1 * ratio) is n + 1 for every n and ratio: all of them, which is no estimator."""
    assert all(math.ceil(n + 1 * 0.3) == n + 1 for n in range(1, 50))
    batch = uneven(4)
    released = slow_sas(batch, batch.state_PGL, lambda n: min(n, math.ceil(n + 1 * 0.3)))
    assert not released.any(), "nothing is left of right rollouts, and of wrong ones if their count were the same"
    assert bool((advantages(batch, "sas", base="centred", ratio=0.3) > 0).any())


def test_sas_breaks_ties_by_index_and_counts_without_rounding_errors():
    batch = example_batch([[1.0, 0.0]], length=20)
    batch = example_batch([[1.0, 0.0]], length=20, logprobs_PGL=torch.full_like(batch.logprobs_PGL, -1.0))
    found = advantages(batch, "sas", base="centred", ratio=0.7)
    # .7 * 10 is 7.000000000000001 in floating point, and seven of ten states are meant.
    assert found[0].tolist() == [[0.0] * 14 + [0.5] * 6, [0.0] * 14 + [-0.5] * 6]


def test_sas_standardised_is_grpo_where_it_is_kept():
    batch = uneven(5)
    found, plain = advantages(batch, "sas"), advantages(batch, "standardised")
    assert torch.equal(found[found != 0], plain[found != 0])
    assert torch.equal(found != 0, advantages(batch, "sas", base="centred") != 0)


@pytest.mark.parametrize("states", [1, 2, 100, 0.5])
def test_egspo_keeps_the_states_of_highest_entropy(states):
    batch = uneven(6)
    plain, wanted = advantages(batch, "centred"), torch.zeros(P, G, L, dtype=torch.float64)
    for p in range(P):
        for i in group(batch, p):
            places = units(batch, batch.state_PGL, p, i)
            entropy = {s: mean([float(batch.entropies_PGL[p, i, k]) for k in ks]) for s, ks in places.items()}
            count = math.ceil(states * len(places)) if states < 1 else states
            for state in sorted(places, key=lambda s: (-entropy[s], s))[:count]:
                wanted[p, i, places[state]] = plain[p, i, places[state]]
    assert torch.equal(advantages(batch, "egspo", states=states), wanted)


def test_settings_outside_their_range_are_refused():
    for name, settings in [
        ("sas", {"ratio": 1.1}), ("sas", {"ratio": 1}), ("state-anchor", {"episode": 0, "omega": 0}),
        ("sas", {"unit": "segment"}), ("sas", {"base": "z"}), ("egspo", {"states": 1.5}),
        ("egspo", {"states": 0}), ("egspo-sa", {"coefficient": -1.0}), ("state-anchor", {"gae_lambda": 2.0}),
        ("state-anchor", {"gamma": 0.0}), ("gain", {"gamma": -0.1}), ("gain", {"norm": "batch"}),
        ("mdpo", {"states": 0}), ("vsrm", {"decay": 1.5}), ("vsrm", {"lookahead": -1}), ("vsrm", {"norm": "z"}),
        ("bae", {"form": "blocks"}), ("bae", {"shrink": -1.0}),
    ]:  # fmt: skip
        with pytest.raises(ArgumentError, match=next(iter(settings))):
            get_estimator(name, **settings)
    with pytest.raises(ConfigError, match="ratio"):
        get_estimator("sas", rato=0.3)
