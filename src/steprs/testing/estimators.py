"""Checks that every advantage estimator passes, shipped or yours: `check_estimator(MyEstimator())`."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError, NormalisationError
from ..estimators.base import COLLECTORS, Estimator, EstimatorBatch, Memory
from ..estimators.pipeline import estimate
from ..types import Advantages

_CLOSE = 1e-9


def example_batch(
    rewards: Sequence[Sequence[float]] | Tensor, *, length: int = 6, seed: int = 0, **changes: Any
) -> EstimatorBatch:
    """A made-up update with those rewards and every collected field filled: for tests and examples.

    Rollouts reveal two tokens a state, so there are `(length + 1) // 2` states, in two blocks; log-probabilities,
    entropies, answers and state rewards are drawn from `seed`, state rewards end in the rollout's own reward.

    Args:
        rewards: [P, G].
        length: L, tokens of every rollout.
        seed: of what is drawn.
        changes: fields to set otherwise.

    >>> example_batch([[1.0, 0.0]]).state_PGL[0].tolist()
    [[0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2]]
    """
    rewards_PG = torch.as_tensor(rewards, dtype=torch.float64)
    count, group = rewards_PG.shape
    draw = torch.Generator().manual_seed(seed)
    shape, states = (count, group, length), (length + 1) // 2
    state_PGL = (torch.arange(length) // 2).expand(shape).clone()
    seen_PGS = torch.rand(count, group, states, generator=draw, dtype=torch.float64) < 0.5
    fields: dict[str, Any] = {
        "rewards_PG": rewards_PG,
        "valid_PG": torch.ones_like(rewards_PG, dtype=torch.bool),
        "mask_PGL": torch.ones(shape, dtype=torch.bool),
        "state_PGL": state_PGL,
        "num_states_PG": torch.full((count, group), states),
        "progress_PGL": state_PGL.double() / max(1, states - 1),
        "weights_PGL": torch.ones(shape, dtype=torch.float64),
        "logprobs_PGL": -2 * torch.rand(shape, generator=draw, dtype=torch.float64),
        "entropies_PGL": 2 * torch.rand(shape, generator=draw, dtype=torch.float64),
        "block_PGL": (torch.arange(length) >= length // 2).long().expand(shape).clone(),
        "update": 1,
        "updates": 10,
        "row_keys_PG": torch.arange(count * group).view(count, group),
        "state_rewards_PGS": torch.cat([seen_PGS.double(), rewards_PG.unsqueeze(-1)], dim=-1),
        "state_keys_PGS": _prefix_keys(count, group, states, draw),
        "answer_ids_PG": torch.where(rewards_PG > 0, 0, torch.randint(-1, 3, (count, group), generator=draw)),
        "reference_rewards_PM": (torch.rand(count, 4, generator=draw, dtype=torch.float64) < 0.5).double(),
        "components_PGK": torch.stack([rewards_PG, (torch.rand(count, group, generator=draw) < 0.7).double()], dim=-1),
        "component_weights_K": torch.tensor([1.0, 0.5], dtype=torch.float64),
        "regions_PGL": (torch.arange(length) >= length // 2).long().expand(shape).clone(),
    }
    return EstimatorBatch(**{**fields, **changes})


def _prefix_keys(count: int, group: int, states: int, draw: torch.Generator) -> Tensor:
    """Keys of a random prefix tree: rollouts share the empty canvas and part at random."""
    choice_PGS = torch.randint(0, 2, (count, group, states), generator=draw)
    powers_S = 2 ** torch.arange(states)
    keys_PGS = (choice_PGS * powers_S).cumsum(-1) + powers_S * 1000
    return torch.cat([torch.zeros(count, group, 1, dtype=torch.int64), keys_PGS], dim=-1)


def check_estimator(estimator: Estimator) -> None:
    """Check everything that the rest of the package, and a reader of its `spec`, takes for granted.

    Raises:
        AssertionError: names the first rule that is broken.

    >>> from steprs.estimators import get_estimator
    >>> check_estimator(get_estimator("centred"))
    """
    batch, memory = _varied(_group_size(estimator)), _moved(estimator)
    finite = bool(torch.isfinite(_advantages(estimator, batch, memory).values_PGL).all())
    _require(finite, estimator, "advantages are finite")
    before = {name: tensor.clone() for name, tensor in memory.items()}
    made = _advantages(estimator, batch, memory)
    again = _advantages(estimator, batch, memory)
    _require(torch.equal(made.values_PGL, again.values_PGL), estimator, "the same rollouts give the same bits")
    _require(all(torch.equal(memory[k], before[k]) for k in before), estimator, "memory is not changed in place")
    _check_shape_of_values(estimator, batch, memory, made)
    _check_permutations(estimator, batch, memory, made)
    _check_masked_rollouts(estimator, memory)
    _check_equal_rewards(estimator, memory)
    _check_extremes(estimator, memory)
    _check_graded_rewards(estimator, memory)
    _check_precision(estimator, batch, memory, made)
    _check_sums(estimator, memory)
    _check_coupling(estimator, batch, memory, made)
    _check_memory(estimator, batch)
    _check_empty_update(estimator, batch, memory)
    _check_normalisation(estimator, batch, memory)
    _check_requirements(estimator, batch, memory)


def _group_size(estimator: Estimator) -> int:
    """Rollouts of a group in which the estimator must have something to say: one more than the least it needs."""
    return max(8, estimator.smallest_group() + 1)


def _right(counts: Sequence[int], group: int) -> Tensor:
    """Rewards of groups with that many right rollouts, which come first: float64 [P, G]."""
    return (torch.arange(group) < torch.tensor(counts)[:, None]).double()


def _varied(group: int) -> EstimatorBatch:
    """Groups with 1 .. 7 right, of unequal lengths and numbers of states, one token never revealed."""
    batch = _uneven(example_batch(_right(range(1, 8), group), seed=1))
    mask_PGL, state_PGL = batch.mask_PGL.clone(), batch.state_PGL.clone()
    state_PGL[:, 1, 5] = -1
    mask_PGL[:, 1, 5] = False
    return dataclasses.replace(batch, mask_PGL=mask_PGL, state_PGL=state_PGL, weights_PGL=mask_PGL.double())


def _uneven(batch: EstimatorBatch) -> EstimatorBatch:
    """The batch with every third rollout cut short by a state."""
    assert batch.state_rewards_PGS is not None
    num_states_PG, mask_PGL = batch.num_states_PG.clone(), batch.mask_PGL.clone()
    num_states_PG[:, ::3] -= 1
    mask_PGL &= batch.state_PGL < num_states_PG[..., None]
    index_S = torch.arange(batch.state_rewards_PGS.shape[2])
    rewards_PGS = torch.where(index_S >= num_states_PG[..., None], batch.rewards_PG[..., None], batch.state_rewards_PGS)
    return dataclasses.replace(
        batch, num_states_PG=num_states_PG, mask_PGL=mask_PGL, weights_PGL=mask_PGL.double(),
        state_PGL=batch.state_PGL.masked_fill(~mask_PGL, -1), state_rewards_PGS=rewards_PGS,
    )  # fmt: skip


def _moved(estimator: Estimator) -> Memory:
    """Its memory after an update of other rollouts."""
    other = example_batch(_right([2, 5], _group_size(estimator)), seed=5)
    return estimate(estimator, other, estimator.initial_memory())[1]


def _advantages(estimator: Estimator, batch: EstimatorBatch, memory: Memory) -> Advantages:
    return estimate(estimator, batch, memory)[0]


def _check_shape_of_values(estimator: Estimator, batch: EstimatorBatch, memory: Memory, made: Advantages) -> None:
    values_PGL = made.values_PGL
    _require(values_PGL.dtype == torch.float64, estimator, "advantages are float64")
    _require(not bool(values_PGL[~batch.mask_PGL].any()), estimator, "tokens that do not count have advantage 0")
    # What keeps a share of a rollout's states or blocks may keep none of three, so there are 200 of each here.
    rewards_PG, state_L = _right(range(1, 8), values_PGL.shape[1]), torch.arange(400) // 2
    long = example_batch(rewards_PG, length=400, seed=7, block_PGL=state_L.expand(*rewards_PG.shape, 400).clone())
    speaks = bool(_advantages(estimator, long, memory).values_PGL.any())
    _require(speaks, estimator, "groups with right and wrong rollouts have advantages")
    if estimator.spec.granularity == "sequence":
        spread_PG = values_PGL.masked_fill(~batch.mask_PGL, -torch.inf).amax(2) - values_PGL.masked_fill(
            ~batch.mask_PGL, torch.inf
        ).amin(2)
        _require(not bool((spread_PG.abs() > _CLOSE).any()), estimator, "a sequence's tokens have one advantage")


def _check_permutations(estimator: Estimator, batch: EstimatorBatch, memory: Memory, made: Advantages) -> None:
    draw = torch.Generator().manual_seed(9)
    order_P, order_G = (torch.randperm(size, generator=draw) for size in batch.rewards_PG.shape)
    swapped = _advantages(estimator, _rollouts(batch, order_G), memory).values_PGL
    _require(_near(swapped, made.values_PGL[:, order_G]), estimator, "permuting rollouts permutes advantages")
    moved = _advantages(estimator, batch.prompts(order_P), memory).values_PGL
    _require(_near(moved, made.values_PGL[order_P]), estimator, "permuting prompts permutes advantages")


def _rollouts(batch: EstimatorBatch, order_G: Tensor) -> EstimatorBatch:
    changed = {
        entry.name: getattr(batch, entry.name)[:, order_G]
        for entry in dataclasses.fields(batch)
        if "_PG" in entry.name and isinstance(getattr(batch, entry.name), Tensor)
    }
    return dataclasses.replace(batch, **changed)


def _check_masked_rollouts(estimator: Estimator, memory: Memory) -> None:
    # After the third is gone the group is still one of which the estimator must make something.
    few = [[1.0, 0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0, 0.0]]
    rewards_PG = torch.nn.functional.pad(torch.tensor(few), (0, max(0, estimator.smallest_group() - 3)))
    whole, kept_G = example_batch(rewards_PG, seed=3), torch.arange(rewards_PG.shape[1])
    valid_PG = (kept_G != 2).expand(rewards_PG.shape)
    masked, kept_G = _with_masked(whole, valid_PG), kept_G[kept_G != 2]
    found = _advantages(estimator, masked, memory).values_PGL[:, kept_G]
    wanted = _advantages(estimator, _rollouts(whole, kept_G), memory).values_PGL
    _require(_near(found, wanted), estimator, "a masked rollout is as if it were not there")
    remembered = estimate(estimator, masked, memory)[1]
    finite = all(bool(torch.isfinite(tensor).all()) for tensor in remembered.values())
    _require(finite, estimator, "a masked rollout leaves no NaN in memory")


def _with_masked(batch: EstimatorBatch, valid_PG: Tensor) -> EstimatorBatch:
    """The batch with rollouts masked, and NaN for all that they hold: it must not matter, so it would be seen."""
    broken: dict[str, Any] = {
        name: getattr(batch, name).masked_fill(~valid_PG[(...,) + (None,) * (getattr(batch, name).ndim - 2)], torch.nan)
        for name in ("rewards_PG", "state_rewards_PGS", "components_PGK", "logprobs_PGL", "entropies_PGL")
    }
    return dataclasses.replace(
        batch, valid_PG=valid_PG,
        mask_PGL=batch.mask_PGL & valid_PG[..., None], weights_PGL=batch.weights_PGL * valid_PG[..., None], **broken,
    )  # fmt: skip


def _check_equal_rewards(estimator: Estimator, memory: Memory) -> None:
    # The third group makes the batch uneven, which is what brings the others to life in some batch-coupled estimators;
    # unequal numbers of states do in some that discount, and some need the collected fields to fall that way.
    group = _group_size(estimator)
    batches = [example_batch(_right([0, group, 2], group), seed=seed) for seed in (2, 3, 4)]
    batches += [_uneven(batch) for batch in batches]
    alive = any(bool(_advantages(estimator, batch, memory).values_PGL[:2].any()) for batch in batches)
    said = "can have" if estimator.spec.alive else "has no"
    _require(alive == estimator.spec.alive, estimator, f"a group of equal rewards {said} advantages, as declared")


def _check_extremes(estimator: Estimator, memory: Memory) -> None:
    for group in (2, 3, _group_size(estimator)):
        right_PG = _right(range(group + 1), group)
        for length in (1, 5):
            batch = example_batch(right_PG, length=length, seed=4)
            if group < estimator.smallest_group():
                _refuses(estimator, batch, memory, f"groups of {group} are refused by name, being too small for it")
                continue
            values = _advantages(estimator, batch, memory).values_PGL
            _require(bool(torch.isfinite(values).all()), estimator, f"advantages are finite for groups of {group}")


def _check_graded_rewards(estimator: Estimator, memory: Memory) -> None:
    graded_PG = torch.tensor([[0.25, 1.0, 0.0, 0.5, 0.0, 0.75, 1.0, -0.5]] * 2)
    batch = example_batch(torch.nn.functional.pad(graded_PG, (0, _group_size(estimator) - 8)), seed=8)
    if estimator.spec.binary:
        _refuses(estimator, batch, memory, "rewards other than 0 and 1 are refused by name, as declared")
        return
    try:
        values = _advantages(estimator, batch, memory).values_PGL
    except ArgumentError as error:
        raise _breaks(estimator, f"rewards other than 0 and 1 are taken, as declared ({error})") from error
    _require(bool(torch.isfinite(values).all()), estimator, "advantages are finite for graded rewards")


def _refuses(estimator: Estimator, batch: EstimatorBatch, memory: Memory, rule: str) -> None:
    try:
        _advantages(estimator, batch, memory)
    except ArgumentError as error:
        _require(estimator.spec.name in str(error), estimator, rule)
    else:
        _require(False, estimator, rule)


def _check_precision(estimator: Estimator, batch: EstimatorBatch, memory: Memory, made: Advantages) -> None:
    single = {
        entry.name: getattr(batch, entry.name).float()
        for entry in dataclasses.fields(batch)
        if isinstance(getattr(batch, entry.name), Tensor) and getattr(batch, entry.name).dtype == torch.float64
    }
    found = _advantages(estimator, dataclasses.replace(batch, **single), memory).values_PGL
    _require(_near(found, made.values_PGL, 1e-5), estimator, "float32 inputs agree with float64")


def _check_sums(estimator: Estimator, memory: Memory) -> None:
    batch = example_batch(_right(range(1, 8), _group_size(estimator)), seed=6)
    values_PGL = _advantages(estimator, batch, memory).values_PGL
    sums = {
        "state": values_PGL.sum(1).abs().amax(),
        "group": values_PGL.sum((1, 2)).abs().amax(),
        "joint": values_PGL.sum((1, 2)).abs().amax(),
    }
    declared = estimator.spec.zero_sum
    if declared != "none":
        _require(float(sums[declared]) <= _CLOSE * 100, estimator, f"advantages sum to 0 over the {declared}")
    if estimator.spec.shift_invariant:
        moved = _advantages(estimator, dataclasses.replace(batch, rewards_PG=batch.rewards_PG + 3.0), memory)
        _require(_near(moved.values_PGL, values_PGL, 1e-8), estimator, "a shift of all rewards changes nothing")


def _check_coupling(estimator: Estimator, batch: EstimatorBatch, memory: Memory, made: Advantages) -> None:
    alone = _near(_advantages(estimator, batch.prompts(torch.tensor([2])), memory).values_PGL, made.values_PGL[2:3])
    if estimator.spec.coupling == "group":
        _require(alone, estimator, "a group's advantages are its own business")
    if estimator.spec.coupling == "batch":
        _require(not alone, estimator, "what is declared to depend on the batch does")
    values_PGL, memories = _on_two_processes(estimator, batch, memory)
    _require(_near(values_PGL, made.values_PGL), estimator, "two processes give the advantages of one")
    after = estimate(estimator, batch, memory)[1]
    for found in memories:
        same = found.keys() == after.keys() and all(_near(found[k], after[k]) for k in after)
        _require(same, estimator, "two processes remember what one does")


def _on_two_processes(estimator: Estimator, batch: EstimatorBatch, memory: Memory) -> tuple[Tensor, list[Memory]]:
    """The batch split over two threads that add their tensors up as processes would."""
    meeting, given = threading.Barrier(2, timeout=60), [torch.zeros(()), torch.zeros(())]
    made: list[tuple[Advantages, Memory] | None] = [None, None]

    def work(rank: int) -> None:
        def all_reduce(value: Tensor) -> Tensor:
            given[rank] = value
            meeting.wait()
            total = given[0] + given[1]
            meeting.wait()
            return total

        cut = 3
        share = batch.prompts(slice(0, cut) if rank == 0 else slice(cut, None))
        try:
            made[rank] = estimate(estimator, dataclasses.replace(share, all_reduce=all_reduce), memory)
        except BaseException:
            meeting.abort()
            raise

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = made
    if first is None or second is None:
        raise _breaks(estimator, "two processes make the same reductions")
    return torch.cat([first[0].values_PGL, second[0].values_PGL]), [first[1], second[1]]


def _check_memory(estimator: Estimator, batch: EstimatorBatch) -> None:
    memory = _moved(estimator)
    plain = all(isinstance(v, Tensor) and v.dtype == torch.float64 for v in memory.values())
    _require(plain, estimator, "memory holds float64 tensors, which a checkpoint can keep")
    same = {name: torch.tensor(tensor.tolist(), dtype=torch.float64) for name, tensor in memory.items()}
    found = _advantages(estimator, batch, same).values_PGL
    _require(torch.equal(found, _advantages(estimator, batch, memory).values_PGL), estimator, "memory survives a file")
    if estimator.spec.coupling == "history":
        fresh = _advantages(estimator, batch, estimator.initial_memory()).values_PGL
        _require(not _near(fresh, found), estimator, "what is declared to depend on history does")
    else:
        _require(not memory, estimator, "an estimator without history keeps no memory")


def _check_empty_update(estimator: Estimator, batch: EstimatorBatch, memory: Memory) -> None:
    empty = _with_masked(batch, torch.zeros_like(batch.valid_PG))
    for before in (estimator.initial_memory(), memory):
        made, after = estimate(estimator, empty, before)
        _require(not bool(made.values_PGL.any()), estimator, "masked rollouts have no advantage")
        same = after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)
        _require(same, estimator, "an update without a rollout teaches nothing")


def _check_normalisation(estimator: Estimator, batch: EstimatorBatch, memory: Memory) -> None:
    if not (estimator.spec.reweights or estimator.spec.alive):
        return
    try:
        estimate(estimator, batch, memory, normalisation="group-std")
    except NormalisationError:
        return
    _require(False, estimator, "normalising after a reweighting, or where equal rewards count, is refused")


def _check_requirements(estimator: Estimator, batch: EstimatorBatch, memory: Memory) -> None:
    wanted = set(estimator.requires())
    unneeded: dict[str, Any] = {name: None for name in COLLECTORS if name not in wanted}
    try:
        found = _advantages(estimator, dataclasses.replace(batch, **unneeded), memory).values_PGL
    except Exception as error:
        raise _breaks(estimator, f"it uses nothing that it does not require ({error})") from error
    same = _near(found, _advantages(estimator, batch, memory).values_PGL)
    _require(same, estimator, "it uses nothing that it does not require")
    for name in wanted:
        missing: dict[str, Any] = {name: None}
        lacking = dataclasses.replace(batch, **missing)
        _refuses(estimator, lacking, memory, f"a missing {name} is refused together with the estimator's name")


def _near(found: Tensor, wanted: Tensor, tolerance: float = _CLOSE) -> bool:
    scale = float(wanted.abs().max().clamp(min=1.0)) if wanted.numel() else 1.0
    return found.shape == wanted.shape and torch.allclose(found, wanted, rtol=tolerance, atol=tolerance * scale)


def _require(holds: bool, estimator: Estimator, rule: str) -> None:
    if not holds:
        raise _breaks(estimator, rule)


def _breaks(estimator: Estimator, rule: str) -> AssertionError:
    return AssertionError(f"estimator {estimator.spec.name} breaks a rule: {rule}")
