"""The record of one evaluation: all verdicts, how they were decoded, and the statistics on demand. numpy only."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, RunFolderError
from .metrics import problem_metrics
from .records import Example, ProblemSamples
from .statistics import Estimate, bootstrap_mean


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalResult:
    """Verdicts of n samples for each problem.

    Attributes:
        policy: name or folder of the policy.
        task, split: which problems.
        seed: of the sampling; the problems themselves are a function of task and split.
        samples: n, samples a problem.
        k: numbers of tries that the statistics use.
        decoding: every decode setting, by name.
        decode_differences: sentences, one a setting in which this evaluation differs from the training run.
        binary: the task's rewards are two-valued.
        dropped: ids of problems that were left out because their prompt is too long.
        problems: the samples of each problem.
        examples: some completions to look at.
        verifier_failures: answers on which the verifier raised or was stopped; they count as wrong.
    """

    policy: str
    task: str
    split: str
    seed: int
    samples: int
    k: tuple[int, ...]
    decoding: Mapping[str, Any]
    problems: tuple[ProblemSamples, ...]
    decode_differences: tuple[str, ...] = ()
    binary: bool = True
    dropped: tuple[str, ...] = ()
    examples: tuple[Example, ...] = field(default=())
    verifier_failures: int = 0

    def __post_init__(self) -> None:
        """Refuse a k above n and problems with another number of samples."""
        if not self.problems:
            raise ArgumentError(f"an evaluation of {self.task} ({self.split}) without problems has no statistics")
        odd = [problem.id for problem in self.problems if problem.n != self.samples]
        if odd:
            raise ArgumentError(f"every problem needs {self.samples} samples; these have another number: {odd[:5]}")
        if not self.k or max(self.k) > self.samples or min(self.k) < 1:
            raise ArgumentError(f"k must lie in 1..{self.samples}, the samples of a problem; got {list(self.k)}")

    @property
    def ids(self) -> tuple[str, ...]:
        """The problems' ids, in order."""
        return tuple(problem.id for problem in self.problems)

    @property
    def pass_rates(self) -> NDArray[np.float64]:
        """Share of right samples of each problem."""
        return np.array([problem.correct / problem.n for problem in self.problems])

    def metrics(self, k: Sequence[int] | None = None) -> dict[str, NDArray[np.float64]]:
        """One value a problem for every statistic of `metrics.py`; NaN where a problem cannot tell."""
        rows = [problem_metrics(problem, self.k if k is None else k) for problem in self.problems]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def summary(self, k: Sequence[int] | None = None, **bootstrap: Any) -> dict[str, Estimate]:
        """Mean over problems and bootstrap interval of every statistic that some problem has.

        Args:
            k: other numbers of tries than the evaluation's own.
            bootstrap: `level`, `resamples` or `seed` of `statistics.bootstrap_mean`.
        """
        estimates = {name: bootstrap_mean(values, **bootstrap) for name, values in self.metrics(k).items()}
        return {name: estimate for name, estimate in estimates.items() if estimate.problems}

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` is the inverse."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["problems"] = [problem.to_json() for problem in self.problems]
        plain["examples"] = [asdict(example) for example in self.examples]
        plain["decoding"] = dict(self.decoding)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EvalResult:
        """The record back from `to_json`; a stored `summary` is ignored, since it is computed."""
        plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
        plain.pop("summary", None)
        plain["problems"] = tuple(ProblemSamples.from_json(problem) for problem in data["problems"])
        plain["examples"] = tuple(Example(**example) for example in data.get("examples", ()))
        return cls(**plain)

    def save(self, path: str | Path) -> Path:
        """Write the record and, for people with `jq`, its summary; the file appears whole or not at all."""
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        summary = {name: estimate.to_json() for name, estimate in self.summary().items()}
        part = file.with_name(file.name + ".part")
        part.write_text(json.dumps({"summary": summary, **self.to_json()}, allow_nan=False), encoding="utf-8")
        os.replace(part, file)
        return file

    @classmethod
    def load(cls, path: str | Path) -> EvalResult:
        """Read what `save` wrote.

        Raises:
            RunFolderError: the file is missing or is not such a record.
        """
        try:
            return cls.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise RunFolderError(f"no evaluation at {path}: {error.strerror}; run the evaluation first") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(f"{path} is not an evaluation of this version ({error}); evaluate again") from None


def decode_differences(run: Mapping[str, Any], evaluation: Mapping[str, Any]) -> tuple[str, ...]:
    """A sentence for each decode setting in which an evaluation differs from the run it judges.

    >>> decode_differences({"steps": 12, "length": 12}, {"steps": 6, "length": 12})
    ('steps: 6 in the evaluation, 12 in training',)
    """
    names = [*run, *(name for name in evaluation if name not in run)]
    return tuple(
        f"{name}: {_shown(evaluation, name)} in the evaluation, {_shown(run, name)} in training"
        for name in names
        if name not in run or name not in evaluation or run[name] != evaluation[name]
    )


def _shown(settings: Mapping[str, Any], name: str) -> str:
    return str(settings[name]) if name in settings else "not set"
