"""`export`: a run or a checkpoint becomes a folder that the family's own code, transformers or peft loads."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from ..config import RunConfig, load_config
from ..errors import PolicyError
from ..policies.loading import load_policy
from ..training.folder import RunFolder
from .evaluation import chosen_checkpoint

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def export(
    target: str | Path,
    output: str | Path,
    *,
    merge: bool = False,
    checkpoint: Literal["best", "last"] = "best",
    dtype: Literal["float32", "bfloat16"] | None = None,
) -> Path:
    """Write a policy in its family's published layout.

    Args:
        target: a run folder, a checkpoint folder or a shipped name.
        output: a folder that is not there yet.
        merge: add adapters to the weights; without it an adapted policy is written as peft's adapters.
        checkpoint: of a run, see `build.evaluate`.
        dtype: of the weights written; None keeps theirs (float32 after training).

    Raises:
        PolicyError: the output is there, or the target is no policy.
        RunFolderError: the run has no whole checkpoint.
    """
    path, folder = Path(output), Path(target)
    if path.exists() and any(path.iterdir()):
        raise PolicyError(f"{path} is not empty; name a folder that is not there yet")
    is_run = (folder / "checkpoints").is_dir()
    config = load_config(RunFolder(folder).read_config() if is_run else None, model=RunConfig)
    weights = chosen_checkpoint(folder, checkpoint) if is_run else str(target)
    policy = load_policy(weights, trust_remote_code=config.policy.trust_remote_code)
    return policy.save(path, merge=merge, dtype=DTYPES[dtype] if dtype else None)
