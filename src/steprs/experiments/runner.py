"""Run a study: what it needs first (base policies, calibrations), then every run, then the manifest for the report.

OUT/study.json      the study as it was asked for
OUT/manifest.json   arms, contexts and the folders of their runs, for `steprs report`
OUT/jobs/           what each process was told, and its log
OUT/report/         the report
STORE/run-HASH/     a run folder a configuration, shared by every study that contains it
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import RunConfig
from ..errors import ConfigError, RunFolderError
from ..training.folder import RunFolder
from .jobs import Job, processes_at_once, run_jobs
from .pieces import arm_job, base_job, calibration_job, is_measured, pretraining_job, scale_sentence, way
from .store import Store
from .study import Context, PlannedRun, Study, pretrain_config

MEASURING_SEED = 0  # calibration and base measurements are made once and shared by all seeds


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """A planned run with its folder and, where it needs one, the folder of its calibration."""

    planned: PlannedRun
    config: RunConfig
    folder: Path
    calibration: Path | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Where everything of a study lies. Known before anything runs, but for policies that are still to be made."""

    study: Study
    store: Store
    policies: Mapping[str, Path]
    runs: tuple[Placed, ...]
    bases: Mapping[str, tuple[dict[str, Any], ...]]


def run_study(study: Study, output: str | Path, *, store: str | Path | None = None, at_once: int | None = None) -> Path:
    """Run what is missing of a study and write its report.

    Args:
        study: what to run.
        output: the study's folder; one that holds the same study is continued.
        store: where runs lie; by default `store` beside the study's folder, so that studies there share runs.
        at_once: processes at a time; by default one a core, at most eight.

    Returns:
        The folder, with `report/index.html`.

    Raises:
        ConfigError: a field that is no setting.
        RunFolderError: the folder holds another study, another study runs in the store, or runs failed (the others
            were finished, and the same command tries the failed ones again).
    """
    folder, places = Path(output), store_of(output, store)
    lock = f"another study runs in the store {places.root}; wait for it, or give a store of its own with --store"
    study.planned()  # every field is checked before the first process starts
    _enter(folder, study)
    if store is not None:
        RunFolder(folder).write_json("store.json", {"store": str(places.root.resolve())})
    at_once = at_once or processes_at_once(8)
    with RunFolder(places.root).locked(advice=lock):
        made = {
            places.policy(pretrain_config(context.pretrain)): context for context in study.contexts if context.pretrain
        }
        run_jobs(pretrainings(made), folder, title="making base policies", at_once=at_once)
        layout = lay_out(study, places)
        run_jobs(calibrations(layout), folder, title="calibrating", at_once=at_once)
        write_manifest(layout, folder)
        run_jobs(
            [*base_jobs(layout), *run_jobs_of(layout)], folder, title=f"running {study.name}", at_once=at_once,
            finished=lambda job: write_manifest(layout, folder),
        )  # fmt: skip
    report(folder)
    return folder


def store_of(output: str | Path, store: str | Path | None) -> Store:
    """The store of a study in `output`: the one given, the one it was begun with, or `store` beside it."""
    begun = RunFolder(output).read_json("store.json")
    return Store(store or (begun or {}).get("store") or Path(output).resolve().parent / "store")


def lay_out(study: Study, store: Store) -> Layout:
    """Place every run. Policies that a context makes must exist, since their weights are part of the hash."""
    policies = {
        context.name: store.policy(pretrain_config(context.pretrain))
        for context in study.contexts
        if context.pretrain is not None
    }
    runs = []
    measure = study.measure.model_dump(mode="json", exclude_defaults=True)
    for planned in study.planned():
        config = _with_policy(planned.config, policies.get(planned.context.name))
        calibration = store.calibration(config) if config.calibrates else None
        runs.append(Placed(planned=planned, config=config, folder=store.run(config, measure), calibration=calibration))
    bases = {context.name: _ways(study, context, policies.get(context.name), store) for context in study.contexts}
    return Layout(study=study, store=store, policies=policies, runs=tuple(runs), bases=bases)


def pretrainings(made: Mapping[Path, Context]) -> list[Job]:
    """One job a base policy that some context makes."""
    return [
        pretraining_job(f"policy-{context.name.replace(' ', '-')}", pretrain_config(context.pretrain), place)
        for place, context in made.items()
        if context.pretrain is not None
    ]


def calibrations(layout: Layout) -> list[Job]:
    """One job a calibration that some run shares."""
    needed = {run.calibration: run.config for run in layout.runs if run.calibration is not None}
    return [
        calibration_job(place.name, config.model_copy(update={"seed": MEASURING_SEED}), place)
        for place, config in needed.items()
    ]


def base_jobs(layout: Layout) -> list[Job]:
    """One job a context: its base policy, decoded in every way that is asked for."""
    study = layout.study
    jobs = {}
    for context in study.contexts:
        config = _base_config(study, context, layout.policies.get(context.name))
        ways = layout.bases[context.name]
        if ways:  # contexts with the same base policy share its measurement
            name = Path(ways[0]["folder"]).name
            jobs[name] = base_job(name, config, study.measure.problems, ways)
    return list(jobs.values())


def run_jobs_of(layout: Layout) -> list[Job]:
    """One job a run; arms that come to the same configuration share it."""
    measure = layout.study.measure
    jobs = {}
    for run in layout.runs:
        measured = measured_way(layout.study, run.planned.arm.label)
        jobs[run.folder] = arm_job(
            run.folder.name, run.config, run.folder, measure.problems, measured, calibration=run.calibration
        )
    return list(jobs.values())


def is_finished(run: Placed, study: Study) -> bool:
    """Whether a run was trained and measured as the study asks."""
    return is_measured(run.folder, study.measure.problems, measured_way(study, run.planned.arm.label))


def measured_way(study: Study, label: str, temperature: float | None = None, *, plain: bool = False) -> dict[str, Any]:
    """How a study measures a policy; `plain` leaves out what only the sampled policies are looked at for."""
    measure = study.measure
    looks = {} if plain else {"traces": measure.traces, "backslides": measure.backslides}
    return way(label, temperature, measure.samples, measure.k, **looks)


def write_manifest(layout: Layout, folder: Path) -> None:
    """What is finished now, for the report; written again after every run."""
    study = layout.study
    done = [run for run in layout.runs if is_finished(run, study)]
    here = folder.resolve()
    contexts = []
    for context in study.contexts:
        arms = _base_arms(study, layout.bases[context.name], here)
        for arm in study.arms:
            runs = [run for run in done if run.planned.context == context and run.planned.arm == arm]
            if runs:
                arms.append(
                    {
                        "label": arm.label,
                        "kind": "trained",
                        "folders": [_relative(run.folder, here) for run in runs],
                        "seeds": [run.planned.seed for run in runs],
                        "fields": arm.fields,
                    }
                )
        contexts.append({"name": context.name, "baseline": study.baseline, "arms": arms})
    RunFolder(folder).write_json(
        "manifest.json",
        {
            "title": study.title or study.name,
            "claim": study.claim,
            "notes": _notes(layout),
            "coverage": {"runs_planned": len(layout.runs), "runs_finished": len(done)},
            "contexts": contexts,
        },
    )


def report(folder: Path) -> None:
    """Write and show the report in a process without torch; it reads folders alone."""
    place = folder / "report"
    done = subprocess.run([sys.executable, "-m", "steprs.report", str(folder), str(place)], check=False)
    if done.returncode:
        raise RunFolderError(f"the report of {folder} failed; repeat it with: steprs report {folder} -o {place}")


def _enter(folder: Path, study: Study) -> None:
    """Begin a study or go on with the same one."""
    asked = study.model_dump(mode="json")
    place = RunFolder(folder)
    earlier = place.read_json("study.json")
    if earlier is None:
        if folder.is_dir() and any(folder.iterdir()):
            raise RunFolderError(f"{folder} holds other files; give a new or empty folder with -o")
        place.write_json("study.json", asked)
        return
    changed = [key for key in asked if earlier.get(key) != asked[key]]
    if changed == ["seeds"] and set(earlier["seeds"]) < set(asked["seeds"]):
        place.write_json("study.json", asked)  # more seeds: what was run stays part of it
        return
    if changed:
        raise ConfigError(
            f"{folder} holds another study (differs in {', '.join(changed)}); choose another folder with -o. "
            "Runs that both contain are shared through the store"
        )


def _with_policy(config: RunConfig, folder: Path | None) -> RunConfig:
    if folder is None:
        return config
    return config.model_copy(update={"policy": config.policy.model_copy(update={"path": str(folder)})})


def _base_config(study: Study, context: Context, policy: Path | None) -> RunConfig:
    baseline = next(arm for arm in study.arms if arm.label == study.baseline)
    return _with_policy(study.config(context, baseline, MEASURING_SEED), policy)


def _ways(study: Study, context: Context, policy: Path | None, store: Store) -> tuple[dict[str, Any], ...]:
    """How a context's base policy is measured, each way with its folder."""
    config, measure = _base_config(study, context, policy), study.measure
    ways = []
    for label, temperature in measure.base_temperatures.items():
        one = measured_way(study, label, temperature, plain=temperature is not None)
        kept = {**{key: value for key, value in one.items() if key != "label"}, "problems": measure.problems}
        ways.append({**one, "folder": str(store.base(config, kept))})
    return tuple(ways)


def _base_arms(study: Study, ways: Sequence[Mapping[str, Any]], here: Path) -> list[dict[str, Any]]:
    arms = []
    for one in ways:
        folder = Path(one["folder"])
        if is_measured(folder, study.measure.problems, one):
            arms.append(
                {
                    "label": one["label"],
                    "kind": "base",
                    "folders": [_relative(folder, here)],
                    "seeds": [MEASURING_SEED],
                    "fields": {},
                }
            )
    return arms


def _notes(layout: Layout) -> list[str]:
    """The calibrated scales, and what all runs share."""
    sentences = {}
    for run in layout.runs:
        file = None if run.calibration is None else run.calibration / "calibration.json"
        if file is None or not file.is_file() or file in sentences:
            continue
        where = run.planned.context.name
        sentences[file] = scale_sentence(file) + (f" (context: {where})" if where else "")
    shared = (
        "All arms of a context start from the same policy and, seed by seed, see the same training prompts and random "
        "numbers. Ends of schedules are multiples of the risk scale; the calibration rule and the direction are this "
        "project's choices, not claims about the published method."
    )
    return [*sentences.values(), shared]


def _relative(folder: Path, here: Path) -> str:
    return Path(os.path.relpath(folder.resolve(), here)).as_posix()
