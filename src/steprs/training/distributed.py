"""What the processes of one run agree on. Whole groups stay on one process; sums are taken over all."""

from __future__ import annotations

import os

from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import Tensor

from ..errors import ConfigError


def make_accelerator(log_with: tuple[str, ...] = (), logging_dir: str | None = None) -> Accelerator:
    """The accelerate engine, refused if it is not the one that was asked for.

    Raises:
        ConfigError: FSDP or DeepSpeed was asked for through accelerate (rollouts need whole weights on each process),
            or several processes were asked for and one was started.
    """
    accelerator = Accelerator(mixed_precision="no", log_with=list(log_with) or None, project_dir=logging_dir)
    for variable, engine in (("ACCELERATE_USE_FSDP", "FSDP"), ("ACCELERATE_USE_DEEPSPEED", "DeepSpeed")):
        if os.environ.get(variable, "").lower() in {"1", "true"}:
            raise ConfigError(
                f"accelerate was configured for {engine}, but training runs data-parallel with whole weights on every "
                "process; choose multi-GPU (DDP) in `accelerate config`, with LoRA where the model is large"
            )
    if accelerator.num_processes == 1 and "MASTER_ADDR" in os.environ and "WORLD_SIZE" not in os.environ:
        raise ConfigError(
            "`accelerate launch` was asked for several processes but started one (it does so with --cpu and no MPI); "
            "on CPUs use: ACCELERATE_USE_CPU=true accelerate launch --multi_gpu --num_processes N ..."
        )
    allowed = {DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU}
    if accelerator.distributed_type not in allowed:
        raise ConfigError(f"accelerate chose {accelerator.distributed_type.value}; allowed: one process or DDP")
    return accelerator


def my_prompts(count: int, accelerator: Accelerator) -> range:
    """Indices of the update's prompts that this process decodes: contiguous, sizes differing by at most one.

    Raises:
        ConfigError: fewer prompts than processes.
    """
    world, rank = accelerator.num_processes, accelerator.process_index
    if count < world:
        raise ConfigError(f"train.prompts_per_update is {count} but {world} processes run; it must be at least {world}")
    return range(rank * count // world, (rank + 1) * count // world)


def sum_over_processes(value: Tensor, accelerator: Accelerator) -> Tensor:
    """The sum of `value` over processes, on every process."""
    return value if accelerator.num_processes == 1 else accelerator.reduce(value, reduction="sum")


def max_over_processes(values: Tensor, accelerator: Accelerator) -> Tensor:
    """The elementwise largest `values` of any process, on every process."""
    if accelerator.num_processes == 1:
        return values
    return accelerator.gather(values[None]).amax(0)
