"""`gsm8k`: word problems whose answer is a number, in GSM8K's files or any with a question and an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...types import Problem, Verdict
from ..verifiers.gsm8k import marked_span
from ..verifiers.numbers import Quantity, read_quantity
from .columns import RowFault, as_text, take
from .text import AbstractTextTask


@dataclass(frozen=True, kw_only=True)
class Gsm8kTask(AbstractTextTask):
    """Word problems with a number for an answer (columns `question` and `answer`, which ends in `#### number`).

    The answer may also be a bare number. It is compared exactly: thousands separators, a currency sign, a percent sign
    or one unit word do not change a number, and `3/4` equals `0.75`.

    Raises:
        ArgumentError: see `AbstractFileTask`.
    """

    name = "gsm8k"
    allowed_formats = ("answer_tag", "boxed", "hash", "number", "tagged_box")

    def read_answer(self, values: Mapping[str, Any], solution: str) -> tuple[str, str]:
        """The number behind the last `####`, or the whole column where it has no such mark."""
        text = as_text(take(values, self.answer_names, self.answer_column), "the answer")
        span = marked_span(text)
        if span is None and "####" in text:
            raise RowFault(f"no number behind #### in the answer {text[-40:]!r}")
        answer = text[slice(*span)].strip() if span else text
        number = _bare(answer)
        if number is None:
            raise RowFault(f"the answer {answer[:60]!r} is not a number")
        return number, text[: span[0]] if span else solution

    def value_of(self, answer: str) -> str:
        """The number."""
        quantity = read_quantity(answer)
        return answer if quantity is None else str(quantity.value)

    def score(self, problem: Problem, completion: str) -> Verdict:
        """Compare the number in the answer's place with the gold one; what is no number is unparsed."""
        given, gold = self._number(completion), read_quantity(problem.answer)
        if given is None or gold is None:
            return Verdict(reward=0.0, status="unparsed")
        right = given.value == gold.value
        return Verdict(reward=float(right), status="right" if right else "wrong", answer_key=str(given.value))

    def corrupt(self, problem: Problem, completion: str) -> str:
        """The same solution with a number one larger."""
        gold = read_quantity(problem.answer)
        assert gold is not None, "read_row takes numbers only"
        return self.format.write(str(problem.metadata.get("solution", "")), str(gold.value + 1))

    def _number(self, completion: str) -> Quantity | None:
        answer = self.format.answer(completion)
        return None if answer is None else read_quantity(answer, fractions=self.answer_format != "hash")


def _bare(answer: str) -> str | None:
    """The answer without words behind its number; None where it is no number.

    A gold completion that ended in a unit would be right without its last word, and so be no test of the verifier.
    """
    quantity, words = read_quantity(answer), answer.split()
    if quantity is None:
        return None
    starts = (" ".join(words[:count]) for count in range(1, len(words) + 1))
    return next((start for start in starts if (read := read_quantity(start)) and read.value == quantity.value), answer)
