"""The conformance check finds each kind of broken task."""

import dataclasses

import pytest

from steprs.tasks import get_task
from steprs.testing.tasks import check_task


class Broken:
    """A sound task with one method replaced."""

    def __init__(self, **replaced):
        self._task = get_task("sudoku4", size=60)
        self.__dict__.update(replaced)

    def __getattr__(self, attribute):
        return getattr(self._task, attribute)


def score_with(function):
    task = get_task("sudoku4", size=60)
    return lambda problem, completion: function(task.score(problem, completion), completion)


def always_right(verdict, completion):
    return dataclasses.replace(verdict, status="right", answer_key="x", reward=1.0)


def raises_on_depth(verdict, completion):
    if completion.startswith("(("):
        raise RecursionError("too deep")
    return verdict


def never_right(verdict, completion):
    return dataclasses.replace(verdict, status="wrong", answer_key="x", reward=0.0)


def one_key(verdict, completion):
    return verdict if verdict.answer_key is None else dataclasses.replace(verdict, answer_key="x")


def no_number(verdict, completion):
    return dataclasses.replace(verdict, reward=float("nan"))


def keyless(verdict, completion):
    return dataclasses.replace(verdict, answer_key=None)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (always_right, "takes the corrupted completion"),
        (never_right, "gold completion of .* is wrong"),
        (raises_on_depth, "score raised RecursionError"),
        (one_key, "answer_key 'x' is both"),
        (no_number, "is not a number"),
        (keyless, "with answer_key None"),
    ],
)
def test_a_broken_verifier_is_found(function, message):
    with pytest.raises(AssertionError, match=message):
        check_task(lambda: Broken(score=score_with(function)), limit=3)


def raises_on_an_empty_text(problem, completion):
    return completion.split()[0] and None


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"trace": raises_on_an_empty_text}, "reading .* raised IndexError"),
        ({"answer_span": lambda problem, text: (0, len(text) + 1)}, "lies outside"),
    ],
)
def test_a_broken_reading_is_found(replaced, message):
    with pytest.raises(AssertionError, match=message):
        check_task(lambda: Broken(**replaced), limit=3)


def test_overlapping_splits_are_found():
    sound = get_task("sudoku4", size=60)
    with pytest.raises(AssertionError, match="already in train"):
        check_task(lambda: Broken(problems=lambda split, limit=None: sound.problems("train", limit)), limit=3)


def test_problems_that_change_between_builds_are_found():
    sound = get_task("sudoku4", size=60)
    builds = iter([1, -1])

    def make():
        step = next(builds)
        return Broken(problems=lambda split, limit=None: sound.problems(split)[::step][:limit])

    with pytest.raises(AssertionError, match="differs between two builds"):
        check_task(make, limit=3)


def test_a_limit_that_is_not_a_beginning_is_found():
    sound = get_task("sudoku4", size=60)
    with pytest.raises(AssertionError, match="not the beginning"):
        check_task(lambda: Broken(problems=lambda split, limit=None: sound.problems(split)[-(limit or 0) :]), limit=3)


def test_a_missing_word_is_found():
    with pytest.raises(AssertionError, match=r"not in the vocabulary: \."):
        check_task(lambda: Broken(vocabulary=lambda: ("1", "2", "3", "4")), limit=3)


def test_metadata_that_is_not_json_is_found():
    sound = get_task("sudoku4", size=60)

    def problems(split, limit=None):
        return [dataclasses.replace(p, metadata={"clues": {1, 2}}) for p in sound.problems(split, limit)]

    with pytest.raises(AssertionError, match="does not survive JSON"):
        check_task(lambda: Broken(problems=problems), limit=3)
