"""What an advantage estimator is: one update's rollouts in, the factored form of an advantage out.

An estimator is a frozen dataclass whose fields are its settings, with a `Spec` that says what it needs and what holds
for its advantages (`steprs.testing.check_estimator` checks all of it). `estimate` is pure: what it remembers from one
update to the next goes in as `memory` and comes out again, so that a resumed run goes on exactly.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ..advantages.parts import AdvantageParts
from ..advantages.scores import grouped
from ..controls import Groups
from ..errors import ArgumentError, RewardError
from ..risk import check_rewards

Memory = Mapping[str, Tensor]
"""Named float64 tensors that an estimator keeps between updates; written to every checkpoint."""

EMPTY: Memory = MappingProxyType({})

COLLECTORS: Mapping[str, str] = MappingProxyType(
    {
        "state_rewards_PGS": "the verifier's reward of the greedy one-step completion at each state",
        "state_keys_PGS": "a number for each partly decoded canvas, equal for equal ones",
        "answer_ids_PG": "a number for each final answer of a group",
        "reference_rewards_PM": "rewards of the base policy on the same prompts, drawn once and kept",
        "components_PGK": "several rewards of each rollout, named by advantage.components",
        "component_weights_K": "the weight of each of them, from advantage.components",
        "regions_PGL": "which of the components each token belongs to",
    }
)
"""Fields of `EstimatorBatch` that are None unless an estimator requires them, and what fills them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EstimatorBatch:
    """One update's rollouts as estimators see them: P groups of G, whole groups, on one process.

    Attributes:
        rewards_PG: float64; finite where valid.
        valid_PG: bool; false takes a rollout out of its group, whatever its reward says.
        mask_PGL: bool, tokens that count.
        state_PGL: int64, the state that revealed each token (`unmask_step`); -1 = never.
        num_states_PG: int64, states of each rollout.
        progress_PGL: denoising progress of each token in [0, 1].
        weights_PGL: the loss aggregation's weights, 0 where a token does not count.
        logprobs_PGL: log-probability in nats under the sampling distribution, at reveal.
        entropies_PGL: entropy in nats of that distribution.
        block_PGL: int64, decoding block of each token.
        update, updates: number of this update, from 1, and of all.
        seed: of the run.
        row_keys_PG: int64 identity of each rollout, for draws that do not depend on its place in the batch.
        all_reduce: sums a float64 tensor over processes; None on one process.
        state_rewards_PGS: float64 [P, G, S + 1]; entry s is the reward of the greedy completion of state s, entry
            `num_states` that of the rollout itself, and what is behind it repeats the last. Decoding in blocks measures
            at block borders only, and the states of a block share the value of its beginning.
        state_keys_PGS: int64 [P, G, S + 1], key of state s; entry `num_states` is the finished rollout.
        answer_ids_PG: int64, equal for equal final answers of a group; -1 = unparsed.
        reference_rewards_PM: float64 [P, M].
        components_PGK: float64 [P, G, K].
        component_weights_K: float64, as configured.
        regions_PGL: int64, which component a token belongs to, for estimators that give each text block its own
            reward; -1 = none.
    """

    rewards_PG: Tensor
    valid_PG: Tensor
    mask_PGL: Tensor
    state_PGL: Tensor
    num_states_PG: Tensor
    progress_PGL: Tensor
    weights_PGL: Tensor
    logprobs_PGL: Tensor
    entropies_PGL: Tensor
    block_PGL: Tensor
    update: int = 1
    updates: int = 1
    seed: int = 0
    row_keys_PG: Tensor | None = None
    all_reduce: Callable[[Tensor], Tensor] | None = None
    state_rewards_PGS: Tensor | None = None
    state_keys_PGS: Tensor | None = None
    answer_ids_PG: Tensor | None = None
    reference_rewards_PM: Tensor | None = None
    components_PGK: Tensor | None = None
    component_weights_K: Tensor | None = None
    regions_PGL: Tensor | None = None

    def total(self, value: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""
        return value if self.all_reduce is None else self.all_reduce(value)

    def groups(self) -> Groups:
        """Which rows, in flat form, belong together; masked rollouts belong to nothing."""
        count, group = self.rewards_PG.shape
        rows_PG = torch.arange(count * group, device=self.rewards_PG.device).view(count, group)
        if bool(self.valid_PG.all()):
            return Groups(index_B=rows_PG.flatten() // group, count=count, blocks=(rows_PG,) if count else ())
        return grouped(rows_PG.flatten() // group, self.valid_PG.flatten())

    def cleaned(self) -> EstimatorBatch:
        """The batch with 0 for all numbers of rollouts that are not valid and of tokens that do not count.

        A masked reward is often NaN, and NaN times 0 is NaN: what arithmetic does not see must not be there.
        """
        counted_PGL = self.mask_PGL & self.valid_PG.unsqueeze(-1)
        if bool(counted_PGL.all()):
            return self
        changed: dict[str, Any] = {"rewards_PG": self.rewards_PG.masked_fill(~self.valid_PG, 0)}
        for name in ("state_rewards_PGS", "components_PGK"):
            given = getattr(self, name)
            if given is not None:
                changed[name] = given.masked_fill(~self.valid_PG.unsqueeze(-1), 0)
        for name in ("logprobs_PGL", "entropies_PGL"):
            changed[name] = getattr(self, name).masked_fill(~counted_PGL, 0)
        return dataclasses.replace(self, **changed)

    def prompts(self, index: Tensor | slice) -> EstimatorBatch:
        """The groups at `index`, in that order."""
        # Fields [P, ...] are those whose name has the axis; component weights belong to no prompt.
        changed = {
            entry.name: getattr(self, entry.name)[index]
            for entry in dataclasses.fields(self)
            if "_P" in entry.name and isinstance(getattr(self, entry.name), Tensor)
        }
        return dataclasses.replace(self, **changed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    """What an estimator needs, what holds for its advantages, and where it comes from.

    Attributes:
        name: in configurations.
        title: a few words.
        requires: fields of `EstimatorBatch`, of those in `COLLECTORS`, without which it cannot work.
        granularity: the finest thing whose advantage differs: "sequence", "state" or "token".
        coupling: what one group's advantages depend on: its own "group", the "batch" over all processes, or "history".
        zero_sum: over which rollouts sum(A) is 0 at equal lengths: "group", "state" (in each state's group), "joint"
            (over rollouts and states together), "none".
        alive: whether a group of equal rewards can have advantages.
        shift_invariant: whether adding a number to all rewards of a group changes nothing.
        reweights: whether the sequence score holds a weight, so that normalising afterwards would cancel it.
        binary: whether it means something for rewards 0 and 1 only; others are refused then.
        role: "baseline", "reweight", "credit" (over states or tokens), "objective" (another expectation is followed),
            "mask".
        extra_forwards: what it costs beside centred GRPO, in words; "none".
        verifier_calls: the same for verifier calls.
        source: where the formula is from.
        read: what of the source was read: "paper", "code", "paper and code", "secondary" (as described in secondary
            sources), "ours".
        fidelity: "exact", "ported" (to denoising states), "variant".
        notes: how it differs from its source.
    """

    name: str
    title: str
    requires: tuple[str, ...] = ()
    granularity: Literal["sequence", "state", "token"] = "sequence"
    coupling: Literal["group", "batch", "history"] = "group"
    zero_sum: Literal["group", "state", "joint", "none"] = "group"
    alive: bool = False
    shift_invariant: bool = False
    reweights: bool = False
    binary: bool = False
    role: Literal["baseline", "reweight", "credit", "objective", "mask"] = "reweight"
    extra_forwards: str = "none"
    verifier_calls: str = "none"
    source: str = ""
    read: Literal["paper", "code", "paper and code", "secondary", "ours"] = "paper"
    fidelity: Literal["exact", "ported", "variant"] = "exact"
    notes: str = ""

    def __post_init__(self) -> None:
        """Refuse a requirement that nothing can fill, and a promise about rewards that are refused."""
        unknown = sorted(set(self.requires) - set(COLLECTORS))
        if unknown:
            raise ArgumentError(f"estimator {self.name} requires {unknown[0]}; collectors fill {', '.join(COLLECTORS)}")
        if self.binary and self.shift_invariant:
            raise ArgumentError(f"estimator {self.name} takes rewards 0 and 1 only, which cannot be shifted")


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """What `Estimator.estimate` gives.

    Attributes:
        parts: the advantage in factored form.
        memory: for the next update.
        info: plain numbers to log as `estimator/NAME`.
    """

    parts: AdvantageParts
    memory: Memory = field(default_factory=dict)
    info: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Estimator(ABC):
    """An estimator and its settings. A new one is a file, a line in the registry and a row in the conformance test."""

    spec: ClassVar[Spec]

    @abstractmethod
    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        """Advantages of one update's rollouts. Pure; called through `steprs.estimators.pipeline.estimate`.

        Args:
            batch: with every field that `spec.requires`.
            memory: `initial_memory()` before the first update, then what the last call gave.
        """

    def initial_memory(self) -> Memory:
        """The memory before the first update."""
        return EMPTY

    def requires(self) -> tuple[str, ...]:
        """Collected fields these settings need; the spec's, unless settings add to them."""
        return self.spec.requires

    def smallest_group(self) -> int:
        """Rollouts that a group must have under these settings; smaller groups are refused."""
        return 2

    def declare(self, **changes: Any) -> None:
        """Say, from `__post_init__`, what else than the class's spec holds with these settings.

        The spec of the class is that of its defaults.
        """
        object.__setattr__(self, "spec", dataclasses.replace(self.spec, **changes))

    def settings(self) -> dict[str, Any]:
        """Settings as plain values."""
        return {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}


def require_fields(estimator: Estimator, batch: EstimatorBatch) -> None:
    """Refuse a batch that lacks what the estimator needs.

    Raises:
        ArgumentError: names the estimator, the field and what fills it.
    """
    for name in estimator.requires():
        if getattr(batch, name) is None:
            raise ArgumentError(
                f"estimator {estimator.spec.name} needs {name}, {COLLECTORS[name]}; `steprs train` collects it by "
                f"itself, in a trainer of your own fill EstimatorBatch.{name}"
            )


def require_rewards(estimator: Estimator, batch: EstimatorBatch) -> None:
    """Refuse groups too small for the settings, rewards that are no numbers, and graded ones for a binary estimator.

    Args:
        estimator: with its settings.
        batch: as `EstimatorBatch.cleaned` gives it, so that rewards of masked rollouts are not looked at.

    Raises:
        ArgumentError: names the estimator and what was given.
        RewardError: a reward that the estimator looks at is NaN or infinite; names its place.
    """
    name, group = estimator.spec.name, batch.rewards_PG.shape[1]
    if group < estimator.smallest_group():
        raise ArgumentError(
            f"estimator {name} needs groups of at least {estimator.smallest_group()} rollouts with these settings, "
            f"these have {group}; raise the group size or lower the setting"
        )
    check_rewards(batch.rewards_PG)
    for field_name in estimator.requires():
        if field_name in _REWARDS:
            _require_finite(field_name, getattr(batch, field_name))
    if estimator.spec.binary:
        graded_PG = (batch.rewards_PG != 0) & (batch.rewards_PG != 1) & batch.valid_PG
        if bool(graded_PG.any()):
            raise ArgumentError(
                f"estimator {name} is defined for rewards 0 and 1, but one is "
                f"{float(batch.rewards_PG[graded_PG][0]):g}; threshold the rewards, or take an estimator for any "
                "rewards (`steprs estimators list` says which)"
            )


_REWARDS = ("state_rewards_PGS", "components_PGK", "reference_rewards_PM", "component_weights_K")


def _require_finite(name: str, values: Tensor) -> None:
    bad = ~torch.isfinite(values)
    if bool(bad.any()):
        place = bad.nonzero()[0].tolist()
        raise RewardError(
            f"{name}{place} is {float(values[tuple(place)])}; all of {name} must be finite but for masked rollouts: "
            "fix the verifier or mask the sample"
        )


def refuse_unfit(holds: bool, message: str) -> None:
    """Raise `ArgumentError(message)` unless a setting is fit.

    Raises:
        ArgumentError: as said.
    """
    if not holds:
        raise ArgumentError(message)


def zeros_like_groups(batch: EstimatorBatch) -> Tensor:
    """float64 [P, G] of zeros."""
    return torch.zeros(batch.rewards_PG.shape, dtype=torch.float64, device=batch.rewards_PG.device)
