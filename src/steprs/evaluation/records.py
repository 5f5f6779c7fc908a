"""What an evaluation keeps of each problem, so that any statistic can be computed later. numpy only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import ArgumentError


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenTrace:
    """One completion as text, and as the way to its answer.

    Attributes:
        text: without special tokens; a model's, so it must be escaped before it is shown.
        signature: operators in written order; None where there are none or the task reads none.
        equations: canonical statements; None where the text or the task gives none.
    """

    text: str
    signature: str | None = None
    equations: tuple[str, ...] | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WrittenTrace:
        """The record back from its mapping."""
        equations = data.get("equations")
        return cls(
            text=data["text"],
            signature=data.get("signature"),
            equations=None if equations is None else tuple(equations),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class DenoisingSamples:
    """How the n samples of one problem came about; None where a sample cannot tell. Defined in `denoising.py`.

    Attributes:
        commit_progress: denoising progress at which the last token of the final answer was revealed.
        reveal_order: in [-1, 1], 1 where positions were revealed from left to right.
        entropy_by_progress: mean entropy (nats) of the tokens revealed in each fifth of progress.
        ever_right: right in some state that was completed greedily, or in the end; None where it was not measured.
    """

    commit_progress: tuple[float | None, ...]
    reveal_order: tuple[float | None, ...]
    entropy_by_progress: tuple[tuple[float | None, ...], ...]
    ever_right: tuple[bool, ...] | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DenoisingSamples:
        """The record back from its mapping."""
        plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
        plain["entropy_by_progress"] = tuple(tuple(row) for row in data["entropy_by_progress"])
        return cls(**plain)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemSamples:
    """The n samples of one problem, in the order they were drawn.

    Attributes:
        id: the problem's canonical id.
        statuses: "right", "wrong" or "unparsed" of each sample.
        answer_keys: canonical final answers; None where there is none.
        solution_keys: canonical derivations; None where the task names none.
        texts: numbers that tell completions apart: equal iff the texts were equal.
        tokens: completion tokens up to and including the first end token.
        ended: whether an end token was reached; None for tasks that do not end with one.
        traces: the different completions; `texts` are places in this list. None in records that kept no text.
        denoising: how the samples came about; None where it was not measured.
    """

    id: str
    statuses: tuple[str, ...]
    answer_keys: tuple[str | None, ...]
    solution_keys: tuple[str | None, ...]
    texts: tuple[int, ...]
    tokens: tuple[int, ...]
    ended: tuple[bool, ...] | None = None
    traces: tuple[WrittenTrace, ...] | None = None
    denoising: DenoisingSamples | None = None

    def __post_init__(self) -> None:
        """Refuse lists of different lengths: one short list would shift every statistic after it."""
        lengths = {
            name: len(getattr(self, name))
            for name in ("statuses", "answer_keys", "solution_keys", "texts", "tokens", "ended")
            if getattr(self, name) is not None
        }
        if self.denoising is not None:
            lengths["denoising"] = len(self.denoising.commit_progress)
        if len(set(lengths.values())) != 1 or not self.statuses:
            raise ArgumentError(f"problem {self.id}: one value a sample is needed in each list; got {lengths}")
        unknown = set(self.statuses) - {"right", "wrong", "unparsed"}
        if unknown:
            raise ArgumentError(f"problem {self.id}: statuses are right, wrong or unparsed; got {sorted(unknown)}")
        if self.traces is not None and not all(0 <= text < len(self.traces) for text in self.texts):
            raise ArgumentError(
                f"problem {self.id}: texts must be places in its {len(self.traces)} traces; "
                f"got {sorted(set(self.texts))}"
            )

    @property
    def n(self) -> int:
        """Samples drawn."""
        return len(self.statuses)

    @property
    def correct(self) -> int:
        """Right samples."""
        return self.statuses.count("right")

    def answer_counts(self) -> Counter[str]:
        """How often each final answer was given; unparsed samples give none."""
        return self._counts({"right", "wrong"})

    def right_counts(self) -> Counter[str]:
        """How often each final answer was given and judged right."""
        return self._counts({"right"})

    def wrong_counts(self) -> Counter[str]:
        """How often each final answer was given and judged wrong."""
        return self._counts({"wrong"})

    def solution_counts(self) -> Counter[str]:
        """How often each right solution was given: by derivation where the task names it, else by final answer."""
        rows = zip(self.solution_keys, self.answer_keys, self.statuses, strict=True)
        return Counter(key for solution, answer, status in rows if status == "right" and (key := solution or answer))

    def _counts(self, statuses: Set[str]) -> Counter[str]:
        pairs = zip(self.answer_keys, self.statuses, strict=True)
        return Counter(key for key, status in pairs if key is not None and status in statuses)

    def to_json(self) -> dict[str, Any]:
        """Plain lists."""
        return {
            name: list(value) if isinstance(value := getattr(self, name), tuple) else value for name in self.__slots__
        } | {
            "traces": None if self.traces is None else [asdict(trace) for trace in self.traces],
            "denoising": None if self.denoising is None else asdict(self.denoising),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProblemSamples:
        """The inverse of `to_json`; files from before text was kept have none."""
        plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
        if plain.get("traces") is not None:
            plain["traces"] = tuple(WrittenTrace.from_json(trace) for trace in data["traces"])
        if plain.get("denoising") is not None:
            plain["denoising"] = DenoisingSamples.from_json(data["denoising"])
        return cls(**plain)


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """One completion to look at; its text is the model's and must be escaped before it is shown.

    Attributes:
        problem: id of the problem.
        prompt: what the model saw.
        completion: what it wrote, without special tokens.
        status: the verdict.
    """

    problem: str
    prompt: str
    completion: str
    status: str
