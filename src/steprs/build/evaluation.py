"""`evaluate`: a run folder or a policy, and settings, become an evaluation record."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import torch

from ..config import RunConfig, load_config
from ..errors import ConfigError, RunFolderError
from ..evaluation.evaluate import evaluate as evaluate_policy
from ..evaluation.result import EvalResult
from ..progress import track
from ..training.folder import RunFolder
from ..training.state import checkpoint_name, read_position
from .objects import build_policy, build_sampler, build_task, resolve
from .tracing import trace_recorder


def evaluate(
    target: str | Path,
    *,
    overrides: Sequence[str] = (),
    split: str = "test",
    output: str | Path | None = None,
    checkpoint: Literal["best", "last"] = "best",
    device: str | torch.device | None = None,
    traces: int = 0,
) -> EvalResult:
    """Measure a run's best checkpoint, or a policy, on problems of a split.

    Args:
        target: a run folder, a shipped policy name, or a checkpoint folder.
        overrides: settings of `RunConfig`, e.g. `eval.samples=32` or `eval.temperature=0`. Decode settings left null
            are those of the run; where they differ the result says so.
        split: "train", "dev" or "test".
        output: a JSON file; by default `eval.json` in a run folder (`eval-<split>.json` for another split), nothing
            for a policy.
        checkpoint: of a run: the best by pass@1 on dev, or the last.
        device: default: the first GPU, else the CPU.
        traces: rollouts of the first so many problems are written for the viewer, beside the evaluation: `traces.json`
            for `eval.json`, else `<name>-traces.json`.

    Raises:
        RunFolderError: the run has no whole checkpoint.
        ConfigError, PolicyError, TaskError: as for `train`; or traces without a file to write them beside.

    Example: `evaluate("tiny", overrides=["eval.problems=64"]).summary()["pass@1"]`.
    """
    path = Path(target)
    if output is not None and Path(output).is_dir():
        raise ConfigError(f"output {output} is a folder; give the name of a JSON file")
    is_run = (path / "env.json").is_file() or (path / "checkpoints").is_dir()
    names_policy = any(override.startswith("policy.path=") for override in overrides)
    if is_run and names_policy:
        raise ConfigError(
            f"{target} is a run, whose own checkpoints are evaluated; give the policy in its place instead"
        )
    source = RunFolder(path).read_config() if is_run else None
    config = load_config(source, overrides, model=RunConfig)
    if not is_run and not names_policy:
        config = config.model_copy(update={"policy": config.policy.model_copy(update={"path": str(target)})})
    default = path / ("eval.json" if split == "test" else f"eval-{split}.json") if is_run else None
    file = Path(output) if output is not None else default
    if traces and file is None:
        raise ConfigError(f"traces of {target} need a place: give a file for the evaluation with -o")
    weights = chosen_checkpoint(path, checkpoint) if is_run else None
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    # A checkpoint of an adapted policy holds the merged weights.
    policy = build_policy(config.policy.model_copy(update={"lora": None}), path=weights, device=place)
    task = build_task(config.task)
    trained = resolve(config, policy, task)
    sampler = build_sampler(trained.sampler, policy)
    given = {name: getattr(config.eval, name) for name in ("temperature", "top_p", "top_k", "steps")}
    changed = {name: value for name, value in given.items() if value is not None}
    eval_sampler = build_sampler(trained.sampler.model_copy(update=changed), policy)
    problems = task.problems(split, config.eval.problems)  # type: ignore[arg-type]
    recorder = None
    if traces:
        recorder = trace_recorder(
            trained, policy, task, label=trained.name if is_run else str(target),
            folder=path if is_run else None, problems=traces,
        )  # fmt: skip
    with track(f"evaluating {split}", len(problems)) as bar:
        result = evaluate_policy(
            policy, task, eval_sampler, problems,
            samples=config.eval.samples, k=config.eval.k, seed=config.seed, purpose=f"eval-{split}",
            max_rows=config.sampler.max_rows, max_prompt_tokens=config.task.max_prompt_tokens,
            overlong=config.task.overlong_prompts, policy_name=str(weights or target), split=split,
            run_decoding=asdict(sampler.decoding), denoising=config.eval.denoising,
            backslide_problems=config.eval.backslide_problems, observe=recorder, progress=bar.advance,
        )  # fmt: skip
    if file is not None:
        result.save(file)
        if recorder is not None:
            recorder.save(file.with_name("traces.json" if file.name == "eval.json" else f"{file.stem}-traces.json"))
    return result


def chosen_checkpoint(run: Path, which: Literal["best", "last"]) -> str:
    """The checkpoint with the best pass@1 on dev (the newest whole one if the run never evaluated), or the newest.

    Raises:
        RunFolderError: there is none.
    """
    newest = RunFolder(run).newest_checkpoint()
    if newest is None:
        raise RunFolderError(f"{run} holds no whole checkpoint yet; train it first, or give a policy instead")
    best = read_position(newest).best_update
    named = newest if which == "last" or best is None else run / "checkpoints" / checkpoint_name(best)
    if named.name == checkpoint_name(0):
        warnings.warn(
            f"the best checkpoint of {run} on dev is update 0, the policy before training; `last` takes the newest",
            stacklevel=3,
        )
    return str(named if named.is_dir() else newest)
