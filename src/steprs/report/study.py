"""What is compared: arms of runs that differ in their seed only, put side by side in contexts.

`manifest.json` of a study or demo:

    {"title": "...", "claim": "...", "notes": ["..."], "coverage": {"runs_planned": 8, "runs_finished": 8},
     "contexts": [{"name": "", "baseline": "centred GRPO", "arms": [
        {"label": "base", "kind": "base", "folders": ["base"], "seeds": [0], "fields": {}},
        {"label": "centred GRPO", "kind": "trained", "folders": ["centred"], "seeds": [0],
         "fields": {"risk.scale": 0}}]}]}

A context is one comparison with its own baseline. Folders are relative to the manifest, one a seed; each holds at least
`eval.json`, and a training run's other files if it is one. Arms of an unfinished study list what has finished.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import RunFolderError, unknown_name
from ..evaluation.result import EvalResult
from .runs import RunRecord, read_json, read_run


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """Runs that differ in their seed only, under one label.

    Attributes:
        label: what it is called.
        trained: its folders are training runs; else they are evaluations of the policy that training starts from.
        runs: one a seed.
        seeds: of the runs, in their order.
        fields: the dotted settings that make the arm.
    """

    label: str
    trained: bool
    runs: tuple[RunRecord, ...]
    seeds: tuple[int, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def evaluated(self) -> list[tuple[int, EvalResult]]:
        """(seed, evaluation) of the runs that were evaluated."""
        return [(s, r.evaluation) for s, r in zip(self.seeds, self.runs, strict=True) if r.evaluation is not None]

    @property
    def evaluations(self) -> list[EvalResult]:
        """One a seed; empty if none was made."""
        return [evaluation for _, evaluation in self.evaluated]


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """Arms to compare with one baseline, in the order of the tables; `name` is empty if there is one context only."""

    name: str
    baseline: str
    arms: tuple[Arm, ...]

    def find(self, label: str) -> Arm | None:
        """The arm with that label, or None if it has not finished."""
        return next((arm for arm in self.arms if arm.label == label), None)

    @property
    def trained(self) -> list[Arm]:
        """The arms that were trained."""
        return [arm for arm in self.arms if arm.trained]


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """Everything a report is made from.

    Attributes:
        title: one line.
        contexts: one comparison each.
        source: what was given, for the report's last line.
        folder: of the manifest; None for run folders given directly.
        claim: what the study could show.
        notes: sentences for the reader.
        planned, finished: runs; None where no plan is known.
    """

    title: str
    contexts: tuple[Context, ...]
    source: str
    folder: Path | None = None
    claim: str = ""
    notes: tuple[str, ...] = ()
    planned: int | None = None
    finished: int | None = None

    @property
    def unfinished(self) -> bool:
        """Some planned runs are missing."""
        return self.planned is not None and self.finished is not None and self.finished < self.planned


def read_source(paths: Sequence[str | Path], baseline: str | None = None) -> Study:
    """The study of one folder with a `manifest.json`, or of run folders given directly.

    Args:
        paths: one study folder, or run folders; of the latter those that differ in their seed only become one arm.
        baseline: label of the arm that the others are compared with; the study's own, or the first arm, by default.

    Raises:
        RunFolderError: folders that cannot be used, or a baseline that is not among the arms.
    """
    folders = [Path(path) for path in paths]
    with_manifest = [folder for folder in folders if (folder / "manifest.json").is_file()]
    if not with_manifest:
        study = _study_of_runs(folders)
    elif len(folders) == 1:
        study = read_study(folders[0])
    else:
        raise RunFolderError(f"{with_manifest[0]} is a study; give one study alone, or run folders only")
    if baseline is None:
        return study
    return replace(study, contexts=tuple(_with_baseline(context, baseline) for context in study.contexts))


def read_study(path: str | Path) -> Study:
    """The arms of a folder with a `manifest.json`.

    Raises:
        RunFolderError: no manifest, or one that names folders or a baseline that are not there.
    """
    folder = Path(path)
    file = folder / "manifest.json"
    manifest = read_json(file)
    if not manifest:
        raise RunFolderError(f"{folder} has no manifest.json; a report needs the folder of a demo or study, or of runs")
    try:
        coverage = manifest.get("coverage") or {}
        study = Study(
            title=manifest["title"],
            claim=manifest.get("claim") or "",
            notes=tuple(manifest.get("notes", ())),
            contexts=tuple(_context(folder, context) for context in manifest["contexts"]),
            planned=coverage.get("runs_planned"),
            finished=coverage.get("runs_finished"),
            source=str(folder),
            folder=folder,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise RunFolderError(f"{file} lacks {error}; write it again with the command that made it") from None
    for context in study.contexts:
        labels = [arm.label for arm in context.arms]
        if context.baseline not in labels and not study.unfinished:
            raise RunFolderError(f"{file}: {unknown_name('baseline', context.baseline, labels)}")
        if len(set(labels)) < len(labels):
            raise RunFolderError(f"{file}: two arms of one context have the same label; labels are {labels}")
    return study


def _context(folder: Path, plain: Mapping[str, Any]) -> Context:
    arms = tuple(_arm(folder, arm) for arm in plain["arms"])
    return Context(name=plain["name"], baseline=plain["baseline"], arms=tuple(arm for arm in arms if arm.runs))


def _arm(folder: Path, plain: Mapping[str, Any]) -> Arm:
    runs = tuple(read_run(folder / name) for name in plain["folders"])
    seeds = tuple(plain["seeds"])
    if len(seeds) != len(runs):
        raise RunFolderError(
            f"{folder / 'manifest.json'}: arm {plain['label']!r} has {len(runs)} folders and {len(seeds)} seeds; "
            "it needs one seed a folder"
        )
    return Arm(
        label=plain["label"], trained=plain["kind"] == "trained", runs=runs, seeds=seeds, fields=plain.get("fields", {})
    )


def _with_baseline(context: Context, label: str) -> Context:
    if context.find(label) is None:
        raise RunFolderError(unknown_name("baseline", label, [arm.label for arm in context.arms]))
    return replace(context, baseline=label)


def _study_of_runs(folders: Sequence[Path]) -> Study:
    """One context of the run folders; the first arm is the baseline."""
    groups: dict[str, list[RunRecord]] = {}
    for folder in folders:
        run = read_run(folder)
        if not run.config and run.evaluation is None:
            raise RunFolderError(
                f"{folder} holds neither a run (config.json) nor an evaluation (eval.json) nor a study (manifest.json)"
            )
        group = groups.setdefault(_but_for_the_seed(run), [])
        twin = next((other for other in group if other.config.get("seed") == run.config.get("seed")), None)
        if twin is not None:
            raise RunFolderError(
                f"{folder} and {twin.path} are the same run (same settings and seed), which would count twice; "
                "give each run once"
            )
        group.append(run)
    labels = _labels(list(groups.values()))
    flat = [_flattened(runs[0].config) for runs in groups.values()]
    arms = tuple(
        Arm(
            label=label,
            trained=bool(runs[0].config),
            runs=tuple(runs),
            seeds=tuple(run.config.get("seed", i) for i, run in enumerate(runs)),
            fields={name: value for name, value in own.items() if flat[0].get(name) != value},
        )
        for label, runs, own in zip(labels, groups.values(), flat, strict=True)
    )
    names = " ".join(str(folder) for folder in folders)
    context = Context(name="", baseline=labels[0], arms=arms)
    return Study(title="Comparison of " + ", ".join(labels), contexts=(context,), source=names)


def _but_for_the_seed(run: RunRecord) -> str:
    """Equal for runs that belong to one arm; a folder without a configuration stands alone."""
    if not run.config:
        return str(run.path)
    kept = {name: value for name, value in run.config.items() if name not in {"seed", "name", "output"}}
    return json.dumps(kept, sort_keys=True)


def _labels(groups: Sequence[Sequence[RunRecord]]) -> list[str]:
    """Names of the folders, without what tells their seeds apart; a number where two would be the same."""
    labels: list[str] = []
    for runs in groups:
        names = [run.path.resolve().name for run in runs]
        shared = names[0]
        if len(names) > 1:
            shared = re.sub(r"[-_. ]*(seed)?[-_. ]*\d*$", "", names[0]) or names[0]
        times = sum(label == shared or label.startswith(f"{shared} (") for label in labels)
        labels.append(f"{shared} ({times + 1})" if times else shared)
    return labels


def _flattened(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted settings.

    >>> _flattened({"risk": {"scale": 2}, "name": "a"})
    {'risk.scale': 2}
    """
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat |= _flattened(value, f"{prefix}{name}.")
        elif prefix or name not in {"seed", "name", "output"}:
            flat[prefix + name] = value
    return flat
