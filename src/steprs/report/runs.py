"""Reads one folder of a run or an evaluation. Never writes into it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import RunFolderError
from ..evaluation.result import EvalResult

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """What one folder holds.

    Attributes:
        path: the folder.
        config: the resolved configuration; empty for a folder that only holds an evaluation.
        metrics: one record an update.
        dev: one record a dev evaluation.
        outcome: `result.json`, how the run ended; empty while it has not.
        evaluation: `eval.json`.
    """

    path: Path
    config: Mapping[str, Any]
    metrics: tuple[Mapping[str, Any], ...]
    dev: tuple[Mapping[str, Any], ...]
    outcome: Mapping[str, Any]
    evaluation: EvalResult | None

    @property
    def measured_update(self) -> int | None:
        """The update whose checkpoint was evaluated, where the evaluation names one other than the last."""
        found = re.search(r"checkpoints/update-(\d+)$", self.evaluation.policy) if self.evaluation else None
        last = self.outcome.get("updates", self.metrics[-1]["update"] if self.metrics else None)
        return None if found is None or int(found[1]) == last else int(found[1])

    def series(self, name: str, *, dev: bool = False) -> tuple[Floats, Floats]:
        """(updates, values) of a logged key, where it was logged."""
        records = [r for r in (self.dev if dev else self.metrics) if r.get(name) is not None]
        return np.array([r["update"] for r in records], float), np.array([r[name] for r in records], float)

    def mean_grid(self, name: str, *, empty: float | None = None) -> Floats | None:
        """A logged grid (pass-rate bins x progress bins), averaged over updates; None if it was never logged.

        Args:
            name: key of the grid in `metrics.jsonl`.
            empty: what an empty cell counts as (0 for a share); by default it is left out, and NaN if always empty.
        """
        grids = [record[name] for record in self.metrics if record.get(name) is not None]
        if not grids:
            return None
        stacked = np.array(grids, dtype=np.float64)  # None becomes NaN
        return mean_of_known(stacked if empty is None else np.where(np.isnan(stacked), empty, stacked))

    def grid_edges(self, name: str, bins: int) -> Floats:
        """Edges of the rows (`grid_pass_rate_edges`) or columns (`grid_progress_edges`); equal bins by default."""
        return np.asarray(self.outcome.get(name) or np.linspace(0, 1, bins + 1), dtype=np.float64)

    def traces(self) -> Mapping[str, Any]:
        """`traces.json`, rollouts to look at; empty if there is none. Read when asked: it is large."""
        return read_json(self.path / "traces.json")


def mean_of_known(stacked: Floats) -> Floats:
    """Mean over the first axis, leaving NaN out; NaN where all are.

    >>> mean_of_known(np.array([[1.0, np.nan], [3.0, np.nan]])).tolist()
    [2.0, nan]
    """
    known = np.isfinite(stacked)
    sums, counts = np.where(known, stacked, 0.0).sum(axis=0), known.sum(axis=0)
    return np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)


def read_run(path: str | Path) -> RunRecord:
    """Everything a report needs of one folder.

    Raises:
        RunFolderError: no such folder, or a file in it that is not what it should be.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is not a folder; give the folder that a run or an evaluation wrote")
    evaluation = folder / "eval.json"
    return RunRecord(
        path=folder,
        config=read_json(folder / "config.json"),
        metrics=read_jsonl(folder / "metrics.jsonl"),
        dev=read_jsonl(folder / "dev.jsonl"),
        outcome=read_json(folder / "result.json"),
        evaluation=EvalResult.load(evaluation) if evaluation.is_file() else None,
    )


def read_json(file: Path) -> Mapping[str, Any]:
    """A mapping, empty where there is no file.

    Raises:
        RunFolderError: the file holds something else.
    """
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunFolderError(f"{file} is not JSON ({error}); it was torn or edited") from None
    if not isinstance(content, dict):
        raise RunFolderError(f"{file} holds a {type(content).__name__}, not a mapping")
    return content


def read_jsonl(file: Path) -> tuple[Mapping[str, Any], ...]:
    """Whole lines; a last line torn by a kill is left out.

    Raises:
        RunFolderError: a bad line before the last.
    """
    if not file.is_file():
        return ()
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError:
            if number < len(lines):
                raise RunFolderError(f"{file}, line {number} is not JSON; it was torn or edited") from None
            continue
        if not isinstance(record, dict):
            raise RunFolderError(f"{file}, line {number} is not a record; it was edited")
        records.append(record)
    return tuple(records)
