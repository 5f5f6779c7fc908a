"""`reasoning_gym:<name>`: a generator of the reasoning-gym package as a task.

Problems come from three seed ranges, one a split; a question that an earlier range already holds (test before dev
before train) is left out of the later one, so splits are disjoint by text and not only by seed. Scores are 0 or 1.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

from ..errors import ConfigError, DependencyError, TaskError, unknown_name
from ..types import Problem, Verdict
from .base import AbstractTask, Split, as_problem, require_split
from .reasoning_gym_rules import REFUSED, rule_of
from .verifiers.answer_tag import raw_tagged_answer
from .verifiers.countdown import countdown_verdict
from .verifiers.numbers import parse_number, same_number

AnswerFormat = Literal["plain", "answer_tag"]

PREFIX = "reasoning_gym:"
TAG_INSTRUCTION = "\n\nThink step by step, then write the final answer between <answer> and </answer>."
# Splits are filled in this order; a question belongs to the first that draws it.
FILL_ORDER: tuple[Split, ...] = ("test", "dev", "train")
FIRST_SEED = {"test": 1_000_000_000, "dev": 2_000_000_000, "train": 3_000_000_000}
# Draws a split may take per problem before it is given up as too small a generator.
DRAWS_PER_PROBLEM = 4
# The longest gold answer of the package is a few thousand characters; scorers see nothing longer.
MAX_ANSWER_CHARACTERS = 10_000


class ReasoningGymTask(AbstractTask):
    """One dataset of reasoning-gym, verified by the rule that `reasoning_gym_rules` gives it.

    Args:
        dataset: the dataset's name in the package.
        train_size: problems of the training split; small generators may give fewer.
        dev_size: problems of the dev split.
        test_size: problems of the test split.
        answer_format: "plain" takes the whole completion as the answer; "answer_tag" asks for, and reads, the last
            `<answer>...</answer>`.
        completion_length: tokens left for reasoning and answer.
        **options: settings of the dataset itself, e.g. `max_terms=3`.

    Raises:
        DependencyError: reasoning-gym is not installed.
        ConfigError: the dataset is unknown or refused, or an option is not one of its settings.
    """

    def __init__(
        self,
        dataset: str,
        *,
        train_size: int = 1000,
        dev_size: int = 128,
        test_size: int = 256,
        answer_format: AnswerFormat = "plain",
        completion_length: int = 256,
        **options: Any,
    ) -> None:
        if answer_format not in ("plain", "answer_tag"):
            raise ConfigError(unknown_name("answer_format", answer_format, ("plain", "answer_tag")))
        self._sizes: dict[Split, int] = {"train": train_size, "dev": dev_size, "test": test_size}
        if min(self._sizes.values()) < 1:
            raise ConfigError(f"split sizes are {self._sizes}; each must be at least 1")
        self._dataset = dataset
        self._rule = rule_of(dataset)
        self._tagged = answer_format == "answer_tag"
        self._completion_length = completion_length
        self._sources = {
            split: _source(dataset, split, DRAWS_PER_PROBLEM * n, options) for split, n in self._sizes.items()
        }
        self._drawn: dict[Split, list[Problem]] = {split: [] for split in FILL_ORDER}
        self._next: dict[Split, int] = dict.fromkeys(FILL_ORDER, 0)
        self._owner: dict[str, Split] = {}
        self._entry = lru_cache(maxsize=4096)(self._generate)

    @property
    def name(self) -> str:
        """`reasoning_gym:` and the dataset."""
        return PREFIX + self._dataset

    @property
    def completion_length(self) -> int:
        """Tokens left for reasoning and answer; there is no word vocabulary to count in."""
        return self._completion_length

    @property
    def ends_with_eos(self) -> bool:
        """Answers differ in length."""
        return True

    def problems(self, split: Split, limit: int | None = None) -> Sequence[Problem]:
        """The split's problems in seed order, generated as far as needed.

        Training problems need the other two splits first: their questions are left out.

        Raises:
            TaskError: the generator repeats itself so much that nothing is left for the split.
        """
        require_split(split, limit)
        for earlier in FILL_ORDER[: FILL_ORDER.index(split)]:
            self._fill(earlier, self._sizes[earlier])
        wanted = min(limit or self._sizes[split], self._sizes[split])
        self._fill(split, wanted)
        if not self._drawn[split]:
            raise TaskError(
                f"{self.name} has no {split} problem whose question is not in another split "
                f"({self._next[split]} draws); make the splits smaller or the problems harder, e.g. test_size=20"
            )
        return tuple(self._drawn[split][:wanted])

    def gold_completion(self, problem: Problem) -> str:
        """The dataset's answer, in the answer format."""
        return f"<answer>{problem.answer}</answer>" if self._tagged else problem.answer

    def corrupt(self, problem: Problem, completion: str) -> str:
        """The first half of the answer."""
        answer = self._answer_in(completion) or ""
        half = answer[: len(answer) // 2]
        return f"<answer>{half}</answer>" if self._tagged else half

    def score(self, problem: Problem, completion: str) -> Verdict:
        """Apply the dataset's rule; a scorer that raises on the text has refused it."""
        text = self._answer_in(completion)
        if text is None:
            return Verdict(reward=0.0, status="unparsed")
        if self._rule == "expression":
            return countdown_verdict(problem.metadata["numbers_and_target"], text)
        right = self._is_right(problem, text)
        number = parse_number(text) if self._rule == "number" else None
        return Verdict(
            reward=float(right),
            status="right" if right else "wrong",
            answer_key=text if number is None else str(number),
            solution_key=text if right and self._rule in ("scorer", "listed") else None,
        )

    def vocabulary(self) -> tuple[str, ...]:
        """Every word of every prompt and answer, sorted: it takes the whole task to know them."""
        texts = (t for split in FILL_ORDER for p in self.problems(split) for t in (p.prompt, self.gold_completion(p)))
        return tuple(sorted({word for text in texts for word in text.split()}))

    def _fill(self, split: Split, count: int) -> None:
        """Draw until `count` problems of a split are there or its seed range is used up."""
        while len(self._drawn[split]) < count and self._next[split] < len(self._sources[split]):
            index = self._next[split]
            self._next[split] += 1
            problem = self._problem(split, index)
            if problem is not None and self._owner.setdefault(problem.id, split) == split:
                self._drawn[split].append(problem)

    def _problem(self, split: Split, index: int) -> Problem | None:
        """A new problem; None for a question seen before, or whose own gold answer the rule cannot read."""
        entry = self._entry(split, index)
        key = hashlib.blake2b(" ".join(entry["question"].split()).encode(), digest_size=12).hexdigest()
        if f"{self.name}/{key}" in self._owner:
            return None
        metadata: dict[str, Any] = {"split": split, "index": index}
        if self._rule == "expression":
            numbers, target = entry["metadata"]["numbers"], entry["metadata"].get("target", 24)
            metadata["numbers_and_target"] = f"{' '.join(map(str, numbers))}|{target}"
        prompt = entry["question"] + (TAG_INSTRUCTION if self._tagged else "")
        problem = as_problem(self, key, prompt, _collapsed(str(entry["answer"])), metadata)
        return problem if self.score(problem, self.gold_completion(problem)).status == "right" else None

    def _generate(self, split: Split, index: int) -> dict[str, Any]:
        return dict(self._sources[split][index])

    def _is_right(self, problem: Problem, text: str) -> bool:
        if self._rule == "text":
            return text == problem.answer
        if self._rule == "number":
            return text == problem.answer or same_number(text, problem.answer)
        split, index = problem.metadata["split"], problem.metadata["index"]
        entry = self._entry(split, index)
        if self._rule == "listed":
            return text in {_collapsed(answer) for answer in entry["metadata"]["valid_answers"]}
        try:
            return float(self._sources[split].score_answer(text, entry)) >= 1 - 1e-9
        except Exception:
            # Written for well-formed answers; what it cannot digest is not one.
            return False

    def _answer_in(self, completion: str) -> str | None:
        """The answer text; None when it is missing, empty or longer than any answer."""
        answer = raw_tagged_answer(completion) if self._tagged else completion
        if answer is None or len(answer) > MAX_ANSWER_CHARACTERS:
            return None
        return _collapsed(answer) or None


def _source(dataset: str, split: Split, size: int, options: dict[str, Any]) -> Any:
    """The package's generator over a split's seed range."""
    if dataset in REFUSED:
        raise ConfigError(f"{PREFIX}{dataset} is not offered: {REFUSED[dataset]}")
    try:
        package = importlib.import_module("reasoning_gym")
        known = importlib.import_module("reasoning_gym.factory").DATASETS
    except ImportError:
        raise DependencyError(
            f"{PREFIX}{dataset} needs reasoning-gym; install it: pip install 'steprs[tasks]'"
        ) from None
    if dataset not in known:
        raise ConfigError(unknown_name("reasoning-gym dataset", dataset, known))
    try:
        return package.create_dataset(dataset, seed=FIRST_SEED[split], size=size, **options)
    except (TypeError, AssertionError) as error:
        raise ConfigError(f"{PREFIX}{dataset} does not take the options {options}: {error}") from None


def _collapsed(text: str) -> str:
    """Lines kept, runs of white space inside them as one space, empty lines at the ends dropped."""
    return "\n".join(re.sub(r"\s+", " ", line).strip() for line in text.strip().splitlines())
