"""No reward that is not a number gets through, and partial credit does not make a binary task graded."""

import math

import pytest

from steprs.errors import ArgumentError, RewardError
from steprs.tasks.base import AbstractTask
from steprs.tasks.scoring import score_rollouts
from steprs.types import Problem, Verdict

PROBLEMS = [Problem(id=f"numbers/{n}", prompt=str(n), answer=str(n)) for n in range(2)]


class GivenScores(AbstractTask):
    """A completion is the reward it earns."""

    name = "given"
    completion_length = 1

    def __init__(self, binary=True, reward_range=(0.0, 1.0)):
        self._binary, self._range = binary, reward_range

    binary = property(lambda self: self._binary)
    reward_range = property(lambda self: self._range)

    def problems(self, split, limit=None):
        return PROBLEMS[:limit]

    def gold_completion(self, problem):
        return "1"

    def corrupt(self, problem, completion):
        return "0"

    def score(self, problem, completion):
        reward = None if completion == "None" else float(completion)
        return Verdict(reward=reward, status="wrong", answer_key=completion)

    def vocabulary(self):
        return ("0", "1")


@pytest.mark.parametrize("bad", ["None", "nan", "inf", "-inf", "2", "-0.5"])
def test_a_bad_reward_names_the_problem_and_the_rollout(bad):
    with pytest.raises(RewardError, match=r"'numbers/1', rollout 0 .*task\.bad_rewards=mask"):
        score_rollouts(GivenScores(), PROBLEMS, ["1", "0", bad, "0"], 2)


@pytest.mark.parametrize("bad", ["None", "nan", "inf", "7"])
def test_a_bad_reward_is_masked_when_asked(bad):
    rewards = score_rollouts(GivenScores(), PROBLEMS, ["1", bad, "0", "1"], 2, bad_rewards="mask")
    assert rewards.rewards_PG.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert rewards.valid_PG.tolist() == [[True, False], [True, True]]
    assert all(math.isfinite(verdict.reward) for verdict in rewards.verdicts)


def test_a_reward_for_wrong_answers_is_thresholded_in_a_binary_task():
    completions = ["0.01", "0.5", "0.9999999999", "1"]
    rewards = score_rollouts(GivenScores(), PROBLEMS, completions, 2)
    assert rewards.rewards_PG.tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert [verdict.reward for verdict in rewards.verdicts] == [0.0, 0.0, 1.0, 1.0]
    assert rewards.binary


def test_a_graded_task_keeps_its_scores_and_says_so():
    rewards = score_rollouts(GivenScores(binary=False), PROBLEMS, ["0.01", "0.5", "1", "0"], 2)
    assert rewards.rewards_PG.tolist() == [[0.01, 0.5], [1.0, 0.0]]
    assert not rewards.binary


def test_a_range_is_the_task_s_own():
    task = GivenScores(binary=False, reward_range=(-1.0, 3.0))
    assert score_rollouts(task, PROBLEMS, ["-1", "3", "0", "2"], 2).rewards_PG.tolist() == [[-1.0, 3.0], [0.0, 2.0]]
    with pytest.raises(RewardError, match=r"-1\.0\.\.3\.0"):
        score_rollouts(task, PROBLEMS, ["-1", "4", "0", "2"], 2)


def test_float_dust_at_the_end_of_the_range_is_not_an_error():
    rewards = score_rollouts(GivenScores(binary=False), PROBLEMS[:1], ["1.0000000000000002", "0"], 2)
    assert rewards.valid_PG.all()


def test_rows_belong_to_their_problem():
    class Echo(GivenScores):
        def score(self, problem, completion):
            return Verdict(reward=float(problem.answer == completion), status="wrong", answer_key=problem.id)

    rewards = score_rollouts(Echo(), PROBLEMS, ["0", "1", "0", "1"], 2)
    assert rewards.rewards_PG.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert [v.answer_key for v in rewards.verdicts] == ["numbers/0", "numbers/0", "numbers/1", "numbers/1"]


def test_counts_that_do_not_fit_are_an_error():
    with pytest.raises(ArgumentError, match="3 completions for 2 problems of group_size 2; give 4"):
        score_rollouts(GivenScores(), PROBLEMS, ["0"] * 3, 2)


def test_an_unknown_treatment_is_an_error():
    with pytest.raises(ArgumentError, match="Did you mean 'mask'"):
        score_rollouts(GivenScores(), PROBLEMS[:1], ["0"], 1, bad_rewards="masked")
