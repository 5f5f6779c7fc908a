"""Reads folders: a run's files, and the arms that a manifest puts side by side. Never writes into them.

`manifest.json` of a study or demo:

    {"title": "...", "baseline": "centred GRPO", "notes": ["..."],
     "arms": [{"label": "base", "folders": ["base"]}, {"label": "centred GRPO", "folders": ["centred"]}]}

An arm has one folder a seed; each holds at least `eval.json`, and a training run's other files if it is one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import RunFolderError, unknown_name
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """Runs that differ in their seed only, under one label."""

    label: str
    runs: tuple[RunRecord, ...]

    @property
    def evaluations(self) -> list[EvalResult]:
        """One a seed; empty if none was made."""
        return [run.evaluation for run in self.runs if run.evaluation is not None]

    @property
    def trained(self) -> bool:
        """True iff its folders are training runs."""
        return any(run.metrics for run in self.runs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """Arms to compare, in the order of the tables."""

    title: str
    arms: tuple[Arm, ...]
    baseline: str
    notes: tuple[str, ...] = ()

    def arm(self, label: str) -> Arm:
        """The arm with that label."""
        return next(arm for arm in self.arms if arm.label == label)


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
        config=_json(folder / "config.json"),
        metrics=_jsonl(folder / "metrics.jsonl"),
        dev=_jsonl(folder / "dev.jsonl"),
        outcome=_json(folder / "result.json"),
        evaluation=EvalResult.load(evaluation) if evaluation.is_file() else None,
    )


def read_study(path: str | Path) -> Study:
    """The arms of a folder with a `manifest.json`.

    Raises:
        RunFolderError: no manifest, or one that names folders or a baseline that are not there.
    """
    folder = Path(path)
    manifest = _json(folder / "manifest.json")
    if not manifest:
        raise RunFolderError(f"{folder} has no manifest.json; a report needs the folder of a demo or study")
    try:
        arms = tuple(
            Arm(label=arm["label"], runs=tuple(read_run(folder / name) for name in arm["folders"]))
            for arm in manifest["arms"]
        )
        baseline, title = manifest["baseline"], manifest["title"]
    except (KeyError, TypeError) as error:
        raise RunFolderError(
            f"{folder / 'manifest.json'} lacks {error}; write it again with the command that made it"
        ) from None
    labels = [arm.label for arm in arms]
    if baseline not in labels:
        raise RunFolderError(f"{folder / 'manifest.json'}: {unknown_name('baseline', baseline, labels)}")
    return Study(title=title, arms=arms, baseline=baseline, notes=tuple(manifest.get("notes", ())))


def _json(file: Path) -> Mapping[str, Any]:
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunFolderError(f"{file} is not JSON ({error}); it was torn or edited") from None
    if not isinstance(content, dict):
        raise RunFolderError(f"{file} holds a {type(content).__name__}, not a mapping")
    return content


def _jsonl(file: Path) -> tuple[Mapping[str, Any], ...]:
    """Whole lines; a last line torn by a kill is left out, a bad line before it is an error."""
    if not file.is_file():
        return ()
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(json.loads(line))
        except ValueError:
            if number < len(lines):
                raise RunFolderError(f"{file}, line {number} is not JSON; it was torn or edited") from None
    return tuple(records)
