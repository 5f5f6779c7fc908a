"""Small files of rows to read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    """JSON lines; a text is written as it is, so that it can be broken."""
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def sums(count: int, start: int = 0) -> list[dict[str, str]]:
    """GSM8K-like rows, all different."""
    written = ((n, n + 1, 2 * n + 1) for n in range(start, start + count))
    return [
        {"question": f"What is {a} plus {b} ?", "answer": f"{a} + {b} = <<{a}+{b}={c}>>{c}\n#### {c}"}
        for a, b, c in written
    ]


LATEX = (
    "\\frac{1}{2}", "5", "(1,2)", "\\text{Evelyn}", "x^2+1", "2\\pi", "50\\%", "\\$18.90", "[2,5)", "3, 5, 7",
    "10,\\!080", "90^\\circ", "\\text{(A)}", "p - q", "4210_{5}", "-\\frac{3}{4}", "6 - 5i", "\\sqrt{2}", "-17", "0.25",
)  # fmt: skip


def math_rows(answers: Sequence[str] = LATEX) -> list[dict[str, str]]:
    """MATH-like rows: the box of the solution is the answer."""
    return [
        {"problem": f"What is number {n} ?", "solution": f"It is $\\boxed{{{answer}}}$ by luck .", "answer": answer}
        for n, answer in enumerate(answers)
    ]


def countdown_rows() -> list[dict[str, Any]]:
    """Solvable, in both layouts that are about."""
    d1 = [{"input": f"{a},{a + 1},{a + 3}", "output": str(3 * a + 4)} for a in range(2, 40)]
    return [*d1, *({"nums": [a, a + 2, 5], "target": 2 * a + 7} for a in range(40, 80))]
