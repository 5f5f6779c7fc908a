"""How often a policy solves training prompts: the number that the risk scale is calibrated with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from ..policies.base import Policy
from ..rollout.collect import Sampler
from ..tasks.base import AbstractTask
from ..types import Problem
from .evaluate import evaluate
from .pass_at_k import pass_at_k
from .result import EvalResult
from .statistics import bootstrap_mean


@dataclass(frozen=True, kw_only=True, slots=True)
class Capability:
    """Pass rates of prompts under the training sampler.

    Attributes:
        pass_rate: p0, right samples / all samples.
        low, high: 95 % bootstrap interval over prompts.
        pass_rates: of each prompt, in the order of `ids`.
        ids: the prompts.
        samples: drawn for each prompt.
        decoding: how they were drawn.
        seed: of the draws.
    """

    pass_rate: float
    low: float
    high: float
    pass_rates: tuple[float, ...]
    ids: tuple[str, ...]
    samples: int
    decoding: Mapping[str, Any]
    seed: int

    @property
    def share_with_signal(self) -> float:
        """Share of prompts solved sometimes, not always: only their groups move the policy."""
        return float(np.mean([0 < rate < 1 for rate in self.pass_rates]))

    def expected_signal(self, group_size: int) -> float:
        """Expected share of groups with both right and wrong rollouts, 1 - p^G - (1 - p)^G averaged over prompts.

        An unbiased estimate needs G samples or more; with fewer it uses the measured rates as they are and is a
        little low.

        Args:
            group_size: G, rollouts of one prompt.
        """
        n = self.samples
        correct = np.rint(np.array(self.pass_rates) * n)
        if group_size <= n:
            all_right = 1 - pass_at_k(np.full_like(correct, n), n - correct, group_size)
            all_wrong = 1 - pass_at_k(np.full_like(correct, n), correct, group_size)
        else:
            all_right, all_wrong = (correct / n) ** group_size, (1 - correct / n) ** group_size
        return float(np.mean(1 - all_right - all_wrong))

    def histogram(self, bins: int = 10) -> tuple[int, ...]:
        """Prompts by pass rate in equal bins of [0, 1]; the last one holds 1."""
        return tuple(int(count) for count in np.histogram(self.pass_rates, bins=bins, range=(0.0, 1.0))[0])

    def by_right_samples(self) -> tuple[int, ...]:
        """Prompts with 0, 1, .. n right samples."""
        correct = np.rint(np.array(self.pass_rates) * self.samples).astype(int)
        return tuple(np.bincount(correct, minlength=self.samples + 1).tolist())

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` is the inverse."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Capability:
        """The record back from `to_json`."""
        plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
        return cls(**plain)


def capability_of(result: EvalResult) -> Capability:
    """The pass rates in an evaluation.

    Args:
        result: an evaluation of training prompts.
    """
    pooled = bootstrap_mean(result.pass_rates)
    return Capability(
        pass_rate=pooled.value,
        low=pooled.low,
        high=pooled.high,
        pass_rates=tuple(result.pass_rates.tolist()),
        ids=result.ids,
        samples=result.samples,
        decoding=dict(result.decoding),
        seed=result.seed,
    )


def measure_capability(
    policy: Policy,
    task: AbstractTask,
    sampler: Sampler,
    problems: Sequence[Problem],
    *,
    samples: int,
    seed: int,
    max_rows: int = 1024,
    max_prompt_tokens: int = 1024,
    overlong: Literal["error", "drop"] = "error",
    progress: Callable[[int], None] | None = None,
) -> Capability:
    """Measure p0 on training prompts with the training sampler, whose temperature and steps are part of the policy.

    Args:
        policy: whose pass rates.
        task: its verifier judges.
        sampler: the one that training uses.
        problems: training prompts; 128 or more with 8 or more samples pin p0 to about +-.03.
        samples: drawn for each prompt.
        seed: of the draws.
        max_rows: as in `evaluate`, like the rest.
        max_prompt_tokens: longest prompt.
        overlong: what becomes of a longer one.
        progress: called with the number of prompts finished.
    """
    result = evaluate(
        policy,
        task,
        sampler,
        problems,
        samples=samples,
        k=(1,),
        seed=seed,
        purpose="calibration",
        max_rows=max_rows,
        max_prompt_tokens=max_prompt_tokens,
        overlong=overlong,
        split="train",
        progress=progress,
    )
    return capability_of(result)
