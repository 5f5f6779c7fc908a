"""Rollouts kept for later: one safetensors file an update and process, whole or not there at all.

`rollouts/update-000020.safetensors` holds an update's rollouts as the run weighed them (reveal steps merged if
`loss.shrinkage` asks for it), without prompts: enough to rebuild the trajectory and to weigh it again. With several
processes each writes its own share, `update-000020.1-of-2.safetensors`; they are put together on reading. Ids and steps
are int32 on disk. The stored support of a truncated distribution is left out: weighing does not need it.
"""

from __future__ import annotations

import dataclasses
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..errors import RunFolderError
from ..types import Decoding, Rewards, Trajectory
from .folder import RunFolder

FOLDER, FORMAT = "rollouts", 1
_NAME = re.compile(r"update-(\d{6})(?:\.(\d+)-of-(\d+))?\.safetensors")
_SHORTENED = ("completion_ids_BL", "unmask_step_BL", "block_index_BL", "num_steps_B")
_AS_THEY_ARE = ("completion_mask_BL", "sampling_logprobs_BL", "entropies_BL")
_FACTS = ("mask_token_id", "group_size", "selection_exact", "steps_fixed")


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRollouts:
    """One update's rollouts of all processes, in the order of its prompts.

    Attributes:
        update: the optimiser's update they were made for.
        trajectory: without prompts (`prompt_ids_BC` has no columns).
        rewards: without verdicts.
        row_keys_B: int64 identity of each rollout, which shuffled controls are keyed by.
        problem_ids: P problems.
    """

    update: int
    trajectory: Trajectory
    rewards: Rewards
    row_keys_B: Tensor
    problem_ids: tuple[str, ...]


def is_due(update: int, every: int) -> bool:
    """Whether `update` is kept: the first one, which the base policy made, and every so many.

    >>> [update for update in range(1, 8) if is_due(update, 3)]
    [1, 3, 6]
    """
    return every > 0 and (update == 1 or update % every == 0)


def store_rollouts(
    folder: RunFolder,
    update: int,
    trajectory: Trajectory,
    rewards: Rewards,
    *,
    row_keys_B: Tensor,
    problem_ids: Sequence[str],
    accelerator: Accelerator,
) -> Path:
    """Write this process's share of an update's rollouts; a kill at any moment leaves no torn file."""
    tensors = {name: getattr(trajectory, name).to(torch.int32) for name in _SHORTENED}
    tensors |= {name: getattr(trajectory, name) for name in _AS_THEY_ARE}
    tensors |= {"rewards_PG": rewards.rewards_PG, "valid_PG": rewards.valid_PG, "row_keys_B": row_keys_B}
    facts = {
        "format": FORMAT,
        "update": update,
        "decoding": dataclasses.asdict(trajectory.decoding),
        "binary": rewards.binary,
        "problem_ids": list(problem_ids),
        **{name: getattr(trajectory, name) for name in _FACTS},
    }
    share, shares = accelerator.process_index + 1, accelerator.num_processes
    part = f".{share}-of-{shares}" if shares > 1 else ""
    content = save(
        {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
        metadata={"steprs": json.dumps(facts)},
    )
    return folder.write_bytes(f"{FOLDER}/update-{update:06d}{part}.safetensors", content)


def forget_rollouts_after(folder: RunFolder, update: int) -> None:
    """Delete the rollouts of later updates, which are about to be made again, and what a kill left half-written."""
    for file in sorted((folder.path / FOLDER).glob("update-*")):
        found = _NAME.fullmatch(file.name)
        if file.suffix == ".part" or (found and int(found[1]) > update):
            file.unlink()


def read_rollouts(run: str | Path) -> Iterator[StoredRollouts]:
    """The updates whose rollouts were kept, oldest first, read one at a time.

    Raises:
        RunFolderError: the run kept none, or a file is torn or of another format.
    """
    shares: dict[int, dict[int, Path]] = {}
    expected: dict[int, int] = {}
    for file in sorted((Path(run) / FOLDER).glob("update-*.safetensors")):
        if found := _NAME.fullmatch(file.name):
            update = int(found[1])
            shares.setdefault(update, {})[int(found[2] or 1)] = file
            expected[update] = int(found[3] or 1)
    if not shares:
        raise RunFolderError(
            f"{run} kept no rollouts; train with train.store_rollouts=20, which keeps those of every 20 updates"
        )
    for update, files in sorted(shares.items()):
        if sorted(files) != list(range(1, expected[update] + 1)):
            warnings.warn(
                f"the rollouts of update {update} in {run} lack the share of a process and are passed over",
                stacklevel=2,
            )
            continue
        yield _joined(update, [_read(file) for _, file in sorted(files.items())])


def _read(file: Path) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    try:
        with safe_open(file, framework="pt") as content:
            facts = json.loads((content.metadata() or {}).get("steprs", "{}"))
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, ValueError) as error:
        raise RunFolderError(f"{file} cannot be read ({error}); delete it, the other updates can be used") from None
    if facts.get("format") != FORMAT:
        raise RunFolderError(f"{file} has rollout format {facts.get('format')}; this version reads {FORMAT}")
    return tensors, facts


def _joined(update: int, shares: Sequence[tuple[dict[str, Tensor], Mapping[str, Any]]]) -> StoredRollouts:
    tensors = {name: torch.cat([share[name] for share, _ in shares]) for name in shares[0][0]}
    facts = shares[0][1]
    nothing_BC = torch.zeros(len(tensors["row_keys_B"]), 0, dtype=torch.int64)
    fields: dict[str, Any] = {name: tensors[name].long() for name in _SHORTENED}
    fields |= {name: tensors[name] for name in _AS_THEY_ARE} | {name: facts[name] for name in _FACTS}
    trajectory = Trajectory(
        prompt_ids_BC=nothing_BC,
        prompt_mask_BC=nothing_BC.bool(),
        decoding=Decoding(**facts["decoding"]),
        **fields,
    )
    rewards = Rewards(
        rewards_PG=tensors["rewards_PG"], valid_PG=tensors["valid_PG"], verdicts=(), binary=facts["binary"]
    )
    return StoredRollouts(
        update=update,
        trajectory=trajectory,
        rewards=rewards,
        row_keys_B=tensors["row_keys_B"],
        problem_ids=tuple(name for _, share in shares for name in share["problem_ids"]),
    )
