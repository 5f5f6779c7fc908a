"""What a study would do and cost, and how far one is. Reads folders; runs nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ..config import RunConfig, load_config
from ..errors import RunFolderError
from ..training.folder import RunFolder
from .pieces import evaluation_units
from .runner import Placed, is_finished, lay_out, store_of
from .store import Store
from .study import Study, pretrain_config

# Seconds that one core of a 2024 server takes for an update of the shipped countdown run; only until the store has
# runs whose own times say more.
REFERENCE_SECONDS = 1.0
REFERENCE_ROLLOUTS = 256
START_SECONDS = 8.0  # of a process, until its first update


def study_text(study: Study) -> str:
    """The study in words: its claim, its contexts and what each arm changes."""
    runs = len(study.planned())
    lines = [
        f"{study.name}: {study.title}",
        f"claim      {study.claim}",
        f"run        {study.run}" + (f" with {_fields(study.fields)}" if study.fields else ""),
        f"size       {len(study.arms)} arms x {_many(len(study.contexts), 'context')} x "
        f"{_many(len(study.seeds), 'seed')} = {runs} runs",
        f"measured   {study.measure.problems} held-out problems x {study.measure.samples} samples, the base policy too",
    ]
    for context in study.contexts:
        if context.name:
            made = (
                ""
                if context.pretrain is None
                else f"; base policy: {context.pretrain.recipe} with " + _fields(context.pretrain.fields)
            )
            lines.append(f"context    {context.name}: {_fields(context.fields)}{made}")
    width = max(len(arm.label) for arm in study.arms)
    for arm in study.arms:
        mark = " (baseline)" if arm.label == study.baseline else ""
        lines.append(f"arm        {arm.label:<{width}}  {_fields(arm.fields)}{mark}")
    return "\n".join(lines)


def plan_text(study: Study, output: Path, store: Path | None, at_once: int) -> str:
    """`--dry-run`: what would run, what is already there, and about how long it takes.

    Raises:
        ConfigError, PolicyError, TaskError: whatever a run would raise before its first rollout.
    """
    from .. import build

    seen = set()
    for planned in study.planned():
        key = (planned.context.name, planned.arm.label)
        if key not in seen:  # seeds change nothing that could be wrong
            seen.add(key)
            build.plan_text(planned.config)
    places = store_of(output, store)
    layout = lay_out(study, places)
    finished = {run.folder for run in layout.runs if is_finished(run, study)}
    left = {run.folder: run for run in layout.runs if run.folder not in finished}
    seconds, source = estimated_seconds(left.values(), study, places)
    folders = {run.folder for run in layout.runs}
    calibrated = {run.calibration for run in layout.runs if run.config.calibrates}
    lines = [
        study_text(study),
        f"into       {output}/, runs in {places.root}/",
        f"to run     {len(left)} of {len(folders)} runs ({len(finished)} are in the store), "
        f"{len(layout.policies)} base policies made, {len(calibrated)} calibrations",
        f"time       about {_minutes(seconds / at_once)} with {at_once} process(es) ({source})",
    ]
    return "\n".join(lines)


def status_text(folder: Path) -> str:
    """How far the study in a folder is, arm by arm.

    Raises:
        RunFolderError: the folder holds no study.
    """
    stored = RunFolder(folder).read_json("study.json")
    if stored is None:
        raise RunFolderError(f"{folder} holds no study.json; give the folder that `steprs study run` writes")
    study = load_config(stored, model=Study)
    layout = lay_out(study, store_of(folder, None))
    lines = [f"{study.name}: {study.title}"]
    done = 0
    for context in study.contexts:
        for arm in study.arms:
            runs = [run for run in layout.runs if run.planned.context == context and run.planned.arm == arm]
            finished = sum(is_finished(run, study) for run in runs)
            done += finished
            at = [updates_of(run.folder) for run in runs]
            name = f"{context.name}, {arm.label}" if context.name else arm.label
            lines.append(f"  {name}: {finished}/{len(runs)} runs finished; updates {', '.join(map(str, at))}")
    total = len(layout.runs)
    again = "" if done == total else "; run the same command again to go on"
    return "\n".join([*lines, f"{done} of {total} runs finished{again}"])


def estimated_seconds(runs: Iterable[Placed], study: Study, store: Store) -> tuple[float, str]:
    """Processor seconds of some runs, and where the estimate comes from."""
    unit, source = _seconds_of_an_update(store)
    total = 0.0
    for run in runs:
        total += START_SECONDS
        total += unit * _relative_cost(run.config) * run.config.train.updates
        total += unit * evaluation_units(study.measure.problems, study.measure.samples)
        every = run.config.train.eval_every
        rounds = run.config.train.updates // every + 1 if every else 0
        total += unit * rounds * evaluation_units(run.config.eval.problems, run.config.eval.samples)
    for context in study.contexts:
        if context.pretrain is not None:
            total += unit * pretrain_config(context.pretrain).updates / 10
    return total, source


def updates_of(folder: Path) -> int:
    """Updates that a run folder has records of."""
    log = folder / "metrics.jsonl"
    return log.read_bytes().count(b"\n") if log.is_file() else 0


def _seconds_of_an_update(store: Store) -> tuple[float, str]:
    """Median over recent runs in the store, scaled to the reference size; else a reference machine's."""
    found = []
    logs = sorted(store.root.glob("run-*/metrics.jsonl"), key=lambda log: log.stat().st_mtime)
    for log in logs[-8:]:
        stored = RunFolder(log.parent).read_json("config.json")
        records = [
            json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()[-20:] if line.endswith("}")
        ]
        if stored and records:
            cost = _relative_cost(load_config(stored, model=RunConfig))
            found.append(sum(r["seconds/rollout"] + r["seconds/update"] for r in records) / len(records) / cost)
    if found:
        return sorted(found)[len(found) // 2], f"measured on {len(found)} runs in the store"
    return REFERENCE_SECONDS, "a guess for the tiny policy: the store holds no run to measure it on"


def _relative_cost(config: RunConfig) -> float:
    return config.train.prompts_per_update * config.train.group_size / REFERENCE_ROLLOUTS * config.loss.inner_updates


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _fields(fields: dict[str, object]) -> str:
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in fields.items()) or "nothing changed"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
