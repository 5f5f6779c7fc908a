"""Word problems: a question, a written solution and a final answer. What `gsm8k` and `math` share."""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...types import Problem
from ..base import Trace
from .base import AbstractFileTask
from .columns import as_text, take, take_filled
from .equations import equations_in
from .loading import Item

# Calculator notes inside GSM8K's solutions, `<<48/2=24>>`.
_NOTES = re.compile(r"<<[^<>\n]*>>")
# What would end or begin an answer before its time.
_TAGS = re.compile(r"</?(?:answer|reasoning)>")


@dataclass(frozen=True, kw_only=True)
class AbstractTextTask(AbstractFileTask):
    """Rows of a question and an answer, with the way to it where the file has one.

    Attributes:
        question_column, answer_column, solution_column: what the columns are called, where not as usual.
    """

    question_column: str | None = None
    answer_column: str | None = None
    solution_column: str | None = None

    question_names: ClassVar[tuple[str, ...]] = ("question", "problem", "prompt")
    answer_names: ClassVar[tuple[str, ...]] = ("answer",)
    solution_names: ClassVar[tuple[str, ...]] = ("solution", "rationale")

    def read_row(self, values: Mapping[str, Any]) -> Item:
        """Question, answer and the solution without its answer marks."""
        question = as_text(take(values, self.question_names, self.question_column), "the question")
        solution = take_filled(values, self.solution_names, self.solution_column)
        answer, reasoning = self.read_answer(values, solution if isinstance(solution, str) else "")
        plain = _TAGS.sub("", _NOTES.sub("", reasoning)).replace("####", "").strip()
        key = hashlib.blake2b(" ".join(question.split()).encode(), digest_size=12).hexdigest()
        metadata = {"solution": plain} if plain else {}
        return Item(key=key, question=question, answer=answer, metadata=metadata, value=self.value_of(answer))

    @abstractmethod
    def value_of(self, answer: str) -> str:
        """Equal for answers that are the same, however they are written."""

    @abstractmethod
    def read_answer(self, values: Mapping[str, Any], solution: str) -> tuple[str, str]:
        """The gold answer and the reasoning that leads to it.

        Raises:
            RowFault: there is no answer, or none of the task's kind.
        """

    def gold_completion(self, problem: Problem) -> str:
        """The written solution, then the answer in its form."""
        return self.format.write(str(problem.metadata.get("solution", "")), problem.answer)

    def trace(self, problem: Problem, completion: str) -> Trace | None:
        """The equations between numbers, true or not; None where there are none."""
        del problem
        found = equations_in(completion)
        return found if found.equations else None
