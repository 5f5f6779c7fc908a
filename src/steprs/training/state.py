"""What a checkpoint holds so that a resumed run is bit for bit the run that was never stopped."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file

from ..errors import RunFolderError
from ..estimators.base import Memory
from ..policies.adapters import fill_adapters
from ..policies.base import Policy
from .batch import UpdateBatch, batch_from_tensors, batch_to_tensors
from .folder import RunFolder
from .optim import load_optimizer_tensors, optimizer_tensors

FORMAT = 1
MEMORY = "estimator.safetensors"


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """Where a run stands. Everything random is a function of the seed and of these numbers.

    Attributes:
        update: whole updates done.
        inner: optimiser steps done of the update after it; 0 unless the run stopped between two of them.
        best_update, best_pass: the dev evaluation with the highest pass@1 so far.
        stale: dev evaluations since then.
        processes: number of processes that wrote it.
    """

    update: int = 0
    inner: int = 0
    best_update: int | None = None
    best_pass: float = -1.0
    stale: int = 0
    processes: int = 1

    @property
    def checkpoint(self) -> str:
        """The checkpoint's folder name; names sort by position."""
        return checkpoint_name(self.update) + (f"-inner-{self.inner:02d}" if self.inner else "")


def checkpoint_name(update: int) -> str:
    """The folder name of the checkpoint after `update` whole updates.

    >>> checkpoint_name(20)
    'update-000020'
    """
    return f"update-{update:06d}"


def save(
    folder: RunFolder,
    position: Position,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: UpdateBatch | None,
    memory: Memory,
    accelerator: Accelerator,
    keep_last: int,
) -> None:
    """Write a checkpoint. Every process calls this; each writes its own in-flight rollouts, the main one the rest.

    `memory` is the estimator's, after the rollouts of `batch` if they are in flight; it is the same on every process.
    """
    main = accelerator.is_main_process
    if main:
        folder.begin_checkpoint(position.checkpoint)
    accelerator.wait_for_everyone()
    part = folder.part_of(position.checkpoint)
    trainer = part / "trainer"
    trainer.mkdir(exist_ok=True)
    if batch is not None and position.inner:
        tensors, rest = batch_to_tensors(batch)
        save_file(tensors, trainer / f"inflight-{accelerator.process_index}.safetensors")
        (trainer / f"inflight-{accelerator.process_index}.json").write_text(json.dumps(rest), encoding="utf-8")
    accelerator.wait_for_everyone()
    if main:
        policy.save(part)
        save_file(optimizer_tensors(policy, optimizer), trainer / "optimizer.safetensors")
        if memory:
            save_file({name: tensor.cpu().contiguous() for name, tensor in memory.items()}, trainer / MEMORY)
        content = {"format": FORMAT, **dataclasses.asdict(position)}
        (trainer / "position.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
        folder.finish_checkpoint(part)
        folder.prune(keep_last, None if position.best_update is None else checkpoint_name(position.best_update))
    accelerator.wait_for_everyone()


def read_position(checkpoint: Path) -> Position:
    """Where the run stood when `checkpoint` was written.

    Raises:
        RunFolderError: it was written by another version of the format.
    """
    content = json.loads((checkpoint / "trainer" / "position.json").read_text(encoding="utf-8"))
    found = content.pop("format")
    if found != FORMAT:
        raise RunFolderError(f"{checkpoint} has trainer format {found}; this version reads {FORMAT}")
    return Position(**content)


def restore(
    checkpoint: Path, policy: Policy, optimizer: torch.optim.Optimizer, accelerator: Accelerator
) -> tuple[Position, UpdateBatch | None, Memory]:
    """Adapters, optimiser state, in-flight rollouts and the estimator's memory; the caller loaded full weights.

    Raises:
        RunFolderError: the run stopped between inner updates under another number of processes.
    """
    position = read_position(checkpoint)
    trainer = checkpoint / "trainer"
    if policy.has_adapters:
        assert policy.published is not None
        fill_adapters(policy.unwrapped.causal_lm, checkpoint, policy.published.keys)
    load_optimizer_tensors(policy, optimizer, load_file(trainer / "optimizer.safetensors"))
    kept = trainer / MEMORY
    memory = load_file(kept, device=str(accelerator.device)) if kept.exists() else {}
    if not position.inner:
        return position, None, memory
    if position.processes != accelerator.num_processes:
        raise RunFolderError(
            f"{checkpoint} holds rollouts of {position.processes} processes, but {accelerator.num_processes} run now; "
            "resume with the same number, or delete it to go back to the checkpoint before"
        )
    name = f"inflight-{accelerator.process_index}"
    rest = json.loads((trainer / f"{name}.json").read_text(encoding="utf-8"))
    batch = batch_from_tensors(load_file(trainer / f"{name}.safetensors"), rest, accelerator.device)
    return position, batch, memory
