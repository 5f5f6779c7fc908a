"""`sudoku-file`: 4 x 4 sudokus from a file, in d1's form: 16 characters row by row, 0 for an empty cell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...types import Problem, Verdict
from ..base import Trace
from ..sudoku4 import CELLS, DIGITS, canonical_clues, grid_trace, solutions
from .base import AbstractFileTask
from .columns import RowFault, as_text, take, take_filled
from .formats import TAGS
from .loading import Item

MAX_ANSWER_CHARACTERS = 200
RULES = (
    "Solve a 4x4 sudoku. The puzzle is a line of 16 characters, row after row from the top; 0 is an empty cell. Fill "
    "every empty cell with a digit from 1 to 4, so that each row, each column and each 2x2 box holds every digit once. "
    f"The answer is the whole solved grid as 16 digits without spaces.\n\n{TAGS}"
)


@dataclass(frozen=True, kw_only=True)
class SudokuFileTask(AbstractFileTask):
    """4 x 4 sudokus from a file (columns `puzzle` and `solution`); a solution that is missing is computed.

    Puzzles that differ in the names of the digits only are the same problem, so a test puzzle is never a renamed
    training puzzle.

    Attributes:
        puzzle_column, solution_column: what the columns are called, where not as usual.

    Raises:
        ArgumentError: see `AbstractFileTask`.
    """

    puzzle_column: str | None = None
    solution_column: str | None = None

    name = "sudoku-file"
    allowed_formats = ("answer_tag", "plain")

    @property
    def said_instruction(self) -> str | None:
        """The rules, where the answer stands between tags."""
        return RULES if self.instruction is None and self.answer_format == "answer_tag" else self.instruction

    def read_row(self, values: Mapping[str, Any]) -> Item:
        """A puzzle with exactly one solution, which the row must not contradict."""
        puzzle = _cells(take(values, ("puzzle", "question", "quizzes"), self.puzzle_column), "the puzzle")
        solution = take_filled(values, ("solution", "answer", "solutions"), self.solution_column)
        clues = puzzle.replace("0", ".")
        found = solutions(clues)
        if len(found) != 1:
            raise RowFault(f"the puzzle {puzzle} has {len(found) or 'no'} solutions, not one")
        if solution is not None and (given := _cells(solution, "the solution")) != found[0]:
            raise RowFault(f"the solution {given} is not that of the puzzle, {found[0]}")
        if "." not in clues:
            raise RowFault(f"the puzzle {puzzle} has no empty cell")
        key = canonical_clues(clues)
        # The solution follows from the puzzle, under whatever names of the digits.
        return Item(key=key, question=self._shown(puzzle), answer=found[0], metadata={"puzzle": clues}, value=key)

    def gold_fault(self, item: Item) -> str | None:
        """The solution was computed while the row was read."""
        return None

    def gold_completion(self, problem: Problem) -> str:
        """The one solution."""
        return self.format.write("", self._shown(problem.answer))

    def corrupt(self, problem: Problem, completion: str) -> str:
        """The grid with the digit of the first empty cell of the puzzle changed."""
        cells, empty = list(problem.answer), problem.metadata["puzzle"].index(".")
        cells[empty] = DIGITS[DIGITS.index(cells[empty]) - 1]
        return self.format.write("", self._shown("".join(cells)))

    def score(self, problem: Problem, completion: str) -> Verdict:
        """Take exactly the one grid; 16 digits that break a rule are wrong, anything else is unparsed."""
        grid = self._grid(completion)
        if grid is None:
            return Verdict(reward=0.0, status="unparsed")
        right = grid == problem.answer
        return Verdict(reward=float(right), status="right" if right else "wrong", answer_key=grid)

    def trace(self, problem: Problem, completion: str) -> Trace | None:
        """The digits written into empty cells, as `r1c2=3`."""
        grid = self._grid(completion)
        return None if grid is None else grid_trace(problem.metadata["puzzle"], grid)

    def _grid(self, completion: str) -> str | None:
        answer = self.format.answer(completion)
        if answer is None or len(answer) > MAX_ANSWER_CHARACTERS:
            return None
        grid = "".join(answer.split())
        return grid if re.fullmatch(f"[{DIGITS}]{{{CELLS}}}", grid) else None

    def _shown(self, grid: str) -> str:
        """Cells apart where the whole completion is the grid: words for a word tokenizer."""
        return grid if self.answer_format == "answer_tag" else " ".join(grid)


def _cells(value: Any, what: str) -> str:
    """16 digits, 0 for an empty cell; leading zeros that a reader of numbers dropped are put back."""
    text = "".join(as_text(value, what).split()).replace(".", "0")
    if isinstance(value, int):
        text = text.zfill(CELLS)
    if not re.fullmatch(f"[0{DIGITS}]{{{CELLS}}}", text):
        raise RowFault(f"{what} is {text[:40]!r} ({len(text)} characters); allowed are 16 of 0 to 4 (4 x 4 only)")
    return text
