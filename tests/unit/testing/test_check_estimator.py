"""The conformance check passes an estimator of one's own and finds each kind of broken one."""

import dataclasses
from typing import ClassVar

import pytest
import torch

from steprs.advantages.parts import AdvantageParts
from steprs.errors import ArgumentError
from steprs.estimators.base import Estimate, Estimator, EstimatorBatch, Memory, Spec
from steprs.estimators.groups import centred, mean_of_batch, pass_rate, right, size
from steprs.testing import check_estimator


@dataclasses.dataclass(frozen=True, kw_only=True)
class Own(Estimator):
    """A = (r - p)^3: an estimator that ships nowhere."""

    power: int = 3

    spec: ClassVar[Spec] = Spec(name="own", title="mine", zero_sum="none", shift_invariant=True, role="objective")

    def estimate(self, batch: EstimatorBatch, memory: Memory) -> Estimate:
        return self.made(centred(batch) ** self.power, memory)

    def made(self, score_PG, memory, **parts):
        return Estimate(parts=AdvantageParts(sequence=score_PG, **parts), memory=memory)


def test_one_of_your_own_passes():
    check_estimator(Own())
    check_estimator(Own(power=5))


def broken(estimate, *, memory=None, **spec):
    """`Own` with another `estimate` and changes of its spec."""
    kind = type("Broken", (Own,), {
        "estimate": lambda self, batch, kept: estimate(self, batch, kept),
        "initial_memory": lambda self: memory or {},
        "spec": dataclasses.replace(Own.spec, **spec),
    })  # fmt: skip
    return kind()


def own(self, batch, memory):
    return Own.estimate(self, batch, memory)


def nan(self, batch, memory):
    return self.made(centred(batch) * (pass_rate(batch) - 0.5).log(), memory)


def first_is_special(self, batch, memory):
    return self.made(centred(batch) * (1 + torch.eye(1, batch.rewards_PG.shape[1])), memory)


def uses_the_answers(self, batch, memory):
    return self.made(centred(batch) * (batch.answer_ids_PG >= 0), memory)


def uses_the_answers_if_there(self, batch, memory):
    return own(self, batch, memory) if batch.answer_ids_PG is None else uses_the_answers(self, batch, memory)


def looks_at_other_prompts(self, batch, memory):
    return self.made((batch.rewards_PG - mean_of_batch(batch)) * batch.valid_PG, memory)


def counts_on_one_process(self, batch, memory):
    return self.made(centred(batch) * right(batch).sum() / size(batch).sum(), memory)


def counts_masked_rollouts(self, batch, memory):
    return self.made(centred(batch) / batch.rewards_PG.shape[1], memory)


def remembers_in_place(self, batch, memory):
    memory["count"].add_(1)
    return self.made(centred(batch) * memory["count"], memory)


def remembers_in_float32(self, batch, memory):
    return self.made(centred(batch), {"count": torch.ones(1)})


def draws_without_a_seed(self, batch, memory):
    return self.made(centred(batch) * torch.rand(()), memory)


def favours_the_first_tokens(self, batch, memory):
    return self.made(centred(batch), memory, token_weight=1 - batch.progress_PGL / 2)


def weighs_and_hides_it(self, batch, memory):
    return self.made(centred(batch) / (pass_rate(batch) + 0.1), memory)


def refuses_graded_rewards(self, batch, memory):
    if bool(((batch.rewards_PG != 0) & (batch.rewards_PG != 1)).any()):
        raise ArgumentError("own takes rewards 0 and 1")
    return own(self, batch, memory)


BROKEN = [
    (nan, {}, "advantages are finite"),
    (first_is_special, {}, "permuting rollouts permutes advantages"),
    (own, {"zero_sum": "state"}, "advantages sum to 0 over the state"),
    (own, {"alive": True}, "a group of equal rewards can have advantages, as declared"),
    (looks_at_other_prompts, {"coupling": "batch", "shift_invariant": True}, "has no advantages, as declared"),
    (looks_at_other_prompts, {"alive": True}, "a group's advantages are its own business"),
    (own, {"coupling": "batch"}, "what is declared to depend on the batch does"),
    (own, {"coupling": "history"}, "what is declared to depend on history does"),
    (counts_on_one_process, {"coupling": "batch", "shift_invariant": False}, "two processes give the"),
    (counts_masked_rollouts, {}, "a masked rollout is as if it were not there"),
    (uses_the_answers, {}, "it uses nothing that it does not require"),
    (uses_the_answers_if_there, {}, "it uses nothing that it does not require"),
    (remembers_in_place, {"memory": {"count": torch.zeros(1).double()}, "coupling": "history"}, "the same bits"),
    (remembers_in_float32, {"coupling": "history"}, "memory holds float64 tensors"),
    (draws_without_a_seed, {}, "the same rollouts give the same bits"),
    (favours_the_first_tokens, {}, "a sequence's tokens have one advantage"),
    (weighs_and_hides_it, {"reweights": True, "shift_invariant": False}, "normalising after a reweighting"),
    (weighs_and_hides_it, {}, "a shift of all rewards changes nothing"),
    (refuses_graded_rewards, {}, "rewards other than 0 and 1 are taken, as declared"),
]  # fmt: skip


@pytest.mark.parametrize(("estimate", "changes", "rule"), BROKEN, ids=[f"{r[0].__name__} {r[1]}" for r in BROKEN])
def test_a_broken_one_is_caught(estimate, changes, rule):
    with pytest.raises(AssertionError, match=f"estimator own breaks a rule: .*{rule}"):
        check_estimator(broken(estimate, **changes))


def test_a_spec_that_contradicts_itself_is_refused():
    with pytest.raises(ArgumentError, match="which cannot be shifted"):
        Spec(name="own", title="mine", binary=True, shift_invariant=True)
    with pytest.raises(ArgumentError, match="requires colour"):
        Spec(name="own", title="mine", requires=("colour",))


def test_the_pipeline_refuses_what_the_spec_and_settings_rule_out():
    check_estimator(broken(own, binary=True, shift_invariant=False))
    check_estimator(type("Large", (Own,), {"smallest_group": lambda self: 3})())
