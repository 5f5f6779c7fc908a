import pytest

from steprs.errors import ArgumentError
from steprs.tasks.sudoku4 import DIGITS, Sudoku4Task, canonical_clues, solution_grids, solutions
from steprs.types import Problem

TASK = Sudoku4Task()
GRID = "1 2 3 4 3 4 1 2 2 1 4 3 4 3 2 1"
PUZZLE = Problem(id="x", prompt="1 . . 4 . 4 1 . . 1 . . 4 . . .", answer=GRID, metadata={})


def groups(grid):
    rows = [grid[i : i + 4] for i in range(0, 16, 4)]
    columns = [grid[i::4] for i in range(4)]
    boxes = [rows[r][c : c + 2] + rows[r + 1][c : c + 2] for r in (0, 2) for c in (0, 2)]
    return rows + columns + boxes


def test_the_solution_grids_are_all_grids_that_keep_the_rules():
    grids = solution_grids()
    assert len(set(grids)) == 288
    assert all(sorted(group) == sorted(DIGITS) for grid in grids for group in groups(grid))


def test_every_puzzle_has_one_solution_and_the_stated_clues():
    for split in ("dev", "test"):
        for problem in TASK.problems(split):
            clues = problem.prompt.replace(" ", "")
            agreeing = [g for g in solution_grids() if all(c in (".", d) for c, d in zip(clues, g, strict=True))]
            assert [" ".join(grid) for grid in agreeing] == [problem.answer]
            assert solutions(clues) == tuple(agreeing)
            assert 5 <= 16 - clues.count(".") <= 9


def test_solutions_of_an_open_grid_are_all_grids():
    assert sorted(solutions("." * 16)) == sorted(solution_grids())
    assert solutions("11" + "." * 14) == ()


def test_renamed_puzzles_are_one_problem():
    for problem in TASK.problems("dev", 50):
        clues = problem.prompt.replace(" ", "")
        renamed = clues.translate(str.maketrans("1234", "3142"))
        assert canonical_clues(renamed) == canonical_clues(clues)
        assert problem.id == f"sudoku4/{canonical_clues(clues)}"


@pytest.mark.parametrize(
    ("completion", "status", "answer_key"),
    [
        (GRID, "right", GRID.replace(" ", "")),
        (GRID.replace(" ", "\n"), "right", GRID.replace(" ", "")),
        # A grid that keeps the rules but not the clues, one that breaks the rules, one cell off.
        ("2 1 3 4 3 4 1 2 1 2 4 3 4 3 2 1", "wrong", "2134341212434321"),
        ("1 " * 16, "wrong", "1" * 16),
        (GRID[:-1] + "2", "wrong", "1234341221434322"),
        (GRID[:-2], "unparsed", None),
        (GRID + " 1", "unparsed", None),
        (GRID.replace("4", "5"), "unparsed", None),
        (GRID.replace("4", "."), "unparsed", None),
        (GRID.replace(" ", ""), "unparsed", None),
        ("", "unparsed", None),
    ],
)
def test_hand_written_completions(completion, status, answer_key):
    verdict = TASK.score(PUZZLE, completion)
    assert (verdict.status, verdict.answer_key, verdict.reward) == (status, answer_key, float(status == "right"))


def test_the_corrupted_grid_keeps_the_clues():
    corrupted = TASK.corrupt(PUZZLE, GRID).split()
    clues = PUZZLE.prompt.split()
    assert all(clue in (".", cell) for clue, cell in zip(clues, corrupted, strict=True))
    assert TASK.score(PUZZLE, " ".join(corrupted)).status == "wrong"


@pytest.mark.parametrize("options", [{"fewest_clues": 3}, {"most_clues": 16}, {"fewest_clues": 9, "most_clues": 5}])
def test_options_out_of_range_are_errors(options):
    with pytest.raises(ArgumentError, match="allowed"):
        Sudoku4Task(**options)
