"""Estimators that depend on the batch, on the update, or on what came before, over several updates."""

import math

import pytest
import torch

from steprs.estimators import get_estimator
from steprs.estimators.pipeline import estimate
from steprs.testing.estimators import example_batch


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def run(estimator, updates, memory=None, **changes):
    """Values [P, G], memory and what the estimator says, for each of these updates, given as lists of groups."""
    memory = estimator.initial_memory() if memory is None else memory
    found = []
    for number, rewards in enumerate(updates, 1):
        batch = example_batch(rewards, length=1, update=number, updates=len(updates), **changes)
        info = estimator.estimate(batch, memory).info
        made, memory = estimate(estimator, batch, memory)
        found.append((made.values_PGL[:, :, 0].tolist(), memory, info))
    return found


# One group of (1, 0, 0, 0), z = (sqrt 3, -1 / sqrt 3 ..), beside one that brings the batch to 1/8, 1/2 and 5/8.
EASIER = [[[1, 0, 0, 0], [0] * 4], [[1, 0, 0, 0], [1, 1, 1, 0]], [[1, 0, 0, 0], [1] * 4]]


class TestAGRAE:
    def test_weights_move_with_the_accuracy_of_the_batch(self):
        found = run(get_estimator("a-grae"), EASIER)
        for (values, memory, info), accuracy in zip(found, (0.125, 0.5, 0.625), strict=True):
            # 1 / sqrt p = 2, 1 / sqrt(1 - p) = 2 / sqrt 3
            weight = accuracy + (1 - accuracy) / math.sqrt(3)
            assert info["batch_accuracy"] == accuracy
            assert values[0][0] == pytest.approx(accuracy * weight * math.sqrt(3), abs=1e-14)
            assert values[0][1] == pytest.approx(-weight / math.sqrt(3), abs=1e-14)
            assert dict(memory) == {}

    def test_alpha_is_where_holding_back_ends(self):
        found = run(get_estimator("a-grae", alpha=0.5), EASIER)
        assert [sum(values[0]) for values, _, _ in found] == pytest.approx([
            -0.75 * (0.125 + 0.875 / math.sqrt(3)) * math.sqrt(3), 0.0, 0.0
        ], abs=1e-14)  # fmt: skip


# Accuracies 1/4, 3/4, 1/2, 7/8; the first group is always (1, 0).
UPDATES = [[[1, 0], [0, 0]], [[1, 0], [1, 1]], [[1, 0], [1, 0]], [[1, 0], [1, 1], [1, 1], [1, 1]]]


class TestHADW:
    def test_soft_beliefs_by_hand(self):
        found = run(get_estimator("ha-dw", window=2, eta=2.0), UPDATES)
        # 1: believes its own 1/4, learns 1/4 (h = 1). 2: prior 1/4, learns (1/4 + 3/4) / 2 (h = 1/2).
        # 3: prior 1/2; the window (1/4, 1/2) has std 1/8, h = 1/4, accuracy 1/2 changes nothing.
        # 4: prior 1/2; the window (1/2, 1/2) has std 0: the belief stands still, although all but one are right.
        assert [info["belief"] for _, _, info in found] == [0.25, 0.25, 0.5, 0.5]
        assert [info["belief_rate"] for _, _, info in found] == [1.0, 0.5, 0.25, 0.0]
        assert [memory["belief"].item() for _, memory, _ in found] == [0.25, 0.5, 0.5, 0.5]
        assert [memory["window"].tolist() for _, memory, _ in found] == [[0.25], [0.25, 0.5], [0.5, 0.5], [0.5, 0.5]]
        # z = (1, -1); easier than believed by 1/4 twice, then exactly as believed.
        for (values, _, _), gap in zip(found, (0.25, 0.25, 0.0, 0.0), strict=True):
            assert values[0] == pytest.approx([1.3 * math.exp(-gap), -1.3 * math.exp(gap)], abs=1e-15)

    def test_hard_beliefs_are_the_mean_of_the_last_accuracies(self):
        found = run(get_estimator("ha-dw", belief="hard", window=2), UPDATES)
        assert [info["belief"] for _, _, info in found] == [0.25, 0.25, 0.5, 0.625]
        assert [memory["belief"].item() for _, memory, _ in found] == [0.25, 0.5, 0.625, 0.6875]
        assert found[-1][1]["window"].tolist() == [0.5, 0.875]

    def test_a_rate_above_1_is_1(self):
        memory = {"belief": tensor([1.0]), "window": tensor([0.0, 1.0])}
        found = run(get_estimator("ha-dw", window=2, eta=50.0), UPDATES[:1], memory)
        assert found[0][2]["belief_rate"] == 1.0
        assert found[0][1]["belief"].item() == 0.25

    def test_a_resumed_run_goes_on_exactly(self):
        estimator = get_estimator("ha-dw", window=2)
        whole = run(estimator, UPDATES)
        kept = {name: tensor(value.tolist()) for name, value in whole[1][1].items()}
        resumed = run(estimator, UPDATES[2:], kept)
        assert [values for values, _, _ in resumed] == [values for values, _, _ in whole[2:]]
        assert all(torch.equal(resumed[-1][1][name], whole[-1][1][name]) for name in kept)

    def test_the_memory_given_is_left_as_it_was(self):
        memory = {"belief": tensor([0.3]), "window": tensor([0.1, 0.3])}
        run(get_estimator("ha-dw", window=2), UPDATES[:1], memory)
        assert memory["belief"].tolist() == [0.3]
        assert memory["window"].tolist() == [0.1, 0.3]

    @pytest.mark.parametrize("belief", ["soft", "hard"])
    def test_an_update_whose_rollouts_are_all_masked_teaches_nothing(self, belief):
        estimator = get_estimator("ha-dw", belief=belief, window=2)
        nothing = {"valid_PG": torch.zeros(2, 2, dtype=torch.bool)}
        for before in (estimator.initial_memory(), run(estimator, UPDATES[:1])[0][1]):
            values, after, _ = run(estimator, UPDATES[1:2], before, **nothing)[0]
            assert values == [[0.0, 0.0], [0.0, 0.0]]
            assert {name: kept.tolist() for name, kept in after.items()} == {
                name: kept.tolist() for name, kept in before.items()
            }

    def test_a_process_without_rollouts_learns_from_the_others(self):
        estimator, nothing = get_estimator("ha-dw"), {"valid_PG": torch.zeros(2, 2, dtype=torch.bool)}
        more = lambda sums: sums + tensor([3.0, 4.0])  # noqa: E731
        _, memory, info = run(estimator, UPDATES[:1], all_reduce=more, **nothing)[0]
        assert memory["belief"].item() == info["belief"] == 0.75

    def test_other_processes_are_part_of_the_batch(self):
        more = lambda sums: sums + tensor([4.0, 4.0])  # noqa: E731
        found = run(get_estimator("ha-dw"), UPDATES[:1], all_reduce=more)
        assert found[0][2]["batch_accuracy"] == 0.625


class TestSchedules:
    def test_pkpo_moves_k_from_the_first_update_to_the_last(self):
        estimator = get_estimator("pkpo", k=4, k_end=1)
        rewards = [[1, 0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0, 0, 0]]
        found = run(estimator, [rewards] * 4)
        assert [info["k"] for _, _, info in found] == [4, 3, 2, 1]
        for (values, _, _), k in zip(found, (4, 3, 2, 1), strict=True):
            assert values == run(get_estimator("pkpo", k=k), [rewards])[0][0]

    def test_a_run_of_one_update_has_the_first_k(self):
        assert get_estimator("pkpo", k=4, k_end=1).k_at(1, 1) == 4

    def test_capo_keeps_positive_advantages_in_its_first_share_of_updates_only(self):
        found = run(get_estimator("capo", share=0.5, base="centred"), [[[1, 0, 0, 0]]] * 4)
        first, later = [0.75, 0.0, 0.0, 0.0], [0.75, -0.25, -0.25, -0.25]
        assert [values[0] for values, _, _ in found] == [first, first, later, later]
        assert [info["imitates"] for _, _, info in found] == [1, 1, 0, 0]
