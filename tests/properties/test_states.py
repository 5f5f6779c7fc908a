"""Properties of denoising states over random records: the fast form against a slow one, and axioms by name."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from steprs.rollout.unmasking import RULES
from steprs.states import denoising_progress, merge_steps, state_at
from steprs.types import Decoding, Trajectory

from ..unit.rollout.helpers import decoding, sample
from ..unit.rollout.stand_in import TablePolicy

MASK = 99


@st.composite
def trajectories(draw) -> Trajectory:
    """Blocks decoded in order, any number of tokens a step, an optional early end inside or after a block."""
    rows, size, blocks = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["masked", "block"]))
    length = size * blocks
    step_BL = torch.full((rows, length), -1)
    valid_BL = torch.zeros(rows, length, dtype=torch.bool)
    taken = []
    for row in range(rows):
        end = draw(st.integers(1, length))
        step = 0
        for block in range((end - 1) // size + 1):
            order = draw(st.permutations(range(block * size, (block + 1) * size)))
            while order:
                count = draw(st.integers(1, len(order)))
                step_BL[row, torch.tensor(order[:count])] = step
                order, step = order[count:], step + 1
        valid_BL[row, :end] = True
        taken.append(step)
    return Trajectory(
        prompt_ids_BC=torch.zeros(rows, 1, dtype=torch.int64),
        prompt_mask_BC=torch.ones(rows, 1, dtype=torch.bool),
        completion_ids_BL=torch.arange(length).expand(rows, -1).clone(),
        unmask_step_BL=step_BL,
        block_index_BL=(torch.arange(length) // size).expand(rows, -1).clone(),
        completion_mask_BL=valid_BL,
        sampling_logprobs_BL=torch.zeros(rows, length),
        entropies_BL=torch.zeros(rows, length),
        num_steps_B=torch.tensor(taken),
        mask_token_id=MASK,
        decoding=Decoding(kind=kind, length=length, steps=length, block_size=size),  # type: ignore[arg-type]
        group_size=1,
        selection_exact=True,
        steps_fixed=False,
    )


def slow_progress(steps: list[int], blocks: list[int], valid: list[bool], coordinate: str, scope: str) -> list[float]:
    """One token at a time, from the definitions."""
    places = [place for place in range(len(steps)) if valid[place]]
    tau = [0.0] * len(steps)
    for place in places:
        mates = [other for other in places if scope == "sequence" or blocks[other] == blocks[place]]
        if scope == "block":
            order = sorted({blocks[other] for other in places})
            tau[place] = order.index(blocks[place]) / max(len(order) - 1, 1)
        elif coordinate == "step":
            order = sorted({steps[other] for other in mates})
            tau[place] = order.index(steps[place]) / max(len(order) - 1, 1)
        elif coordinate == "mask":
            tau[place] = sum(steps[other] < steps[place] for other in mates) / len(mates)
        else:
            before = sum(steps[other] < steps[place] for other in mates)
            same = sum(steps[other] == steps[place] for other in mates)
            tau[place] = (before + (same + 1) / 2 - 1 / 2) / len(mates)
    return tau


@given(trajectories(), st.sampled_from(["step", "mask", "rank"]), st.sampled_from(["sequence", "block", "within"]))
@settings(max_examples=150, deadline=None)
def test_progress_equals_its_definition(trajectory, coordinate, scope):
    tau_BL = denoising_progress(trajectory, coordinate, scope)
    expected = [
        slow_progress(steps, blocks, valid, coordinate, scope)
        for steps, blocks, valid in zip(
            trajectory.unmask_step_BL.tolist(),
            trajectory.block_index_BL.tolist(),
            trajectory.completion_mask_BL.tolist(),
            strict=True,
        )
    ]
    torch.testing.assert_close(tau_BL, torch.tensor(expected, dtype=torch.float64), atol=1e-14, rtol=0)


@given(trajectories(), st.sampled_from(["step", "mask", "rank"]))
@settings(max_examples=80, deadline=None)
def test_progress_grows_with_the_step_and_lies_in_the_unit_interval(trajectory, coordinate):
    tau_BL = denoising_progress(trajectory, coordinate)
    assert bool(((tau_BL >= 0) & (tau_BL <= 1)).all())
    for tau, steps, valid in zip(tau_BL, trajectory.unmask_step_BL, trajectory.completion_mask_BL, strict=True):
        pairs = sorted(zip(steps[valid].tolist(), tau[valid].tolist(), strict=True))
        for (step, low), (later, high) in itertools.pairwise(pairs):
            assert high == low if step == later else high > low


@given(trajectories())
@settings(max_examples=80, deadline=None)
def test_mean_rank_is_one_half(trajectory):
    tau_BL, valid_BL = denoising_progress(trajectory, "rank"), trajectory.completion_mask_BL
    means = (tau_BL * valid_BL).sum(1) / valid_BL.sum(1)
    torch.testing.assert_close(means, torch.full_like(means, 0.5), atol=1e-14, rtol=0)


@given(trajectories())
@settings(max_examples=80, deadline=None)
def test_states_only_ever_reveal(trajectory):
    """Each state shows its predecessor's tokens and what was revealed between them, nothing else."""
    for step in range(int(trajectory.num_steps_B.max()) + 1):
        now, then = state_at(trajectory, step), state_at(trajectory, step + 1)
        changed = now != then
        assert torch.equal(changed, trajectory.unmask_step_BL == step)
        assert bool((now[changed] == MASK).all())


@given(trajectories(), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_merging_against_a_slow_reference(trajectory, shrinkage):
    merged = merge_steps(trajectory, shrinkage)
    rows = zip(trajectory.unmask_step_BL.tolist(), trajectory.block_index_BL.tolist(), strict=True)
    for row, (steps, blocks) in enumerate(rows):
        apart = blocks if trajectory.decoding.kind == "block" else [0] * len(blocks)
        number, states = {}, 0
        for block in sorted(set(apart)):
            mine = sorted({step for step, other in zip(steps, apart, strict=True) if other == block and step >= 0})
            for index, step in enumerate(mine):
                number[step] = states + index // shrinkage
            states += -(-len(mine) // shrinkage)
        assert merged.unmask_step_BL[row].tolist() == [number.get(step, -1) for step in steps]
        assert merged.num_steps_B[row] == states


@st.composite
def decodings(draw) -> tuple[Decoding, dict]:
    """Settings of either sampler, with steps that need not divide anything."""
    size, blocks = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    steps = draw(st.integers(blocks, size * blocks))
    kind = draw(st.sampled_from(["masked", "block"]))
    changes = {
        "unmasking": draw(st.sampled_from(sorted(RULES))),
        "temperature": draw(st.sampled_from([0.0, 0.7, 1.0])),
        "top_k": draw(st.sampled_from([0, 2])),
    }
    attention = {"attention": "bidirectional" if kind == "masked" else "block_causal", "block_size": size}
    attention["prompt_block"] = draw(st.sampled_from(["whole", "aligned"]))
    return decoding(kind, size * blocks, steps, size, **changes), attention


@given(decodings(), st.integers(1, 6), st.integers(0, 3), st.booleans(), st.sampled_from([-1.0, 0.7, -float("inf")]))
@settings(max_examples=150, deadline=None)
def test_state_at_rebuilds_exactly_what_the_sampler_saw(drawn, prompt_length, seed, use_cache, eos_bias):
    """One rollout at a time, whatever the rule: the forward of step s had state s in its input."""
    rules, attention = drawn
    policy = TablePolicy(seed=seed, eos_bias=eos_bias, **attention)
    prompt = [3 + place % 4 for place in range(prompt_length)]
    options = {"use_cache": use_cache} if rules.kind == "block" else {}
    trajectory = sample(policy, rules, [prompt], 1, **options)
    assert len(policy.seen) == int(trajectory.num_steps_B[0])
    assert not bool((trajectory.completion_ids_BL == policy.mask_token_id).any())
    cached = 0
    for step, seen_BT in enumerate(policy.seen):
        state = torch.cat([trajectory.prompt_ids_BC[0], state_at(trajectory, step)[0]]).tolist()
        seen = seen_BT[0].tolist()
        # A completion that ends inside a block leaves columns behind it, which are masked and seen by nobody.
        beyond = max(0, len(seen) + (cached if use_cache and rules.kind == "block" else 0) - len(state))
        assert all(token == policy.mask_token_id for token in seen[len(seen) - beyond :])
        seen = seen[: len(seen) - beyond]
        if rules.kind == "masked" or not use_cache:
            assert seen == state[: len(seen)]
            # What a block sampler leaves out is masked and, being later, invisible.
            assert all(token == policy.mask_token_id for token in state[len(seen) :])
            continue
        block = trajectory.block_index_BL[0][trajectory.unmask_step_BL[0] == step]
        last = prompt_length + int((trajectory.block_index_BL[0] <= block[0]).sum())
        first = prompt_length + int((trajectory.block_index_BL[0] < block[0]).sum())
        first -= prompt_length % rules.block_size if attention["prompt_block"] == "aligned" and block[0] == 0 else 0
        assert seen == state[cached:last]
        cached = first
