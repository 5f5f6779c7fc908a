"""What all built-in tasks have in common: splits, keys and reproducible problems."""

import hashlib

import pytest

from steprs.errors import ArgumentError
from steprs.tasks import TASKS, get_task
from steprs.tasks.base import SPLITS, hash_order, split_of, unit_hash
from steprs.tasks.listing import validate_task
from steprs.tasks.sudoku4 import canonical_clues
from steprs.testing.tasks import check_task

# Problems of train, dev and test, and a digest of all ids in order. Changing either moves problems between training
# and test for everybody: it needs a new task name, or a reason in the changelog.
GOLDEN_SPLITS = {
    "chain_arithmetic": ((7141, 943, 916), "d21fcf36af3d0b84"),
    "countdown": ((7424, 894, 903), "ea68fccdc9ae4336"),
    "sudoku4": ((4777, 637, 586), "47e90b56b3322dbf"),
}


def canonical(name, problem):
    """The problem without the freedom in showing it, worked out from the prompt alone."""
    words = problem.prompt.split()
    if name == "countdown":
        return (*sorted(words[:-1]), "to", words[-1])
    if name == "sudoku4":
        return canonical_clues("".join(words))
    first, op, second, *rest = words
    return (*(sorted((first, second)) if op != "-" else (first, second)), op, *rest)


@pytest.mark.parametrize("name", TASKS)
def test_splits_are_disjoint_by_canonical_problem(name):
    task = get_task(name)
    seen = {}
    for split in SPLITS:
        for problem in task.problems(split):
            assert seen.setdefault(canonical(name, problem), split) == split
    assert len(seen) == sum(len(task.problems(split)) for split in SPLITS)


@pytest.mark.parametrize("name", TASKS)
def test_ids_are_unique(name):
    ids = [problem.id for split in SPLITS for problem in get_task(name).problems(split)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", TASKS)
def test_splits_are_the_committed_ones(name):
    task = get_task(name)
    lines = [f"{split} {problem.id} {problem.prompt}" for split in SPLITS for problem in task.problems(split)]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    assert (tuple(len(task.problems(split)) for split in SPLITS), digest) == GOLDEN_SPLITS[name]


@pytest.mark.parametrize("name", TASKS)
def test_task_conforms(name):
    check_task(lambda: get_task(name), limit=25)


@pytest.mark.parametrize("name", TASKS)
def test_every_gold_answer_of_the_small_splits_is_taken_and_its_corruptions_refused(name):
    task = get_task(name)
    report = validate_task(task, 300)
    assert report["problems"] == report["gold_right"] == 900
    assert report["corrupted"] == report["corrupted_refused"] == 2700
    assert report["failures"] == []
    assert report["passed"]


def test_split_shares_are_the_stated_ones():
    keys = [str(n) for n in range(20_000)]
    shares = {split: sum(split_of(key) == split for key in keys) / len(keys) for split in SPLITS}
    assert shares == pytest.approx({"train": 0.8, "dev": 0.1, "test": 0.1}, abs=0.01)


def test_hash_is_uniform_and_purposes_are_independent():
    values = [(unit_hash(str(n), "split"), unit_hash(str(n), "order")) for n in range(5_000)]
    for axis in (0, 1):
        assert sum(value[axis] for value in values) / 5_000 == pytest.approx(0.5, abs=0.015)
    covariance = sum((a - 0.5) * (b - 0.5) for a, b in values) / 5_000
    assert abs(covariance) < 0.005


def test_hash_is_the_committed_one():
    assert unit_hash("1 2 3 4>10", "split") == pytest.approx(0.7990323002907658, abs=1e-15)


def test_one_more_item_leaves_the_order_of_the_others_alone():
    keys = [str(n) for n in range(100)]
    shuffled = hash_order(keys, keys)
    assert shuffled != keys
    assert sorted(shuffled) == sorted(keys)
    assert [key for key in hash_order([*keys, "new"], [*keys, "new"]) if key != "new"] == shuffled


@pytest.mark.parametrize("name", TASKS)
def test_a_wrong_split_or_limit_is_an_error(name):
    task = get_task(name)
    with pytest.raises(ArgumentError, match=r"'tests'.*Did you mean 'test'"):
        task.problems("tests")
    with pytest.raises(ArgumentError, match="limit is 0"):
        task.problems("test", 0)
