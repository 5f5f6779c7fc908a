"""The jobs that experiments are made of: make a policy, calibrate, measure a base, train and measure an arm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config import PretrainConfig, RunConfig
from .jobs import Job

# Sizes in the unit of the progress bar, one update of the default run.
CALIBRATION_UNITS = 2
ROWS_A_UNIT = 1024  # completions that an evaluation decodes in the time of an update
PRETRAINING_UNIT = 4  # updates of pretraining
MEASURED = "measured.json"
STATISTICS = 2  # raised when an evaluation keeps more than it did, so that old ones are made again


def way(
    label: str, temperature: float | None, samples: int, k: Sequence[int], *, traces: int = 0, backslides: int = 0
) -> dict[str, Any]:
    """How a policy is decoded and looked at for a measurement; of an argmax one completion says all there is.

    Args:
        label: of the arm.
        temperature: None is training's.
        samples: of each problem.
        k: numbers of tries.
        traces: problems whose rollouts are kept for a viewer.
        backslides: problems whose denoising states are completed; 0 leaves the denoising diagnostics out.
    """
    many = 1 if temperature == 0 else samples
    kept = [tries for tries in k if tries <= many]
    looks = {"traces": traces, "backslides": backslides}
    return {"label": label, "temperature": temperature, "samples": many, "k": kept, **looks}


def evaluation_units(problems: int, samples: int) -> int:
    """Size of an evaluation."""
    return max(1, problems * samples // ROWS_A_UNIT)


def pretraining_job(name: str, config: PretrainConfig, folder: Path) -> Job:
    """Make a base policy in `folder`."""
    units = max(1, config.updates // PRETRAINING_UNIT)
    return Job(
        name=name,
        spec={"job": "pretrain", "config": config.model_dump(mode="json"), "folder": str(folder)},
        units=units,
        done=lambda: units * (folder / "config.json").is_file(),
    )


def calibration_job(name: str, config: RunConfig, folder: Path) -> Job:
    """Measure capability into `folder/calibration.json`, which runs that share it copy."""
    file = folder / "calibration.json"
    return Job(
        name=name,
        spec={"job": "calibrate", "config": config.model_dump(mode="json"), "output": str(folder)},
        units=CALIBRATION_UNITS,
        done=lambda: CALIBRATION_UNITS * file.is_file(),
    )


def base_job(name: str, config: RunConfig, problems: int, ways: Sequence[Mapping[str, Any]], *, traces: int = 0) -> Job:
    """Measure the policy that training starts from; each way has a `folder` of its own.

    Args:
        name: of the job.
        config: whose policy, task and sampler.
        problems: held-out problems.
        ways: from `way`, with a "folder".
        traces: problems of the first way whose rollouts are kept for a viewer.
    """
    marked = [{**one, "traces": 0 if number else traces} for number, one in enumerate(ways)]
    sizes = [evaluation_units(problems, one["samples"]) for one in marked]
    return Job(
        name=name,
        spec={"job": "measure", "config": config.model_dump(mode="json"), "problems": problems, "ways": list(ways)},
        units=sum(sizes),
        done=lambda: sum(
            size for size, one in zip(sizes, ways, strict=True) if is_measured(Path(one["folder"]), problems, one)
        ),
    )


def arm_job(
    name: str,
    config: RunConfig,
    folder: Path,
    problems: int,
    measured: Mapping[str, Any],
    *,
    calibration: Path | None,
) -> Job:
    """Train in `folder`, going on with what is there, and measure what the last update left.

    Args:
        name: of the job.
        config: of the run.
        folder: the run folder.
        problems: held-out problems.
        measured: from `way`.
        calibration: folder of a shared `calibration.json`; None for a run that needs none or makes its own.
    """
    one = {**measured, "folder": str(folder)}
    after = evaluation_units(problems, one["samples"])

    def done() -> int:
        if is_measured(folder, problems, one):
            return config.train.updates + after
        log = folder / "metrics.jsonl"
        return min(config.train.updates, log.read_bytes().count(b"\n") if log.is_file() else 0)

    return Job(
        name=name,
        spec={
            "job": "arm",
            "config": config.model_dump(mode="json"),
            "folder": str(folder),
            "calibration": None if calibration is None else str(calibration / "calibration.json"),
            "problems": problems,
            "ways": [one],
        },
        units=config.train.updates + after,
        done=done,
    )


def is_measured(folder: Path, problems: int, measured: Mapping[str, Any]) -> bool:
    """Whether the folder holds exactly this measurement, made by this version of the statistics."""
    try:
        made = json.loads((folder / MEASURED).read_text(encoding="utf-8")) == measurement(problems, measured)
        kept = ("eval.json", "traces.json") if measured["traces"] else ("eval.json",)
        return bool(made) and all((folder / name).is_file() for name in kept)
    except (OSError, ValueError):
        return False


def measurement(problems: int, measured: Mapping[str, Any]) -> dict[str, Any]:
    """What is written beside an evaluation once it is whole; a label is a name, not part of it."""
    kept = {key: measured[key] for key in ("temperature", "samples", "k", "traces", "backslides")}
    return {"problems": problems, **kept, "version": STATISTICS}


def scale_sentence(file: Path) -> str:
    """The risk scale in a `calibration.json` and where it comes from."""
    frozen = json.loads(file.read_text(encoding="utf-8"))
    measured = frozen["capability"]
    return (
        f"calibration: the base solves {measured['pass_rate']:.3f} [{measured['low']:.3f}, {measured['high']:.3f}] of "
        f"{len(measured['ids'])} training prompts x {measured['samples']} samples; "
        f"the rule {frozen['rule']} gives the risk scale {frozen['scale']:.3f}"
    )
