"""`python -m steprs.experiments.worker SPEC.json`: one job of a study in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..config import PretrainConfig, RunConfig, load_config
from ..errors import StepRSError
from ..training.folder import RunFolder
from .pieces import MEASURED, is_measured, measurement

INTERRUPTED = 130
# torch and all that needs it is imported inside the jobs: it takes seconds, in which a worker whose parent is gone
# would otherwise run on unseen.


def pretrain(spec: Mapping[str, Any]) -> None:
    """Make a base policy; it appears in its folder whole or not at all."""
    from .. import build

    folder = Path(spec["folder"])
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    build.pretrain(load_config(spec["config"], model=PretrainConfig), output=part)
    part.replace(folder)


def calibrate(spec: Mapping[str, Any]) -> None:
    """Measure the base policy once for all arms, in the form that a run keeps in its `calibration.json`."""
    from .. import build

    frozen = build.calibrate(load_config(spec["config"], model=RunConfig))
    RunFolder(spec["output"]).write_json("calibration.json", frozen)


def measure(spec: Mapping[str, Any]) -> None:
    """Evaluate one set of weights on held-out problems, decoded in one or several ways.

    `spec["ways"]` holds folder, label, temperature (null: training's), samples, k, traces and backslides (the last
    two: problems whose rollouts are kept, and whose states are completed) of each.
    """
    from .. import build
    from ..evaluation.evaluate import evaluate

    config = load_config(spec["config"], model=RunConfig)
    policy = build.build_policy(config.policy, path=spec.get("weights"))
    task = build.build_task(config.task)
    config = build.resolve(config, policy, task)
    trained = asdict(build.build_sampler(config.sampler, policy).decoding)
    for way in spec["ways"]:
        folder = RunFolder(way["folder"])
        if is_measured(folder.path, spec["problems"], way):
            continue
        changed = {} if way["temperature"] is None else {"temperature": way["temperature"]}
        recorder = build.trace_recorder(
            config, policy, task, label=way["label"], folder=spec.get("folder"), problems=way["traces"]
        )
        result = evaluate(
            policy,
            task,
            build.build_sampler(config.sampler.model_copy(update=changed), policy),
            task.problems("test", spec["problems"]),
            samples=way["samples"],
            k=way["k"],
            seed=config.seed,
            purpose="eval-test",
            max_rows=config.sampler.max_rows,
            max_prompt_tokens=config.task.max_prompt_tokens,
            overlong=config.task.overlong_prompts,
            policy_name=way["label"],
            split="test",
            run_decoding=trained,
            denoising=way["backslides"] > 0,
            backslide_problems=way["backslides"],
            observe=recorder,
        )
        result.save(folder.path / "eval.json")
        if way["traces"]:
            recorder.save(folder.path / "traces.json")
        folder.write_json(MEASURED, measurement(spec["problems"], way))


def arm(spec: Mapping[str, Any]) -> None:
    """Train one arm, or go on with it, and evaluate what the last update left."""
    from .. import build

    folder = RunFolder(spec["folder"])
    if spec.get("calibration") and not (folder.path / "calibration.json").is_file():
        folder.path.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(spec["calibration"], folder.path / "calibration.json")
    if not (folder.path / "result.json").is_file():
        config = load_config(spec["config"], model=RunConfig)
        build.train(config, resume=(folder.path / "config.json").is_file(), output=folder.path)
    # The last update, not the best one on dev: arms are compared at equal updates.
    weights = folder.newest_checkpoint()
    measure({**spec, "weights": None if weights is None else str(weights)})


JOBS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    "pretrain": pretrain,
    "calibrate": calibrate,
    "measure": measure,
    "arm": arm,
}


def main(path: str) -> int:
    """Do what the file says; returns the exit status."""
    spec = json.loads(Path(path).read_text(encoding="utf-8"))
    threading.Thread(target=_stop_with_parent, args=(spec["parent"],), daemon=True).start()
    # Outside training nothing needs to be finished first, so SIGTERM ends the job like Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        JOBS[spec["job"]](spec)
    except StepRSError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _stop_with_parent(parent: int) -> None:
    """Without the process that reads its progress a job would run on unseen and hold its folder."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
