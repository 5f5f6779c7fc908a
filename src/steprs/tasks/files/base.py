"""What tasks from files share: sources, splits, bad rows, prompts, and problems made when they are asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, overload

from ...errors import ArgumentError, unknown_name
from ...types import Problem
from ..base import SPLITS, AbstractTask, Split, as_problem, require_split
from .formats import FORMATS, AnswerFormat
from .loading import Item, Loaded, load, refuse_bad_rows, require_rows
from .reading import Source
from .report import RowReport


@dataclass(frozen=True, kw_only=True)
class AbstractFileTask(AbstractTask):
    """Problems from JSON lines, JSON, CSV, parquet or the Hub. A file is read when problems are first asked for.

    Attributes:
        file: rows of all splits; the same as `train_file`.
        train_file, dev_file, test_file: rows of one split each. Without `test_file` a tenth of the training rows is
            cut off for it, by a hash of the problem, and without `dev_file` another tenth. `test_file` alone is for
            evaluation.
        hub: a dataset of the Hub, for when no file is given.
        hub_subset: its configuration, e.g. `main`.
        train_split, dev_split, test_split: its splits; null where it has none.
        first_rows: rows to read of each source; null for all.
        bad_rows: `error` stops at rows that cannot be used, `skip` leaves them out and counts them.
        max_bad_share: with `skip`, the share of rows that may be left out.
        answer_format: a key of `formats.FORMATS`, of those that the task allows.
        instruction: stands before every question, in place of the format's own; an empty text adds nothing.
        completion_length: tokens left for reasoning and answer.

    Raises:
        ArgumentError: no source, two training sources, or a value that is not allowed.
    """

    file: str | None = None
    train_file: str | None = None
    dev_file: str | None = None
    test_file: str | None = None
    hub: str | None = None
    hub_subset: str | None = None
    train_split: str | None = "train"
    dev_split: str | None = None
    test_split: str | None = "test"
    first_rows: int | None = None
    bad_rows: Literal["error", "skip"] = "error"
    max_bad_share: float = 0.05
    answer_format: str = "answer_tag"
    instruction: str | None = None
    completion_length: int = 256

    # The forms that the task's verifier understands.
    allowed_formats: ClassVar[tuple[str, ...]] = ("answer_tag",)
    # Gold answers checked at once; more than one where another process compares them.
    gold_threads: ClassVar[int] = 1
    ends_with_eos = True

    def __post_init__(self) -> None:
        """Check the options before any file is opened."""
        if not self.sources:
            raise ArgumentError(
                f"{self.name} has no rows: give file=rows.jsonl, or train_file and test_file, or hub=<dataset>"
            )
        if self.file is not None and self.train_file is not None:
            raise ArgumentError(f"file={self.file} and train_file={self.train_file} mean the same; give one of them")
        for option, allowed in (("bad_rows", ("error", "skip")), ("answer_format", self.allowed_formats)):
            if getattr(self, option) not in allowed:
                raise ArgumentError(unknown_name(option, str(getattr(self, option)), allowed))
        if not 0 <= self.max_bad_share <= 1 or min(self.completion_length, self.first_rows or 1) < 1:
            raise ArgumentError(
                f"max_bad_share={self.max_bad_share}, completion_length={self.completion_length}, first_rows="
                f"{self.first_rows}; allowed: a share in [0, 1], at least one token and one row"
            )

    @property
    def sources(self) -> Mapping[Split, Source]:
        """Split -> where its rows come from. Files, where there are any, win over the Hub."""
        files = {"train": self.file or self.train_file, "dev": self.dev_file, "test": self.test_file}
        if any(files.values()):
            return {split: Source(name=name) for split in SPLITS if (name := files[split]) is not None}
        splits = {"train": self.train_split, "dev": self.dev_split, "test": self.test_split}
        return {
            split: Source(name=self.hub, subset=self.hub_subset, split=part)
            for split in SPLITS
            if self.hub is not None and (part := splits[split]) is not None
        }

    @property
    def block_size(self) -> int:
        """Four tokens where they divide the length: text has no written steps."""
        return 4 if self.completion_length % 4 == 0 else self.completion_length

    @property
    def format(self) -> AnswerFormat:
        """The form of an answer."""
        return FORMATS[self.answer_format]

    @property
    def said_instruction(self) -> str | None:
        """What stands before a question; None for the format's own instruction."""
        return self.instruction

    @cached_property
    def _loaded(self) -> Loaded:
        loaded = load(self, self.sources)
        refuse_bad_rows(self.name, loaded.report, skip=self.bad_rows == "skip", max_share=self.max_bad_share)
        require_rows(self.name, loaded)
        return loaded

    def row_report(self) -> RowReport:
        """What became of the rows.

        Raises:
            TaskError: a file cannot be read, or holds rows that may not be left out.
        """
        return self._loaded.report

    def problems(self, split: Split, limit: int | None = None) -> Sequence[Problem]:
        """Problems of a split; none where only a test file was given."""
        require_split(split, limit)
        return LazyProblems(self._loaded.items.get(split, ())[:limit], self._problem)

    def vocabulary(self) -> tuple[str, ...]:
        """Every word of every prompt and gold completion of all splits, sorted."""
        texts = (t for split in SPLITS for p in self.problems(split) for t in (p.prompt, self.gold_completion(p)))
        return tuple(sorted({word for text in texts for word in text.split()}))

    def answer_span(self, problem: Problem, completion: str) -> tuple[int, int] | None:
        """Where the answer stands in its form."""
        del problem
        span = self.format.find(completion)
        answer = self.format.answer(completion)
        if span is None or answer is None:
            return None
        start = completion.index(answer, span[0])
        return start, start + len(answer)

    @abstractmethod
    def read_row(self, values: Mapping[str, Any]) -> Item:
        """The problem of a row.

        Raises:
            RowFault: what is wrong with it.
        """

    def gold_fault(self, item: Item) -> str | None:
        """Why the verifier does not take the gold answer; None if it does."""
        problem = self._problem(item)
        status = self.score(problem, self.gold_completion(problem)).status
        return None if status == "right" else f"the verifier calls the gold answer {item.answer[:60]!r} {status}"

    def _problem(self, item: Item) -> Problem:
        prompt = self.format.prompt(item.question, self.said_instruction)
        return as_problem(self, item.key, prompt, item.answer, item.metadata)


class LazyProblems(Sequence[Problem]):
    """Problems made from their items when they are looked at: the prompts of a long file share their instruction."""

    def __init__(self, items: Sequence[Item], make: Callable[[Item], Problem]) -> None:
        self._items, self._make = items, make

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Problem: ...
    @overload
    def __getitem__(self, index: slice) -> LazyProblems: ...
    def __getitem__(self, index: int | slice) -> Problem | LazyProblems:
        if isinstance(index, slice):
            return LazyProblems(self._items[index], self._make)
        return self._make(self._items[index])

    def __iter__(self) -> Iterator[Problem]:
        return map(self._make, self._items)
