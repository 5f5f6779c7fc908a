"""`evaluate`: a run folder or a policy, and settings, become an evaluation record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from ..config import RunConfig, load_config
from ..errors import RunFolderError
from ..evaluation.evaluate import evaluate as evaluate_policy
from ..evaluation.result import EvalResult
from ..progress import track
from ..training.folder import RunFolder
from .objects import build_policy, build_sampler, build_task, resolve


def evaluate(
    target: str | Path,
    *,
    overrides: Sequence[str] = (),
    split: str = "test",
    output: str | Path | None = None,
    device: str | torch.device | None = None,
) -> EvalResult:
    """Measure a run's best checkpoint, or a policy, on problems of a split.

    Args:
        target: a run folder, a shipped policy name, or a checkpoint folder.
        overrides: settings of `RunConfig`, e.g. `eval.samples=32` or `eval.temperature=0`. Decode settings left null
            are those of the run; where they differ the result says so.
        split: "train", "dev" or "test".
        output: a JSON file; by default `eval.json` in a run folder (`eval-<split>.json` for another split), nothing
            for a policy.
        device: default: the first GPU, else the CPU.

    Raises:
        RunFolderError: the run has no whole checkpoint.
        ConfigError, PolicyError, TaskError: as for `train`.

    Example: `evaluate("tiny", overrides=["eval.problems=64"]).summary()["pass@1"]`.
    """
    path = Path(target)
    is_run = (path / "checkpoints").is_dir()
    config = load_config(path / "config.json" if is_run else None, overrides, model=RunConfig)
    if not is_run and not any(override.startswith("policy.path=") for override in overrides):
        config = config.model_copy(update={"policy": config.policy.model_copy(update={"path": str(target)})})
    weights = best_checkpoint(path) if is_run else None
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
    with track(f"evaluating {split}", len(problems)) as bar:
        result = evaluate_policy(
            policy, task, eval_sampler, problems,
            samples=config.eval.samples, k=config.eval.k, seed=config.seed, purpose=f"eval-{split}",
            max_rows=config.sampler.max_rows, max_prompt_tokens=config.task.max_prompt_tokens,
            overlong=config.task.overlong_prompts, policy_name=str(weights or target), split=split,
            run_decoding=asdict(sampler.decoding), progress=bar.advance,
        )  # fmt: skip
    default = path / ("eval.json" if split == "test" else f"eval-{split}.json") if is_run else None
    if file := output or default:
        result.save(file)
    return result


def best_checkpoint(run: Path) -> str:
    """The checkpoint with the best pass@1 on dev, or the newest whole one if the run never evaluated.

    Raises:
        RunFolderError: there is none.
    """
    folder = RunFolder(run)
    newest = folder.newest_checkpoint()
    if newest is None:
        raise RunFolderError(f"{run} holds no whole checkpoint yet; train it first, or give a policy instead")
    position = json.loads((newest / "trainer" / "position.json").read_text(encoding="utf-8"))
    best = position["best_update"]
    named = run / "checkpoints" / f"update-{best:06d}" if best is not None else newest
    return str(named if named.is_dir() else newest)
