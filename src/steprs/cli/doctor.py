"""`steprs doctor`: what this machine and installation can do."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    import torch

    from ..policies.base import Policy

LIBRARIES = ("steprs", "torch", "transformers", "accelerate", "numpy", "safetensors", "pydantic")
# Extra -> the module whose presence shows that it is installed.
EXTRAS = {
    "peft": ("peft", "LoRA"),
    "hub": ("datasets", "data sets from the Hub"),
    "math": ("math_verify", "MATH-style answers"),
    "tasks": ("reasoning_gym", "reasoning-gym tasks"),
    "plots": ("matplotlib", "figures in reports"),
    "tensorboard": ("tensorboard", "TensorBoard tracker"),
    "wandb": ("wandb", "Weights & Biases tracker"),
}
LEAST_FREE_GIGABYTES = 1.0


def doctor() -> None:
    """Show what this machine and installation can do; exit code 1 if something is broken."""
    failed = 0
    for title, check in (
        ("versions", versions),
        ("machine", machine),
        ("matmul rate", matmul_rates),
        ("extras", extras),
        ("disk", disk),
        ("checkpoints", checkpoints),
    ):
        typer.echo(title)
        for good, line in check():
            failed += not good
            typer.echo(f"  {'' if good else '! '}{line}")
    if failed:
        raise typer.Exit(1)


Line = tuple[bool, str]


def versions() -> Iterator[Line]:
    """Python and the libraries a run needs."""
    from importlib.metadata import PackageNotFoundError, version

    yield True, f"python {platform.python_version()} on {platform.system()} {platform.machine()}"
    for name in LIBRARIES:
        try:
            yield True, f"{name} {version(name)}"
        except PackageNotFoundError:
            yield False, f"{name} is not installed; pip install steprs"


def machine() -> Iterator[Line]:
    """Cores, the threads torch takes, and GPUs."""
    import torch

    yield True, f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads (OMP_NUM_THREADS sets them)"
    if not torch.cuda.is_available():
        yield True, "no CUDA device; the tiny policies need none"
    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        yield True, f"GPU {index}: {found.name}, {found.total_memory / 2**30:.0f} GiB"


def matmul_rates() -> Iterator[Line]:
    """GFLOP/s of float32 and bfloat16 products, and what `dtype: auto` makes of them."""
    import torch

    from ..policies.dtypes import resolve_dtype

    device = "cuda" if torch.cuda.is_available() else "cpu"
    for dtype in (torch.float32, torch.bfloat16):
        yield True, f"{_name(dtype)} on {device}: {_gigaflops(dtype, device):,.0f} GFLOP/s"
    yield True, f"dtype: auto takes {_name(resolve_dtype('auto', device))}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _gigaflops(dtype: torch.dtype, device: str, size: int = 512, products: int = 4) -> float:
    """The best of a few products: other work on the machine only ever makes one slower."""
    import torch

    matrix = torch.ones(size, size, dtype=dtype, device=device)
    seconds = []
    for _ in range(products):
        started = time.perf_counter()
        matrix @ matrix
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return 2 * size**3 / min(seconds) / 1e9


def extras() -> Iterator[Line]:
    """Optional packages, with the command that installs an absent one."""
    from importlib.util import find_spec

    for extra, (module, purpose) in EXTRAS.items():
        if find_spec(module):
            yield True, f"{extra}: installed ({purpose})"
        else:
            yield True, f"{extra}: absent ({purpose}); pip install 'steprs[{extra}]'"


def disk() -> Iterator[Line]:
    """Room for run folders where the command was started."""
    free = shutil.disk_usage(".").free / 2**30
    enough = free >= LEAST_FREE_GIGABYTES
    yield enough, f"{free:.1f} GiB free here" + ("" if enough else "; run folders need room, use -o on another disk")


def checkpoints() -> Iterator[Line]:
    """Load every policy that ships with the package and ask it for one finite score."""
    from ..policies.loading import SHIPPED, load_policy

    for name in SHIPPED:
        try:
            yield True, _loaded(name, load_policy(name))
        except (OSError, RuntimeError, ValueError) as error:
            yield False, f"{name} does not load: {error}; reinstall steprs"


def _loaded(name: str, policy: Policy) -> str:
    import torch

    with torch.no_grad():
        logits = policy.logits(torch.full((1, 4), policy.mask_token_id, device=policy.device))
    if not bool(torch.isfinite(logits[..., : policy.mask_token_id]).all()):
        raise ValueError("its logits are not finite")
    parameters = sum(parameter.numel() for parameter in policy.parameters())
    return f"{name}: {parameters / 1e6:.2f} M parameters, {policy.attention}, loads and scores"
