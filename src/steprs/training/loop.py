"""The training loop: prompts -> rollouts -> rewards -> advantages -> updates -> records.

Which estimator runs is decided in `batch.weigh` and nowhere else; everything below it sees one advantage a token.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from ..errors import NonFiniteError
from ..estimators.base import Estimator, Memory
from ..evaluation.evaluate import evaluate
from ..logprobs import pad_plan
from ..policies.base import Policy
from ..progress import track
from ..randomness import row_keys
from ..rollout.collect import Sampler, collect, decode_completions
from ..rollout.lookahead import recording
from ..tasks.base import AbstractTask
from ..tasks.scoring import score_rollouts
from ..types import Problem, Rewards, Trajectory
from . import state
from .batch import UpdateBatch, ended_rows, make_batch, merged, weigh, weighting_metrics
from .collecting import collect_fields
from .distributed import max_over_processes, my_prompts
from .folder import RunFolder
from .interrupt import RunInterrupted, StopRequest, stop_request
from .objective import micro_loss, plan_scoring, without_off_policy_rows
from .optim import apply_update, first_nonfinite, learning_rate_at, make_optimizer
from .records import GRID_EDGES, Tally, rollout_tally, sample_records
from .settings import LoopSettings
from .shaping import reward_few_steps
from .state import Position
from .stored import forget_rollouts_after, is_due, store_rollouts


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Everything that is trained with.

    `reference` is the base policy, None where nothing compares with it or the adapter can be switched off.
    """

    policy: Policy
    reference: Policy | None
    task: AbstractTask
    sampler: Sampler
    estimator: Estimator
    train_problems: Sequence[Problem]
    dev_problems: Sequence[Problem]
    settings: LoopSettings


def train(run: Run, folder: RunFolder, accelerator: Accelerator, *, resume_from: Path | None = None) -> dict[str, Any]:
    """Train until `settings.updates`, an early stop, or a request to stop.

    Args:
        run: what is trained with; on resume its policy was loaded from `resume_from`.
        folder: where records and checkpoints go; the caller holds its lock.
        accelerator: one process, or several that each run this function.
        resume_from: a whole checkpoint of this run.

    Returns:
        The content of `result.json`.

    Raises:
        NonFiniteError: a weight, log-probability, loss or gradient is not finite; the last checkpoint is intact.
        RunInterrupted: SIGINT or SIGTERM; a checkpoint was written.
    """
    settings, policy = run.settings, run.policy
    optimizer = make_optimizer(policy, settings.optim)
    position, batch = Position(processes=accelerator.num_processes), None
    memory = run.estimator.initial_memory()
    if resume_from is not None:
        position, batch, kept = state.restore(resume_from, policy, optimizer, accelerator)
        memory = {**memory, **kept}
    if accelerator.is_main_process:
        # A run that was killed before its first checkpoint starts afresh, and so do its records.
        _forget_after(folder, position.update if resume_from is not None else -1, unfinished=position.inner > 0)
    accelerator.wait_for_everyone()
    scoring_policy = policy.with_module(accelerator.prepare_model(policy.module))

    said = False

    def save(now: Position, unfinished: UpdateBatch | None = None) -> None:
        state.save(folder, now, policy, optimizer, unfinished, memory, accelerator, settings.keep_last)

    with (
        stop_request() as stop,
        track("training", settings.updates, done=position.update, show=accelerator.is_main_process) as bar,
    ):
        if resume_from is None and settings.eval.every:
            position = _evaluate_dev(run, folder, accelerator, position)
            save(position)
        for update in range(position.update + 1, settings.updates + 1):
            started = time.perf_counter()
            if batch is None:
                batch, memory = collect_batch(run, accelerator, update, memory, folder)
            collected = time.perf_counter()
            for inner in range(position.inner, settings.loss.inner_updates):
                with _dropout_noise(settings.seed, update, inner):
                    batch, record = inner_update(run, scoring_policy, optimizer, batch, accelerator, update)
                if inner + 1 < settings.loss.inner_updates:
                    position = dataclasses.replace(position, inner=inner + 1)
                    _stop_if_asked(stop, accelerator, folder, lambda: save(position, batch))  # noqa: B023 - called at once
            seconds = {"seconds/rollout": collected - started, "seconds/update": time.perf_counter() - collected}
            _write_records(folder, accelerator, {"update": update, **batch.metrics, **record, **seconds}, batch)
            if record["skipped"] and not said:
                said = True
                accelerator.print(f"update {update} was skipped: every group's rewards are all equal (said once)")
            bar.advance(1, f"reward {batch.metrics['reward/mean']:.3f}")
            batch, position = None, dataclasses.replace(position, update=update, inner=0)
            if settings.eval.every and update % settings.eval.every == 0:
                position = _evaluate_dev(run, folder, accelerator, position)
            enough = settings.eval.patience is not None and position.stale >= settings.eval.patience
            last = update == settings.updates or enough
            due = settings.save_every and update % settings.save_every == 0
            if last or due or position.best_update == update:
                save(position)
            if enough:
                break
            if not last:
                _stop_if_asked(stop, accelerator, folder, lambda: save(position))  # noqa: B023 - called at once
    return _finish(folder, accelerator, position, settings.updates)


def prompt_indices(seed: int, update: int, count: int, total: int) -> list[int]:
    """Which problems update `update` (1-based) uses: consecutive places in one shuffle after another.

    A function of its arguments alone, so a resumed run, or one with other inner updates, sees the same prompts.

    >>> sorted(prompt_indices(0, 1, 3, 6) + prompt_indices(0, 2, 3, 6))
    [0, 1, 2, 3, 4, 5]
    """
    shuffles: dict[int, list[int]] = {}
    chosen = []
    for place in range((update - 1) * count, update * count):
        epoch, offset = divmod(place, total)
        if epoch not in shuffles:
            keys = row_keys(seed, "prompt-order", epoch, torch.arange(total), torch.zeros(total, dtype=torch.int64))
            shuffles[epoch] = keys.argsort(stable=True).tolist()
        chosen.append(shuffles[epoch][offset])
    return chosen


def rollouts(run: Run, accelerator: Accelerator, update: int) -> tuple[Trajectory, Rewards, list[Problem], list[str]]:
    """This process's share of an update's rollouts, scored, on the merged order of states."""
    settings, policy = run.settings, run.policy
    share = my_prompts(settings.prompts_per_update, accelerator)
    chosen = prompt_indices(settings.seed, update, settings.prompts_per_update, len(run.train_problems))
    problems = [run.train_problems[chosen[i]] for i in share]
    policy.train(False)
    try:
        looks_ahead = "state_rewards_PGS" in run.estimator.requires()
        trajectory = collect(
            policy, recording(run.sampler) if looks_ahead else run.sampler, problems,
            group_size=settings.group_size, seed=settings.seed, purpose="train", update=update,
            prompt_index_P=torch.tensor(list(share)), max_prompt_tokens=settings.max_prompt_tokens,
            max_rows=settings.max_rows, store_support=True,
        )  # fmt: skip
    except NonFiniteError as error:
        raise NonFiniteError(f"update {update}: {error}. {_where_nonfinite(policy)}") from None
    texts = decode_completions(policy, trajectory)
    rewards = score_rollouts(run.task, problems, texts, settings.group_size, bad_rewards=settings.bad_rewards)
    if settings.advantage.steps_used is not None:
        rewards = reward_few_steps(rewards, trajectory.num_steps_B, settings.advantage.steps_used)
    return merged(trajectory, settings.loss.shrinkage), rewards.to(policy.device), problems, texts


def collect_batch(
    run: Run, accelerator: Accelerator, update: int, memory: Memory, folder: RunFolder | None = None
) -> tuple[UpdateBatch, Memory]:
    """Decode, score and weigh one update's rollouts, and keep them in `folder` where the settings ask for it.

    Returns the batch and what the estimator remembers after it.
    """
    settings, policy = run.settings, run.policy
    failures = run.task.verifier_failures
    trajectory, rewards, problems, texts = rollouts(run, accelerator, update)
    prompts_B = torch.tensor(list(my_prompts(settings.prompts_per_update, accelerator)))
    rollouts_B = torch.arange(settings.group_size).repeat(len(problems))
    keys_B = row_keys(
        settings.seed, "mask-noise", update, prompts_B.repeat_interleave(settings.group_size), rollouts_B
    ).to(policy.device)
    if folder is not None and is_due(update, settings.store_rollouts):
        ids = [problem.id for problem in problems]
        store_rollouts(folder, update, trajectory, rewards, row_keys_B=keys_B, problem_ids=ids, accelerator=accelerator)
    collected = collect_fields(run, trajectory, rewards, problems, folder, accelerator)
    # What the sampler foresaw has been used up; a checkpoint between inner updates need not hold it.
    trajectory = dataclasses.replace(trajectory, predictions_BSL=None)
    weighting = weigh(
        trajectory, rewards, run.estimator, memory, settings, accelerator,
        row_keys_B=keys_B, update=update, collected=collected,
    )  # fmt: skip
    ended_B = ended_rows(trajectory, policy.eos_token_id)
    tally = rollout_tally(trajectory, rewards, texts, ends_with_eos=run.task.ends_with_eos, ended_B=ended_B)
    tally.add("verifier/failures", torch.tensor(run.task.verifier_failures - failures, device=policy.device), None)
    metrics: dict[str, Any] = tally.result(accelerator)
    metrics |= weighting_metrics(trajectory, rewards, weighting, settings.advantage, accelerator, collected.costs)
    samples = sample_records(update, problems, texts, rewards.verdicts, settings.group_size, settings.log_completions)
    batch = make_batch(
        trajectory, weighting, settings, accelerator,
        noise_keys_B=keys_B,
        metrics=metrics,
        samples=samples,
    )  # fmt: skip
    return batch, weighting.memory


def inner_update(
    run: Run,
    scoring_policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: UpdateBatch,
    accelerator: Accelerator,
    update: int,
) -> tuple[UpdateBatch, dict[str, Any]]:
    """One optimiser step on one batch of rollouts. Returns the batch, with old log-probabilities, and the record."""
    settings = run.settings
    plan = plan_scoring(batch, run.policy, settings.loss, settings.token_budget)
    forwards = max_over_processes(torch.tensor([len(plan)], device=accelerator.device), accelerator)
    if int(forwards) == 0:
        # No group tells right from wrong, so there is nothing to learn from: no step, no weight decay, no NaN.
        return batch, {"skipped": 1.0}
    # Every process runs as many micro-batches as the one with the most, or a collective would wait for ever.
    plan = pad_plan(plan, int(forwards), batch.trajectory)
    scoring_policy.train(True)
    tally = Tally()
    moved = batch
    if settings.loss.kind == "f-tis":
        advantages_BL, dropped = without_off_policy_rows(run.policy, batch, plan, settings.loss.divergence_limit)
        moved = dataclasses.replace(batch, advantages_BL=advantages_BL)
        tally.add("f_tis/dropped", torch.tensor([dropped], device=accelerator.device), None)
    first_BL = torch.zeros_like(batch.advantages_BL)
    for index, scoring in enumerate(plan):
        waiting = accelerator.no_sync(scoring_policy.module) if index + 1 < len(plan) else nullcontext()
        with waiting:
            micro = micro_loss(scoring_policy, run.reference, moved, scoring, settings.loss, tally)
            # DDP averages gradients over processes; the normaliser already spans them all.
            (micro.loss * accelerator.num_processes).backward()
        first_BL[micro.row_N, micro.pos_N] = micro.logprobs_N.float()
    record = tally.result(accelerator)
    _check_logprobs(run.policy, first_BL, update)
    _check_losses(run.policy, record, update)
    rate = learning_rate_at(update, settings.updates, settings.optim)
    norm = apply_update(
        run.policy, optimizer,
        learning_rate=rate, max_grad_norm=settings.optim.max_grad_norm, update=update,
    )  # fmt: skip
    record |= {"grad_norm": norm, "learning_rate": rate, "forwards": float(len(plan)), "skipped": 0.0}
    if batch.old_logprobs_BL is None:
        batch = dataclasses.replace(batch, old_logprobs_BL=first_BL)
    return batch, record


@contextmanager
def _dropout_noise(seed: int, update: int, inner: int) -> Iterator[None]:
    """The only noise that torch draws itself, keyed like all other; the caller's generator is untouched."""
    key = row_keys(seed, "dropout", update, torch.tensor([inner]), torch.tensor([0]))
    with torch.random.fork_rng():
        torch.manual_seed(int(key))
        yield


def _evaluate_dev(run: Run, folder: RunFolder, accelerator: Accelerator, position: Position) -> Position:
    """pass@k on dev problems, on the main process; the others wait and are told the outcome."""
    outcome = torch.zeros(1, dtype=torch.float64, device=accelerator.device)
    if accelerator.is_main_process:
        result = evaluate(
            run.policy, run.task, run.sampler, run.dev_problems,
            samples=run.settings.eval.samples, k=run.settings.eval.k,
            seed=run.settings.seed, purpose="dev", split="dev",
            max_rows=run.settings.max_rows, max_prompt_tokens=run.settings.max_prompt_tokens,
        )  # fmt: skip
        summary = {name: estimate.value for name, estimate in result.summary().items()}
        folder.append_jsonl("dev.jsonl", {"update": position.update, **summary})
        outcome[0] = summary["pass@1"]
    score = float(max_over_processes(outcome, accelerator))
    if score > position.best_pass:
        return dataclasses.replace(position, best_update=position.update, best_pass=score, stale=0)
    return dataclasses.replace(position, stale=position.stale + 1)


def _finish(folder: RunFolder, accelerator: Accelerator, position: Position, updates: int) -> dict[str, Any]:
    """Write and return how the run ended."""
    skipped = sum(int(record["skipped"]) for record in folder.read_jsonl("metrics.jsonl"))
    result = {
        "status": "finished",
        "updates": position.update,
        "skipped_updates": skipped,
        "stopped_early": position.update < updates,
        "best_update": position.best_update,
        "best_pass@1": position.best_pass if position.best_update is not None else None,
        "checkpoint": f"checkpoints/{position.checkpoint}",
        "grid_pass_rate_edges": list(GRID_EDGES),
        "grid_progress_edges": list(GRID_EDGES),
    }
    if accelerator.is_main_process:
        folder.write_json("result.json", result)
    accelerator.wait_for_everyone()
    return result


def _write_records(folder: RunFolder, accelerator: Accelerator, record: dict[str, Any], batch: UpdateBatch) -> None:
    accelerator.log({k: v for k, v in record.items() if isinstance(v, float)}, step=record["update"])
    if accelerator.is_main_process:
        folder.append_jsonl("metrics.jsonl", record)
        for sample in batch.samples:
            folder.append_jsonl("rollouts.jsonl", sample)


def _forget_after(folder: RunFolder, update: int, *, unfinished: bool) -> None:
    """Drop what was recorded after the checkpoint; it is about to be made again.

    A checkpoint between two inner updates (`unfinished`) holds the rollouts of the next update; theirs are kept.
    """
    for name in ("metrics.jsonl", "rollouts.jsonl", "dev.jsonl"):
        folder.keep_lines(name, lambda record: record["update"] <= update)
    forget_rollouts_after(folder, update + unfinished)


def _stop_if_asked(stop: StopRequest, accelerator: Accelerator, folder: RunFolder, save: Any) -> None:
    asked = torch.tensor([float(stop.requested)], device=accelerator.device)
    if float(max_over_processes(asked, accelerator)):
        save()
        raise RunInterrupted(folder.path)


def _where_nonfinite(policy: Policy) -> str:
    name = first_nonfinite(policy.unwrapped.named_parameters())
    found = f"The first weight that is not finite is {name}" if name else "All weights are finite"
    return f"{found}; the last checkpoint is intact"


def _check_logprobs(policy: Policy, logprobs_BL: Tensor, update: int) -> None:
    """The tensor that a NaN shows in first; what follows from it would name the loss."""
    bad = (~torch.isfinite(logprobs_BL)).nonzero()
    if len(bad):
        row, position = bad[0].tolist()
        raise NonFiniteError(
            f"update {update}: logprobs_BL of the scoring forward is {float(logprobs_BL[row, position])} at rollout "
            f"{row}, position {position} ({len(bad)} such tokens), so no step was made. {_where_nonfinite(policy)}"
        )


def _check_losses(policy: Policy, record: dict[str, Any], update: int) -> None:
    # Rows by progress hold the same numbers again, so looking at the means is enough.
    numbers = {key: value for key, value in record.items() if isinstance(value, float)}
    bad = next((key for key, value in numbers.items() if value - value != 0.0), None)
    if bad is not None:
        where = _where_nonfinite(policy)
        raise NonFiniteError(f"update {update}: {bad} is {record[bad]}, so no step was made. {where}")
