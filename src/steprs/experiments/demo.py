"""The whole method in minutes: measure the base, train three arms from it on the same prompts, compare, report."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config import RunConfig, load_config
from ..configs import find_config
from ..errors import DependencyError, RunFolderError
from ..training.folder import RunFolder
from .jobs import Job, processes_at_once, run_jobs
from .pieces import arm_job, base_job, calibration_job, scale_sentence, way

PROBLEMS = 256
SAMPLES = 16
TITLE = "StepRS-GRPO on the tiny policy"
CLAIM = "What a risk coefficient that falls, or rises, over denoising does to one try and to many, beside centred GRPO."
BASELINE = "centred GRPO"
# Label -> folder and what it changes in the shared configuration.
ARMS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    BASELINE: ("centred", ("risk.scale=0",)),
    "StepRS decreasing": ("decreasing", ("risk.schedule.start=1", "risk.schedule.end=0")),
    "StepRS increasing": ("increasing", ("risk.schedule.start=0", "risk.schedule.end=1")),
}
# Label -> folder and temperature (None: training's); one greedy completion says all there is.
BASES: Mapping[str, tuple[str, float | None]] = {
    "base": ("base", None),
    "base, greedy": ("base-greedy", 0.0),
    "base, T = 0.7": ("base-cool", 0.7),
}
TRIES = (1, 4, 16, 64)
TRACES = 12  # problems whose rollouts the report can play


def run_demo(
    output: str | Path,
    *,
    resume: bool = False,
    updates: int | None = None,
    problems: int = PROBLEMS,
    samples: int = SAMPLES,
    overrides: Sequence[str] = (),
    at_once: int | None = None,
) -> Path:
    """Run the demo, or go on with one that was stopped, and show its report.

    A folder that holds an unfinished demo with the same settings is continued: what is finished in it is kept. A
    finished one is shown again with `resume`; without it, it is set aside as `<output>.previous` and made anew.

    Args:
        output: folder of everything.
        resume: the folder must hold a demo, which is continued or shown.
        updates: of each arm; by default what the shipped configuration says.
        problems: held-out problems of the final table.
        samples: completions for each of them.
        overrides: dotted settings for all arms, e.g. `train.group_size=8`.
        at_once: processes at a time; by default two, or one on a single core.

    Returns:
        The folder, with `index.html`, `report.md`, `figures/`, `tables/` and a run folder an arm.

    Raises:
        DependencyError: matplotlib is missing.
        RunFolderError: the folder holds something else, or a demo with other settings; or an arm failed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise DependencyError("the demo draws figures; install matplotlib with: pip install 'steprs[plots]'")
    words = [*overrides, *([] if updates is None else [f"train.updates={updates}"])]
    configs = arm_configs(words)
    settings = {"problems": problems, "samples": samples, "overrides": words}
    folder = Path(output)
    if not _enter(folder, settings, resume=resume):
        return _report(folder)
    started = time.monotonic()
    at_once = at_once or processes_at_once(2)
    print(_plan(configs, problems, samples, at_once, folder), flush=True)
    shared = configs["StepRS decreasing"]
    if shared.calibrates:
        run_jobs([calibration_job("calibration", shared, folder)], folder, title="calibrating", at_once=1)
    print(_scale(folder, shared), flush=True)
    jobs = [_bases(folder, shared, problems, samples)]
    jobs += [_arm(folder, label, config, problems, samples) for label, config in configs.items()]
    # The base and the first arm start together; with two processes nothing waits at the end.
    run_jobs(jobs, folder, title="measuring and training", at_once=at_once)
    RunFolder(folder).write_json("manifest.json", _manifest(folder, shared))
    RunFolder(folder).write_json("demo.json", {**settings, "finished": True})
    _report(folder)
    print(f"\n{(time.monotonic() - started) / 60:.1f} minutes; run folders: {_folders(folder)}")
    return folder


def arm_configs(overrides: Sequence[str] = ()) -> dict[str, RunConfig]:
    """The configuration of each arm: the shipped one, the user's overrides, then what makes the arm."""
    return {
        label: load_config(find_config("demo"), [*overrides, f"name={name}", *changes], model=RunConfig)
        for label, (name, changes) in ARMS.items()
    }


def _scale(folder: Path, config: RunConfig) -> str:
    """The risk scale and where it comes from."""
    if not config.calibrates:
        return f"risk scale: {config.risk.scale}, as given"
    return scale_sentence(folder / "calibration.json")


def _enter(folder: Path, settings: Mapping[str, Any], *, resume: bool) -> bool:
    """Whether there is something left to run in the folder."""
    stored = folder / "demo.json"
    if not stored.is_file():
        if resume or (folder.is_dir() and any(folder.iterdir())):
            what = "holds no demo to resume" if resume else "holds other files"
            raise RunFolderError(f"{folder} {what}; give a new or empty folder with -o")
        RunFolder(folder).write_json("demo.json", {**settings, "finished": False})
        return True
    earlier = json.loads(stored.read_text(encoding="utf-8"))
    if earlier["finished"]:
        if resume:
            return False
        previous = folder.with_name(folder.name + ".previous")
        _remove_demo(previous)
        os.replace(folder, previous)
        print(f"the finished demo in {folder} was moved to {previous}")
        RunFolder(folder).write_json("demo.json", {**settings, "finished": False})
        return True
    changed = [
        f"{name}: {earlier.get(name)} in the folder, {value} now"
        for name, value in settings.items()
        if earlier.get(name) != value
    ]
    if changed:
        raise RunFolderError(
            f"{folder} holds an unfinished demo with other settings ({'; '.join(changed)}); "
            "go on without the changes, or choose another -o folder"
        )
    print(f"going on with the unfinished demo in {folder}")
    return True


def _remove_demo(folder: Path) -> None:
    if not folder.exists():
        return
    if not (folder / "demo.json").is_file():
        raise RunFolderError(f"{folder} is in the way and is no demo; move it, or choose another -o folder")
    shutil.rmtree(folder)


def _bases(folder: Path, shared: RunConfig, problems: int, samples: int) -> Job:
    ways = [
        {**way(label, heat, samples, TRIES, traces=TRACES if heat is None else 0), "folder": str(folder / name)}
        for label, (name, heat) in BASES.items()
    ]
    return base_job("base", shared, problems, ways)


def _arm(folder: Path, label: str, config: RunConfig, problems: int, samples: int) -> Job:
    name, _ = ARMS[label]
    return arm_job(
        name, config, folder / name, problems, way(label, None, samples, TRIES, traces=TRACES),
        calibration=folder if config.calibrates else None,
    )  # fmt: skip


def _plan(configs: Mapping[str, RunConfig], problems: int, samples: int, at_once: int, folder: Path) -> str:
    train = configs[BASELINE].train
    return (
        f"{TITLE}: {len(configs)} arms x {train.updates} updates of {train.prompts_per_update} prompts x "
        f"{train.group_size} rollouts, then {problems} held-out problems x {samples} samples each; "
        f"{at_once} process{'es' if at_once > 1 else ''} at a time, into {folder}/\n"
        "Ctrl-C stops it; the same command goes on from there."
    )


def _manifest(folder: Path, config: RunConfig) -> dict[str, Any]:
    notes = [
        _scale(folder, config),
        "All arms start from the same policy and see the same training prompts. Schedules' ends are multiples of the "
        "risk scale; direction and calibration rule are this project's choices, not claims about the published method.",
    ]
    bases = [
        {"label": label, "kind": "base", "folders": [name], "seeds": [config.seed], "fields": {}}
        for label, (name, _) in BASES.items()
    ]
    trained = [
        {"label": label, "kind": "trained", "folders": [name], "seeds": [config.seed], "fields": _fields(changes)}
        for label, (name, changes) in ARMS.items()
    ]
    return {
        "title": TITLE,
        "claim": CLAIM,
        "notes": notes,
        "coverage": {"runs_planned": len(ARMS), "runs_finished": len(ARMS)},
        "contexts": [{"name": "", "baseline": BASELINE, "arms": [*bases, *trained]}],
    }


def _fields(changes: Sequence[str]) -> dict[str, Any]:
    """What makes an arm, as the report reads it.

    >>> _fields(["risk.schedule.start=1"])
    {'risk.schedule.start': 1}
    """
    return {name: json.loads(value) for name, _, value in (change.partition("=") for change in changes)}


def _report(folder: Path) -> Path:
    """Write and show the report in a process without torch; it reads the folder alone."""
    done = subprocess.run([sys.executable, "-m", "steprs.report", str(folder)], check=False)
    if done.returncode:
        raise RunFolderError(f"the report of {folder} failed; repeat it with: python -m steprs.report {folder}")
    return folder


def _folders(folder: Path) -> str:
    return ", ".join(str(folder / name) for name, _ in ARMS.values())
