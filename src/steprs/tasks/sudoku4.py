"""Sudoku on a 4 x 4 grid: rows, columns and 2 x 2 boxes hold 1..4, and the clues leave one solution.

The prompt is 16 words, a digit or `.` for an empty cell, row by row; the completion is the filled grid in the same
order. The grid is the canonical answer, so diversity of wrong answers is measurable and of right ones is nil.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations

from ..errors import ArgumentError
from ..types import Problem, Verdict
from .base import AbstractTask, Split, Trace, as_problem, hash_order, require_split, split_of, unit_hash

CELLS = 16
DIGITS = "1234"
# 16 digits and 15 spaces; a little room for line breaks.
MAX_CHARACTERS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Sudoku4Task(AbstractTask):
    """4 x 4 sudokus with `fewest_clues` to `most_clues` clues.

    Two puzzles that differ only in the names of the digits are the same problem, so a test puzzle is never a renamed
    training puzzle.

    Attributes:
        fewest_clues: at least 4, the least that can leave one solution.
        most_clues: clues of the easiest puzzles.
        size: puzzles over all three splits, about; fewer where the clue counts do not give so many.

    Raises:
        ArgumentError: for clue counts that no puzzle has.

    >>> task = Sudoku4Task()
    >>> problem = task.problems("test", 1)[0]
    >>> task.score(problem, problem.answer).status
    'right'
    """

    fewest_clues: int = 5
    most_clues: int = 9
    size: int = 6000

    name = "sudoku4"
    completion_length = CELLS
    block_size = 4

    def __post_init__(self) -> None:
        """Check the clue counts before anything is generated."""
        if not (4 <= self.fewest_clues <= self.most_clues < CELLS and self.size >= 30):
            raise ArgumentError(
                f"sudoku4 with {self}; allowed: 4 <= fewest_clues <= most_clues <= {CELLS - 1}, size >= 30"
            )

    def problems(self, split: Split, limit: int | None = None) -> Sequence[Problem]:
        """Puzzles of a split; the split is the hash of the puzzle up to renaming digits."""
        require_split(split, limit)
        return _all_problems(self)[split][:limit]

    def gold_completion(self, problem: Problem) -> str:
        """The one solution."""
        return problem.answer

    def corrupt(self, problem: Problem, completion: str) -> str:
        """The grid with the digit of the first empty cell of the puzzle changed."""
        cells, empty = completion.split(), problem.prompt.split().index(".")
        cells[empty] = DIGITS[DIGITS.index(cells[empty]) - 1]
        return " ".join(cells)

    def score(self, problem: Problem, completion: str) -> Verdict:
        """Take exactly the one grid that agrees with the clues; a grid that breaks a rule is wrong, not unparsed."""
        cells = parse_grid(completion)
        if cells is None:
            return Verdict(reward=0.0, status="unparsed")
        right = " ".join(cells) == problem.answer
        return Verdict(reward=float(right), status="right" if right else "wrong", answer_key="".join(cells))

    def trace(self, problem: Problem, completion: str) -> Trace | None:
        """The digits written into empty cells, as `r1c2=3`; a grid has no operators, so no signature."""
        cells = parse_grid(completion)
        return None if cells is None else grid_trace("".join(problem.prompt.split()), "".join(cells))

    def answer_span(self, problem: Problem, completion: str) -> tuple[int, int] | None:
        """The whole grid: the answer stands when its last cell does."""
        if parse_grid(completion) is None:
            return None
        return len(completion) - len(completion.lstrip()), len(completion.rstrip())

    def vocabulary(self) -> tuple[str, ...]:
        """The digits and the empty cell."""
        return (*DIGITS, ".")


def parse_grid(completion: str) -> list[str] | None:
    """The 16 cells as written, or None when the text is anything else.

    >>> parse_grid("1 2 3") is None
    True
    """
    cells = completion.split() if len(completion) <= MAX_CHARACTERS else []
    return cells if len(cells) == CELLS and all(cell in tuple(DIGITS) for cell in cells) else None


def grid_trace(clues: str, grid: str) -> Trace:
    """The digits that a grid has where the clues have `.`, both row by row.

    >>> grid_trace("12..............", "1234" * 4).equations[:2]
    ('r1c3=3', 'r1c4=4')
    """
    filled = enumerate(zip(clues, grid, strict=True))
    equations = [f"r{i // 4 + 1}c{i % 4 + 1}={cell}" for i, (clue, cell) in filled if clue == "."]
    return Trace(signature=None, equations=tuple(equations))


@cache
def solution_grids() -> tuple[str, ...]:
    """The 288 filled grids, row by row.

    >>> len(solution_grids())
    288
    """
    rows = ["".join(row) for row in permutations(DIGITS)]
    grids = [""]
    for _ in range(4):
        grids = [grid + row for grid in grids for row in rows if _fits(grid + row)]
    return tuple(grids)


def _fits(grid: str) -> bool:
    """No column and no complete or half-filled box of these rows holds a digit twice."""
    rows = [grid[i : i + 4] for i in range(0, len(grid), 4)]
    columns = ["".join(column) for column in zip(*rows, strict=True)]
    boxes = ["".join(row[c : c + 2] for row in rows[r : r + 2]) for r in (0, 2) for c in (0, 2)]
    return all(len(set(group)) == len(group) for group in (*columns, *boxes))


def solutions(clues: str) -> tuple[str, ...]:
    """Filled grids that agree with 16 characters of clues, `.` for empty.

    >>> solutions("1234341221434321")
    ('1234341221434321',)
    """
    with_cell, common = _grids_with(), (1 << len(solution_grids())) - 1
    for cell, clue in enumerate(clues):
        common &= with_cell[cell, clue] if clue != "." else -1
    found = []
    while common:
        found.append(solution_grids()[common.bit_length() - 1])
        common ^= 1 << (common.bit_length() - 1)
    return tuple(found)


def canonical_clues(clues: str) -> str:
    """Clues with the digits renamed in order of appearance: equal for puzzles that differ in names only.

    >>> canonical_clues("4.2...4.........")
    '1.2...1.........'
    """
    names = dict(zip(dict.fromkeys(clues.replace(".", "")), DIGITS, strict=False))
    return "".join(names.get(clue, ".") for clue in clues)


@cache
def _all_problems(task: Sudoku4Task) -> dict[Split, tuple[Problem, ...]]:
    """Puzzles by split, from the 12 grids that are different up to renaming."""
    rng = random.Random("sudoku4")
    grids = [grid for grid in solution_grids() if grid.startswith(DIGITS)]
    keys: dict[str, None] = {}
    for attempt in range(4 * task.size):
        if len(keys) == task.size:
            break
        clues = _dig(grids[attempt % len(grids)], rng.randint(task.fewest_clues, task.most_clues), rng)
        if task.fewest_clues <= CELLS - clues.count(".") <= task.most_clues:
            keys.setdefault(canonical_clues(clues))
    kept: dict[Split, dict[str, Problem]] = {"train": {}, "dev": {}, "test": {}}
    for key in keys:
        kept[split_of(key)][key] = _problem(task, key)
    return {split: tuple(hash_order(found.values(), found.keys())) for split, found in kept.items()}


def _dig(grid: str, clues: int, rng: random.Random) -> str:
    """Clues left of a grid after emptying cells in random order, as long as one solution remains."""
    with_cell = _grids_with()
    kept = set(range(CELLS))
    for cell in rng.sample(range(CELLS), CELLS):
        if len(kept) == clues:
            break
        common = -1
        for other in kept - {cell}:
            common &= with_cell[other, grid[other]]
        if common.bit_count() == 1:
            kept.discard(cell)
    return "".join(digit if cell in kept else "." for cell, digit in enumerate(grid))


@cache
def _grids_with() -> dict[tuple[int, str], int]:
    """(cell, digit) -> the solution grids that hold it, as a bit set: uniqueness is then a few ANDs."""
    grids = list(enumerate(solution_grids()))
    return {
        (cell, digit): sum(1 << number for number, grid in grids if grid[cell] == digit)
        for cell in range(CELLS)
        for digit in DIGITS
    }


def _problem(task: Sudoku4Task, key: str) -> Problem:
    """The canonical puzzle under names of the digits that a hash picks."""
    names = list(permutations(DIGITS))[int(unit_hash(key, "shown") * 24)]
    renamed = str.maketrans(DIGITS, "".join(names))
    (solved,) = solutions(key)
    return as_problem(task, key, " ".join(key.translate(renamed)), " ".join(solved.translate(renamed)), {})
