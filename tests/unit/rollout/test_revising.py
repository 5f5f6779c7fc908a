"""Canvases that are revised: what is drawn, what is recorded, and that scoring reads the same states."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from published import LAYOUTS, random_tensors, write_checkpoint

from steprs.errors import ArgumentError, ConfigError, SamplingError
from steprs.logprobs import (
    check_ratio,
    pad_plan,
    plan_coupled,
    plan_one_step,
    plan_trace,
    score_batch,
    score_plan,
    trajectory_logprobs,
)
from steprs.policies.base import Policy
from steprs.policies.distribution import canvas_temperatures
from steprs.policies.loading import load_policy
from steprs.policies.tiny import create_tiny
from steprs.randomness import row_keys, uniforms
from steprs.rollout.block import BlockDiffusionSampler
from steprs.rollout.masked import MaskedDiffusionSampler
from steprs.rollout.revising import RevisingSampler
from steprs.states import denoising_progress, merge_steps, progress_is_predictable, state_at
from steprs.types import Decoding, Trajectory

WORDS = [str(number) for number in range(9)]
DECODING = Decoding(
    kind="revise", length=8, steps=12, block_size=4, temperature=0.8, final_temperature=0.4, unmasking="entropy_bound",
    threshold=1.5,
)  # fmt: skip
PROMPTS = torch.tensor([[0, 0, 5, 9, 7], [11, 6, 20, 8, 9]])
REAL = PROMPTS != 0
KEYS = row_keys(0, "train", 1, torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 1, 2, 0, 1, 2]))


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """With weak feedback: random networks amplify rounding from state to state, and two samplers would part."""
    tensors = random_tensors(LAYOUTS["diffusion-gemma"])
    tensors["model.decoder.self_conditioning.down_proj.weight"] *= 0.3
    folder = tmp_path_factory.mktemp("gemma") / "published"
    return load_policy(write_checkpoint(folder, "diffusion-gemma", tensors=tensors))


def sample(policy: Policy, decoding: Decoding = DECODING, **options) -> Trajectory:  # type: ignore[no-untyped-def]
    return RevisingSampler(decoding=decoding).sample(
        policy, PROMPTS, REAL, group_size=3, row_keys_B=KEYS, store_support=True, **options
    )


@pytest.fixture(scope="module")
def rollouts(policy: Policy) -> Trajectory:
    return sample(policy)


def test_temperatures_are_those_of_the_published_schedule() -> None:
    """t_min + (t_max - t_min) * n / N for n = N, N - 1, .., 1 steps left."""
    expected = [0.4 + 0.4 * left / 6 for left in (6, 5, 4, 3, 2, 1)]
    np.testing.assert_allclose(canvas_temperatures(DECODING), expected, rtol=1e-12)
    assert canvas_temperatures(dataclasses.replace(DECODING, temperature=0.0, final_temperature=None)) == (1.0,) * 6


def slow(policy: Policy, clean: list[int], key: torch.Tensor, first: int, canvas_number: int):  # type: ignore[no-untyped-def]
    """One canvas of one rollout by the stock forward, one position at a time: (shown, fixed, ids, step, logprob)."""
    at = torch.arange(4) + 4 * canvas_number

    def number(step: int, stream: int) -> list[float]:
        return uniforms(key[None], step, at, stream)[0].tolist()

    shown, fixed_at, standing = [], [], [False] * 4
    ids, steps, logprobs = [-1] * 4, [-1] * 4, [0.0] * 4
    canvas = [int(u * 64) for u in number(first, 3)]
    scaled = None
    for index in range(6):
        shown.append(canvas)
        with torch.no_grad():
            logits = policy.model(
                input_ids=torch.tensor([clean]), decoder_input_ids=torch.tensor([canvas]),
                self_conditioning_logits=scaled,
            ).logits  # fmt: skip
        scaled = logits / (0.4 + 0.4 * (6 - index) / 6)
        chances = scaled[0].double().clone()
        chances[:, [0, 2]] = -np.inf  # padding and mask are never drawn
        chances = chances.softmax(-1).numpy()
        entropy = [-sum(p * np.log(p) for p in row if p > 0) for row in chances]
        order = sorted(range(4), key=lambda position: entropy[position])
        sure, total = [], 0.0
        for position in order:
            if total <= 1.5:
                sure.append(position)
            total += entropy[position]
        drawn = [
            int(np.searchsorted(np.cumsum(row), u, side="right"))
            for row, u in zip(chances, number(first + index, 0), strict=True)
        ]
        fixed = [position in sure or index == 5 for position in range(4)]
        fixed_at.append(fixed)
        noise = number(first + index + 1, 3)
        for position in range(4):
            if fixed[position] and not (standing[position] and ids[position] == drawn[position]):
                ids[position], steps[position] = drawn[position], first + index
                logprobs[position] = float(np.log(chances[position][drawn[position]]))
            standing[position] = fixed[position]
        canvas = [drawn[p] if fixed[p] else int(noise[p] * 64) for p in range(4)]
    return shown, fixed_at, ids, steps, logprobs


def test_rollouts_are_those_of_the_slow_sampler(policy: Policy, rollouts: Trajectory) -> None:
    assert rollouts.revisions is not None
    for row in range(6):
        clean = PROMPTS[row // 3][REAL[row // 3]].tolist()
        for number in range(2):
            shown, fixed, ids, steps, logprobs = slow(policy, clean, KEYS[row], 6 * number, number)
            window = slice(4 * number, 4 * number + 4)
            states = slice(6 * number, 6 * number + 6)
            assert rollouts.completion_ids_BL[row, window].tolist() == ids
            assert rollouts.unmask_step_BL[row, window].tolist() == steps
            assert rollouts.revisions.canvas_BSW[row, states].tolist() == shown
            assert rollouts.revisions.fixed_BSW[row, states].tolist() == fixed
            np.testing.assert_allclose(rollouts.sampling_logprobs_BL[row, window].numpy(), logprobs, atol=2e-3)
            clean += ids
            if policy.eos_token_id in ids:
                break


def test_some_tokens_are_revised_and_some_stand(rollouts: Trajectory) -> None:
    """Without both the tests here would show little."""
    assert rollouts.revisions is not None
    steps = rollouts.unmask_step_BL
    assert bool((steps % 6 < 5).any()) and bool((steps % 6 == 5).any())
    fixed = rollouts.revisions.fixed_BSW
    assert bool((fixed[:, :-1] & ~fixed[:, 1:]).any()), "a fixed position became noise again"
    assert bool(rollouts.revisions.fixed_BSW[:, [5, 11]].all()), "the last step of a canvas fixes everything"
    assert not rollouts.selection_exact and rollouts.steps_fixed
    assert not (rollouts.completion_ids_BL == rollouts.mask_token_id).any()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"stop_entropy": 2.5},
        {"top_p": 0.8},
        {"unmasking": "max_probability", "threshold": None, "final_temperature": None},
        {"unmasking": "confidence_threshold", "threshold": 0.3},
        {"temperature": 0.0, "final_temperature": None},
    ],
)
def test_scoring_says_what_was_sampled(policy: Policy, changes: dict[str, object]) -> None:
    """CASES 14: the ratio is 1 to 1e-4 for every token and every split into micro-batches."""
    trajectory = sample(policy, dataclasses.replace(DECODING, **changes))
    mask_BL = trajectory.completion_mask_BL
    for budget in (6, 40, 4096):
        scored_BL = trajectory_logprobs(policy, trajectory, token_budget=budget).detach()
        ratio_BL = torch.exp(scored_BL - trajectory.sampling_logprobs_BL)
        torch.testing.assert_close(ratio_BL[mask_BL], torch.ones_like(ratio_BL[mask_BL]), atol=1e-4, rtol=0)
        assert bool((scored_BL[~mask_BL] == 0).all())
    if changes.get("temperature") != 0.0:
        assert float(trajectory.sampling_logprobs_BL[mask_BL].std()) > 0.3
    assert trajectory.steps_fixed == ("stop_entropy" not in changes)


def test_a_canvas_that_is_sure_of_itself_stops_early(policy: Policy) -> None:
    settings = {"stop_entropy": 4.0, "steps": 60, "threshold": 100.0, "temperature": 0.0, "final_temperature": None}
    decoding = dataclasses.replace(DECODING, **settings)
    trajectory = sample(policy, decoding)
    assert trajectory.revisions is not None
    assert int(trajectory.num_steps_B.min()) < 60 and int(trajectory.num_steps_B.min()) > 1
    for row in range(6):
        taken = int(trajectory.num_steps_B[row])
        shown = (trajectory.revisions.canvas_BSW[row] >= 0).all(1)
        assert shown[:taken].all() and not shown[taken:].any()


def test_nothing_depends_on_the_batch_around(policy: Policy, rollouts: Trajectory) -> None:
    """Left padding (CASES 9) and `max_rows`; rounding grows along the chain of states."""
    alone = RevisingSampler(decoding=DECODING).sample(
        policy, PROMPTS[:1, 2:], REAL[:1, 2:], group_size=1, row_keys_B=KEYS[:1]
    )
    assert torch.equal(alone.completion_ids_BL[0], rollouts.completion_ids_BL[0])
    torch.testing.assert_close(alone.sampling_logprobs_BL[0], rollouts.sampling_logprobs_BL[0], atol=2e-3, rtol=0)
    assert torch.equal(sample(policy, max_rows=2).completion_ids_BL, rollouts.completion_ids_BL)


def test_gradients_do_not_depend_on_the_split(policy: Policy, rollouts: Trajectory) -> None:
    """CASES 15, and an empty batch reaches every weight with a zero."""
    gradients = []
    for budget in (6, 4096):
        policy.module.zero_grad()
        score_plan(policy, rollouts, plan_trace(rollouts, policy, token_budget=budget)).sum().backward()
        gradients.append([weight.grad.clone() for weight in policy.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    assert all(bool(gradient.any()) for gradient in gradients[0])
    policy.module.zero_grad()
    empty = pad_plan([], 1, rollouts)[0]
    score_batch(policy, rollouts, empty).logprobs_N.sum().backward()
    assert all(weight.grad is not None and not weight.grad.any() for weight in policy.parameters())
    policy.module.zero_grad()


def test_the_conditioning_matters_and_is_not_optional(policy: Policy, rollouts: Trajectory) -> None:
    assert rollouts.revisions is not None
    forgotten = dataclasses.replace(
        rollouts.revisions, conditioning_BKWH=torch.zeros_like(rollouts.revisions.conditioning_BKWH)
    )
    scored_BL = trajectory_logprobs(policy, dataclasses.replace(rollouts, revisions=forgotten)).detach()
    mask_BL = rollouts.completion_mask_BL
    assert float((scored_BL - rollouts.sampling_logprobs_BL)[mask_BL].abs().max()) > 0.1
    with pytest.raises(ConfigError, match="the ratio is not 1 and no step was made"):
        check_ratio(scored_BL[mask_BL], rollouts.sampling_logprobs_BL[mask_BL])
    check_ratio(rollouts.sampling_logprobs_BL[mask_BL] + 5e-5, rollouts.sampling_logprobs_BL[mask_BL])


def test_drawn_states_keep_their_expectation(policy: Policy, rollouts: Trajectory) -> None:
    plan = plan_trace(rollouts, policy, states_per_rollout=1, keys_B=KEYS)
    scores = [score_batch(policy, rollouts, batch) for batch in plan]
    row_N = torch.cat([score.row_N for score in scores])
    pos_N = torch.cat([score.pos_N for score in scores])
    steps = rollouts.unmask_step_BL[row_N, pos_N]
    for row in range(6):
        mine = row_N == row
        valid = rollouts.unmask_step_BL[row][rollouts.completion_mask_BL[row]]
        assert len(steps[mine].unique()) == 1
        assert torch.cat([score.weight_N for score in scores])[mine].unique().tolist() == [len(valid.unique())]


def test_states_are_what_was_shown(rollouts: Trajectory) -> None:
    assert rollouts.revisions is not None
    row = int(rollouts.num_steps_B.argmax())
    assert int(rollouts.num_steps_B[row]) == 12
    shown = rollouts.revisions.canvas_BSW[row].tolist()
    ids = rollouts.completion_ids_BL[row].tolist()
    assert state_at(rollouts, 0)[row].tolist() == shown[0] + [2] * 4
    assert state_at(rollouts, 3)[row].tolist() == shown[3] + [2] * 4
    assert state_at(rollouts, 6)[row].tolist() == ids[:4] + shown[6]
    assert state_at(rollouts, 11)[row].tolist() == ids[:4] + shown[11]
    assert state_at(rollouts, 12)[row].tolist() == ids


def test_progress_is_that_of_the_step_that_last_fixed(rollouts: Trajectory) -> None:
    """By hand: one row of 12 steps whose tokens were last fixed in the steps below."""
    steps = torch.tensor([[3, 5, 5, 4, 11, 9, 9, 11]])
    row = dataclasses.replace(
        rollouts.rows(torch.tensor([0])), unmask_step_BL=steps, completion_mask_BL=torch.ones(1, 8, dtype=torch.bool),
        num_steps_B=torch.tensor([12]),
    )  # fmt: skip
    assert denoising_progress(row, "step").tolist() == [[s / 11 for s in (3, 5, 5, 4, 11, 9, 9, 11)]]
    assert denoising_progress(row, "mask").tolist() == [[0, 2 / 8, 2 / 8, 1 / 8, 6 / 8, 4 / 8, 4 / 8, 6 / 8]]
    rank = [0.5, 3, 3, 1.5, 7, 5, 5, 7]
    assert denoising_progress(row, "rank").tolist() == [[r / 8 for r in rank]]
    assert progress_is_predictable(row, "step") and not progress_is_predictable(row, "mask")


def test_records_keep_rows_and_places_together(policy: Policy, rollouts: Trajectory) -> None:
    some = rollouts.rows(torch.tensor([4, 1])).to("cpu")
    expected = trajectory_logprobs(policy, rollouts).detach()[[4, 1]]
    torch.testing.assert_close(trajectory_logprobs(policy, some).detach(), expected, atol=1e-5, rtol=1e-5)


def test_what_cannot_be_scored_is_refused(policy: Policy, rollouts: Trajectory) -> None:
    half = dataclasses.replace(policy, compute_dtype=torch.bfloat16)
    with pytest.raises(ConfigError, match=r"policy\.dtype is bfloat16.*set policy\.dtype=float32"):
        plan_trace(rollouts, half)
    with pytest.raises(ArgumentError, match="loss.logprobs must be 'trace'"):
        plan_one_step(rollouts, policy, keys_B=KEYS)
    with pytest.raises(ArgumentError, match="loss.logprobs must be 'trace'"):
        plan_coupled(rollouts, policy, keys_B=KEYS)
    with pytest.raises(ArgumentError, match=r"set loss\.shrinkage=1"):
        merge_steps(rollouts, 2)
    other = dataclasses.replace(policy, block_size=2)
    with pytest.raises(ArgumentError, match="revised canvases of 4 tokens"):
        plan_trace(rollouts, other)
    with pytest.raises(ArgumentError, match="no record of revisions"):
        from steprs.logprobs.revised import revisions_of

        revisions_of(dataclasses.replace(rollouts, revisions=None))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unmasking": "random", "threshold": None}, "'random' cannot say which tokens of a canvas to fix"),
        ({"steps": 7}, "steps 7 do not divide among 2 canvases"),
        ({"final_temperature": 0.9}, "final_temperature is 0.9"),
        ({"stop_entropy": -1.0}, "stop_entropy is -1.0"),
        ({"block_size": 3}, "block_size 3 does not divide length 8"),
        ({"kind": "block"}, "decodes kind 'revise'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SamplingError, match=message):
        RevisingSampler(decoding=dataclasses.replace(DECODING, **changes))


def test_samplers_and_policies_belong_together(policy: Policy) -> None:
    plain = Decoding(kind="block", length=8, steps=8, block_size=4)
    with pytest.raises(SamplingError, match="this one is canvas"):
        BlockDiffusionSampler(decoding=plain).sample(policy, PROMPTS, REAL, group_size=3, row_keys_B=KEYS)
    with pytest.raises(SamplingError, match="this one is canvas"):
        MaskedDiffusionSampler(decoding=dataclasses.replace(plain, kind="masked")).sample(
            policy, PROMPTS, REAL, group_size=3, row_keys_B=KEYS
        )
    with pytest.raises(SamplingError, match="this one is block_causal"):
        sample(create_tiny(WORDS, seed=0, hidden_size=16, heads=2, layers=1))
    with pytest.raises(SamplingError, match="block_size 2 is not the policy's canvas, 4"):
        sample(policy, dataclasses.replace(DECODING, block_size=2))
    with pytest.raises(SamplingError, match="for canvases that are revised"):
        BlockDiffusionSampler(decoding=dataclasses.replace(plain, stop_entropy=0.1))


def test_decoding_ends_after_the_canvas_with_the_end(tmp_path: Path) -> None:
    """CASES 17: a network whose likeliest token is always the end."""
    tensors = {name: torch.zeros_like(tensor) for name, tensor in random_tensors(LAYOUTS["diffusion-gemma"]).items()}
    for name in tensors:
        if "norm" in name or "scal" in name:
            tensors[name] += 1.0
    table = tensors["model.decoder.embed_tokens.weight"]
    table[:, 0] = 0.5
    table[1, 0] = 3.0
    policy = load_policy(write_checkpoint(tmp_path / "end", "diffusion-gemma", tensors=tensors))
    trajectory = sample(policy, dataclasses.replace(DECODING, temperature=0.0, final_temperature=None))
    assert trajectory.revisions is not None
    assert trajectory.completion_ids_BL.tolist() == [[1, 1, 1, 1, 0, 0, 0, 0]] * 6
    assert trajectory.completion_mask_BL.tolist() == [[True] + [False] * 7] * 6
    assert trajectory.unmask_step_BL[:, 4:].tolist() == [[-1] * 4] * 6
    assert trajectory.num_steps_B.tolist() == [6] * 6
    assert trajectory.revisions.first_step_BN.tolist() == [[0, -1]] * 6
    assert float(denoising_progress(trajectory).max()) == 0.0
