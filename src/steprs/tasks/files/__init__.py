"""Tasks from files of one's own or the Hub: GSM8K, MATH and alike, Countdown and Sudoku."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..base import AbstractTask
from .countdown import CountdownFileTask
from .gsm8k import Gsm8kTask
from .mathematics import MathTask
from .sudoku import SudokuFileTask

FILE_TASKS: Mapping[str, Callable[..., AbstractTask]] = {
    "countdown-file": CountdownFileTask,
    "gsm8k": Gsm8kTask,
    "math": MathTask,
    "sudoku-file": SudokuFileTask,
}

__all__ = ["FILE_TASKS"]
