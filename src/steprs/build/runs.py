"""`train`: a configuration becomes a run folder, or a stopped run goes on."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from ..config import RunConfig, load_config
from ..configs import find_config
from ..errors import ConfigError, DependencyError, RunFolderError
from ..estimators.stepwise import StepRSGRPO
from ..policies.base import Policy
from ..rollout.collect import Sampler, fitting_problems
from ..tasks.base import AbstractTask
from ..training import loop
from ..training.distributed import make_accelerator, my_prompts
from ..training.folder import RunFolder
from ..types import Problem
from .calibrating import CALIBRATION, check_frozen, measured_scale
from .checks import check, check_advantage, check_policy
from .control import with_matched_constant
from .objects import (
    build_estimator,
    build_policy,
    build_sampler,
    build_task,
    loop_settings,
    needs_reference,
    resolve,
)

ROWS = "rows.json"


def train(
    config: RunConfig | str | Path | dict[str, Any] | None,
    *,
    resume: bool = False,
    output: str | Path | None = None,
) -> Path:
    """Train as configured and return the run folder.

    Args:
        config: what to run: settings, a mapping of them, a YAML file or a shipped name. None with `resume` takes the
            folder's own `config.json`.
        resume: go on from the newest whole checkpoint; without one the run starts afresh.
        output: the run folder; default `config.output`, then `runs/<name>`.

    Raises:
        ConfigError: settings that contradict each other, or differ from the run that is resumed.
        RunFolderError: the folder is in use, or already holds a run and `resume` was not asked for.
        DependencyError: a tracker or LoRA was asked for whose package is missing.
        steprs.training.interrupt.RunInterrupted: Ctrl-C or SIGTERM; a checkpoint was written.

    Example: `train("train/countdown")`, `train({"train": {"updates": 20}}, output="runs/short")`.
    """
    if isinstance(config, str | Path):
        config = load_config(find_config(str(config)), model=RunConfig)
    elif isinstance(config, dict):
        config = load_config(config, model=RunConfig)
    folder = RunFolder(_folder_of(config, output))
    stored = folder.read_config() if resume else None
    # The trackers of the run that goes on are in its folder; accelerate needs them before anything else.
    known = config or (load_config(stored, model=RunConfig) if stored else None)
    accelerator = make_accelerator(_checked_trackers(known), str(folder.path))
    lock = folder.locked() if accelerator.is_main_process else contextlib.nullcontext()
    with lock:
        accelerator.wait_for_everyone()
        config, checkpoint = _starting_point(folder, config, resume)
        if checkpoint is not None and (finished := folder.read_json("result.json")):
            accelerator.print(f"{folder.path} is finished after {finished['updates']} updates; nothing to do")
            return folder.path
        run, config = _objects(config, folder, accelerator, checkpoint)
        if accelerator.is_main_process:
            folder.write_json("config.json", config.model_dump(mode="json"))
            folder.write_json("env.json", environment(accelerator))
        if config.train.trackers:
            accelerator.init_trackers(config.name, _flat(config.model_dump(mode="json")))
        loop.train(run, folder, accelerator, resume_from=checkpoint)
        accelerator.end_training()
    return folder.path


def _folder_of(config: RunConfig | None, output: str | Path | None) -> Path:
    if output is not None:
        return Path(output)
    if config is None:
        raise ConfigError("nothing to resume: give the run folder as `output`")
    return Path(config.output or f"runs/{config.name}")


def _checked_trackers(config: RunConfig | None) -> tuple[str, ...]:
    """Trackers that can be imported; accelerate alone would leave out a missing one without a word."""
    trackers = () if config is None else config.train.trackers
    for name in trackers:
        if importlib.util.find_spec(name) is None:
            raise DependencyError(
                f"train.trackers asks for {name}, which is not installed: pip install 'steprs[{name}]', "
                "or train.trackers=[]"
            )
    return trackers


def _starting_point(folder: RunFolder, config: RunConfig | None, resume: bool) -> tuple[RunConfig, Path | None]:
    """The configuration to run and the checkpoint to go on from."""
    stored = folder.read_config()
    if not resume:
        if stored is not None:
            begun = folder.checkpoints() or folder.read_jsonl("metrics.jsonl")
            raise RunFolderError(
                f"{folder.path} already holds a run; "
                + ("" if begun else "it made no update, so nothing is lost if you delete the folder; or ")
                + "add --resume to go on with it, or choose another -o folder"
            )
        if config is None:
            raise ConfigError(f"{folder.path} holds no config.json and no configuration was given")
        return config, None
    if stored is None:
        if config is None:
            raise RunFolderError(f"{folder.path} holds no config.json, so there is nothing to resume")
        return config, None
    earlier = load_config(stored, model=RunConfig)
    if config is not None:
        _refuse_other_settings(earlier, config, folder.path)
    newest = folder.newest_checkpoint()
    lost = len(folder.read_jsonl("metrics.jsonl"))
    if newest is None and folder.read_json("result.json"):
        raise RunFolderError(
            f"{folder.path} is a finished run without a whole checkpoint; start it anew in another folder"
        )
    if newest is None and lost:
        warnings.warn(
            f"{folder.path} has no whole checkpoint: it starts afresh, {lost} updates are made again", stacklevel=3
        )
    return earlier, newest


def _refuse_other_settings(earlier: RunConfig, now: RunConfig, path: Path) -> None:
    """A resumed run must be the run that was stopped; settings that were null then were filled in."""
    before, after = _flat(earlier.model_dump(mode="json")), _flat(now.model_dump(mode="json"))
    # Null and `auto` stand for what was filled in when the run began; the output folder is where it is now.
    open_values = (None, "auto")
    # Neither do these change what is trained, so a run may be gone on with under another name.
    beside = {"name", "output", "train.log_completions", "train.keep_last", "train.store_rollouts"}
    beside |= {"eval.denoising", "eval.backslide_problems"}
    changed = [
        f"{key}: {before.get(key)!r} in the folder, {after[key]!r} now"
        for key in after
        if key not in beside
        and not key.startswith("train.trackers")
        and after[key] not in open_values
        and before.get(key) != after[key]
    ]
    # A whole section or an option that is gone was never filled in: it is another setting.
    changed += [
        f"{key}: {before[key]!r} in the folder, nothing now"
        for key in before.keys() - after.keys()
        if before[key] not in open_values and not key.startswith("train.trackers")
    ]
    if changed:
        raise ConfigError(
            f"cannot resume {path} with other settings ({'; '.join(changed)}); resume without them, or start a new run"
        )


def _objects(
    config: RunConfig, folder: RunFolder, accelerator: Accelerator, checkpoint: Path | None
) -> tuple[loop.Run, RunConfig]:
    """Everything that is trained with, and the configuration with nothing left open."""
    task = build_task(config.task)
    weights = None if checkpoint is None or config.policy.lora is not None else str(checkpoint)
    policy = build_policy(config.policy, path=weights, device=accelerator.device, seed=config.seed)
    config = resolve(config, policy, task)
    check(config)
    check_policy(config, policy)
    my_prompts(config.train.prompts_per_update, accelerator)
    sampler = build_sampler(config.sampler, policy)
    _record_rows(task, folder, accelerator)
    train_problems, dev_problems = _usable_problems(config, policy, task, folder, accelerator)
    stepwise = config.advantage.estimator == StepRSGRPO.spec.name
    scale = _risk_scale(config, policy, task, sampler, train_problems, folder, accelerator) if stepwise else 0.0
    estimator = build_estimator(config, scale)
    check_advantage(config, estimator, policy)
    apart = needs_reference(config, estimator)
    if not stepwise and "reference_rewards_PM" in estimator.requires() and (kept := folder.read_json(CALIBRATION)):
        check_frozen(kept, config, folder.path)
    reference = build_policy(config.policy, device=accelerator.device) if apart else None
    if reference is not None:
        reference.module.requires_grad_(False)
    run = loop.Run(
        policy=policy,
        reference=reference,
        task=task,
        sampler=sampler,
        estimator=estimator,
        train_problems=train_problems,
        dev_problems=dev_problems,
        settings=loop_settings(config),
    )
    if stepwise and config.risk.control == "constant":
        run = with_matched_constant(run, config.risk.reference_pass_rate, folder, accelerator)
    return run, config


def _record_rows(task: AbstractTask, folder: RunFolder, accelerator: Accelerator) -> None:
    """Say and keep what became of a file's rows; refuse to go on with a file that is another one now."""
    report = task.row_report()
    if report is None:
        return
    earlier = folder.read_json(ROWS)
    if earlier is not None and earlier["digest"] != report.digest:
        raise ConfigError(
            f"the problems of {', '.join(report.rows)} are not those that {folder.path} was trained on; put the "
            "earlier file back, or start a new run"
        )
    if accelerator.is_main_process and earlier is None:
        folder.write_json(ROWS, report.to_json())
        accelerator.print("\n".join(report.lines()))


def _usable_problems(
    config: RunConfig, policy: Policy, task: AbstractTask, folder: RunFolder, accelerator: Accelerator
) -> tuple[Sequence[Problem], Sequence[Problem]]:
    """Training and dev problems without those whose prompt is too long, which are counted in `dropped.json`."""
    kept: dict[str, Sequence[Problem]] = {}
    dropped: dict[str, list[str]] = {}
    for split, limit in (("train", None), ("dev", config.eval.problems)):
        problems = task.problems(split, limit)  # type: ignore[arg-type]
        kept[split], dropped[split] = problems, []
        if not problems:
            continue
        kept[split] = fitting_problems(
            policy,
            problems,
            max_prompt_tokens=config.task.max_prompt_tokens,
            overlong=config.task.overlong_prompts,
        )
        if len(kept[split]) < len(problems):
            ids = {problem.id for problem in kept[split]}
            dropped[split] = [problem.id for problem in problems if problem.id not in ids]
    if any(dropped.values()) and accelerator.is_main_process:
        folder.write_json("dropped.json", dropped)
        accelerator.print(
            f"prompts above {config.task.max_prompt_tokens} tokens were dropped: "
            + ", ".join(f"{len(ids)} of {split}" for split, ids in dropped.items())
        )
    if not kept["train"]:
        raise ConfigError(f"task {task.name} has no training problem; give task.options.train_file or file")
    if not kept["dev"] and config.train.eval_every:
        raise ConfigError(
            f"task {task.name} has no dev problem to choose a checkpoint by; give task.options.dev_file or a longer "
            "file, or set train.eval_every=0"
        )
    return kept["train"], kept["dev"]


def _risk_scale(
    config: RunConfig,
    policy: Policy,
    task: AbstractTask,
    sampler: Sampler,
    problems: Sequence[Problem],
    folder: RunFolder,
    accelerator: Accelerator,
) -> float:
    """The number the schedule's endpoints are multiples of; measured once and frozen in the run folder."""
    if config.risk.scale != "calibrated":
        return float(config.risk.scale)
    frozen = folder.read_json(CALIBRATION)
    if frozen is not None:
        check_frozen(frozen, config, folder.path)
    if frozen is None and accelerator.is_main_process:
        frozen = measured_scale(config, policy, task, sampler, problems)
        folder.write_json(CALIBRATION, frozen)
    accelerator.wait_for_everyone()
    frozen = folder.read_json(CALIBRATION)
    return float(frozen["scale"])


def environment(accelerator: Accelerator) -> dict[str, Any]:
    """What a figure depends on besides the configuration."""
    packages = ("steprs", "torch", "transformers", "accelerate", "numpy", "safetensors")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cpu_count": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "device": str(accelerator.device),
        "processes": accelerator.num_processes,
        "packages": {name: importlib.metadata.version(name) for name in packages},
    }


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys, which trackers can show.

    >>> _flat({"a": {"b": 1}})
    {'a.b': 1}
    """
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value if isinstance(value, int | float | str | bool | None) else str(value)
    return flat
