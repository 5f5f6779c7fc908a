r"""`math`: problems with a LaTeX answer (MATH, MATH-500, AIME and alike), compared by math-verify."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...types import Problem, Verdict
from ..verifiers.boxed import MAX_BOX_CHARACTERS, compare_latex, last_box, unboxed
from ..verifiers.math_worker_pool import WORKERS, require_math_verify, shared_pool
from ..verifiers.numbers import read_quantity
from .columns import RowFault, as_text, take, take_filled
from .text import AbstractTextTask

# Spellings of the same LaTeX, so that votes are not split between them.
_SPELLINGS = (
    (re.compile(r"\\[dt]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\(?:left|right)(?![A-Za-z])|\\[!,;]"), ""),
)


@dataclass(frozen=True, kw_only=True)
class MathTask(AbstractTextTask):
    r"""Mathematics with a LaTeX answer (columns `problem` and `answer`, or a `solution` with a box).

    Raises:
        ArgumentError: see `AbstractFileTask`.
        DependencyError: math-verify is not installed.
    """

    answer_format: str = "boxed"
    completion_length: int = 512

    name = "math"
    question_names = ("problem", "question", "prompt")
    allowed_formats = ("answer_tag", "boxed", "tagged_box")
    gold_threads = WORKERS

    def __post_init__(self) -> None:
        """Say that math-verify is missing before a file is read."""
        super().__post_init__()
        require_math_verify()

    @property
    def verifier_failures(self) -> int:
        """Answers on which math-verify raised or was stopped, in this process so far; they count as wrong."""
        counts = shared_pool().counts
        return counts["errors"] + counts["timeouts"]

    def read_answer(self, values: Mapping[str, Any], solution: str) -> tuple[str, str]:
        """The answer column, or the last box of the solution where there is none, or an empty one."""
        given = take_filled(values, self.answer_names, self.answer_column)
        if given is None and not solution:
            take(values, (*self.answer_names, *self.solution_names), self.answer_column)
            raise RowFault("the answer is empty")
        text = solution if given is None else as_text(given, "the answer")
        box = last_box(text)
        if box is None and given is None:
            raise RowFault(f"no answer, and no \\boxed{{}} in the solution {text[-40:]!r}")
        answer = " ".join((text if box is None else box).split())
        if not answer or len(answer) > MAX_BOX_CHARACTERS:
            raise RowFault(f"the answer has {len(answer)} characters; allowed are 1 to {MAX_BOX_CHARACTERS}")
        return answer, unboxed(solution or (text if box is not None else ""))

    def value_of(self, answer: str) -> str:
        """One spelling of the LaTeX."""
        return canonical(answer)

    def score(self, problem: Problem, completion: str) -> Verdict:
        """Compare the LaTeX in the answer's place with the gold one; a comparison that fails is wrong."""
        answer = self.format.answer(completion)
        if answer is None:
            return Verdict(reward=0.0, status="unparsed")
        right = compare_latex(problem.answer, answer)
        gold_key, key = canonical(problem.answer), canonical(answer[:MAX_BOX_CHARACTERS])
        # Right answers vote together, however they are written; a wrong one never votes with them.
        key = gold_key if right else f"{key}?" if key == gold_key else key
        return Verdict(reward=float(right), status="right" if right else "wrong", answer_key=key)

    def corrupt(self, problem: Problem, completion: str) -> str:
        """The same solution with one added to the answer, or a letter to a word."""
        gold = read_quantity(problem.answer)
        wrong = f"{problem.answer}+1" if gold is None else str(gold.value + 1)
        if problem.answer.replace(" ", "").isalpha():
            wrong = f"{problem.answer}x"
        return self.format.write(str(problem.metadata.get("solution", "")), wrong)


def canonical(latex: str) -> str:
    r"""One spelling of what differs in spelling only: a number's value, else the LaTeX without its setting.

    >>> canonical(r"\dfrac{1}{2}"), canonical("1{,}000"), canonical(r"\left( 1, 2 \right)")
    ('1/2', '1000', '( 1, 2 )')
    """
    quantity = read_quantity(latex)
    if quantity is not None and not quantity.unit.isalpha():
        return quantity.key
    for pattern, becomes in _SPELLINGS:
        latex = pattern.sub(becomes, latex)
    return " ".join(latex.split())
