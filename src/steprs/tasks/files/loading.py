"""From rows to problems in three disjoint splits, with every row that is left out named and counted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from ...errors import TaskError
from ..base import SPLITS, Split, hash_order, split_of
from .columns import RowFault, RowNotAskedFor
from .plain import text_fault
from .reading import Row, Source, read_rows
from .report import SHOWN, RowReport

# Held-out rows are read first, so that they are never trained on.
READ_ORDER: tuple[Split, ...] = ("test", "dev", "train")
GOLD_CHUNK = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """A usable row, without what all problems share.

    Attributes:
        key: canonical: equal keys are equal problems.
        question: the part of the prompt that is this problem's own.
        answer: gold answer in the task's own form.
        metadata: what verifier and gold completion need besides.
        value: equal for rows of the same problem that do not contradict each other.
    """

    key: str
    question: str
    answer: str
    metadata: Mapping[str, Any]
    value: str


class RowTask(Protocol):
    """What the loader needs of a task."""

    @property
    def first_rows(self) -> int | None:
        """Rows to read of each source; None for all."""

    @property
    def gold_threads(self) -> int:
        """Gold answers checked at once."""

    def read_row(self, values: Mapping[str, Any]) -> Item:
        """The problem of a row, or RowFault, or RowNotAskedFor."""

    def gold_fault(self, item: Item) -> str | None:
        """Why the verifier does not take the row's gold answer; None if it does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """Items in a fixed shuffled order, and what became of all rows."""

    items: Mapping[Split, Sequence[Item]]
    report: RowReport


def load(task: RowTask, sources: Mapping[Split, Source]) -> Loaded:
    """Read every source and split what is usable.

    Args:
        task: reads and checks rows.
        sources: of "test" and "dev" rows where these have their own; "train" rows are split by hash for the rest.

    Raises:
        TaskError, ConfigError, DependencyError: a source cannot be read at all.
    """
    report, seen = RowReport(), dict[str, tuple[str, str]]()
    kept: dict[Split, dict[str, Item]] = {}
    for split in READ_ORDER:
        if split in sources:
            fresh = _fresh(task, sources[split], report, seen)
            kept[split] = {item.key: item for item in _checked(task, fresh, report)}
    if "train" in sources:
        pool = kept.pop("train")
        for split in SPLITS:
            kept.setdefault(split, {})
        for key, item in pool.items():
            kept[_home(key, sources)][key] = item
    items = {split: tuple(hash_order(found.values(), found.keys())) for split, found in kept.items()}
    report.used = {split: len(items.get(split, ())) for split in SPLITS}
    report.split_rule = _rule(sources)
    report.digest = _digest(items)
    return Loaded(items=items, report=report)


def refuse_bad_rows(name: str, report: RowReport, *, skip: bool, max_share: float) -> None:
    """Stop for broken rows, unless they may be left out and are few enough.

    Raises:
        TaskError: names the first of them by file and line, and says how to go on.
    """
    count = report.counts["broken"]
    share = count / max(report.total, 1)
    if not count or (skip and share <= max_share):
        return
    named = "; ".join(f"{note.where}: {note.reason}" for note in report.notes["broken"][:SHOWN])
    more = f"; and {count - SHOWN:,} more" if count > SHOWN else ""
    advice = (
        f"that is {share:.1%}, above task.options.max_bad_share={max_share:g}; mend the file, or raise the share"
        if skip
        else "mend the file, or leave such rows out: task.options.bad_rows=skip"
    )
    raise TaskError(f"task {name}: {count:,} of {report.total:,} rows cannot be used ({named}{more}); {advice}")


def _home(key: str, sources: Mapping[Split, Source]) -> Split:
    """The split of a row of the training source: a tenth is cut off for each split without a source of its own."""
    split = split_of(key)
    return split if split not in sources else "train"


def _rule(sources: Mapping[Split, Source]) -> str:
    cut = [split for split in ("dev", "test") if split not in sources]
    if "train" not in sources:
        return "no training problems: for evaluation only"
    return f"{' and '.join(cut)} cut from train, a tenth each, by a hash of the problem" if cut else "splits as given"


def _fresh(
    task: RowTask, source: Source, report: RowReport, seen: dict[str, tuple[str, str]]
) -> Iterator[tuple[str, Item]]:
    """(where, item) of rows that are whole and not there yet."""
    report.rows[source.label] = 0
    own: set[str] = set()
    for row in islice(read_rows(source), task.first_rows):
        report.rows[source.label] += 1
        where = f"{source.label}:{row.line}"
        item = _read(task, row, report, where)
        if item is None:
            continue
        before = seen.get(item.key)
        if before is None:
            seen[item.key] = (where, item.value)
            own.add(item.key)
            yield where, item
        elif before[1] != item.value:
            report.add("broken", where, f"the problem of {before[0]} with another answer, {item.answer[:40]!r}")
        else:
            report.add("duplicate" if item.key in own else "overlap", where, f"as {before[0]}")


def _read(task: RowTask, row: Row, report: RowReport, where: str) -> Item | None:
    try:
        if row.fault is not None:
            raise RowFault(row.fault)
        item = task.read_row(row.values)
        if fault := _text_fault(item):
            raise RowFault(fault)
        return item
    except RowFault as fault:
        report.add("broken", where, str(fault))
    except RowNotAskedFor as reason:
        report.add("other", where, str(reason))
    return None


def _text_fault(item: Item) -> str | None:
    """What is wrong with the texts of a row that policies read or learn to write."""
    texts = {"the question": item.question, "the answer": item.answer}
    texts |= {f"the {name}": text for name, text in item.metadata.items() if isinstance(text, str)}
    return next((fault for what, text in texts.items() if (fault := text_fault(text, what))), None)


def _checked(task: RowTask, rows: Iterable[tuple[str, Item]], report: RowReport) -> Iterator[Item]:
    """Items whose gold answer the verifier takes."""
    rows = iter(rows)
    with ThreadPoolExecutor(task.gold_threads) as threads:
        while chunk := list(islice(rows, GOLD_CHUNK)):
            items = [item for _, item in chunk]
            faults = threads.map(task.gold_fault, items) if task.gold_threads > 1 else map(task.gold_fault, items)
            for (where, item), fault in zip(chunk, faults, strict=True):
                if fault is None:
                    yield item
                else:
                    report.add("broken", where, fault)


def _digest(items: Mapping[Split, Sequence[Item]]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for split in SPLITS:
        for item in items.get(split, ()):
            # As JSON, so that no text can pass for the end of another; the policy reads the question letter by letter.
            digest.update(json.dumps([split, item.key, item.question, item.answer]).encode())
    return digest.hexdigest()


def require_rows(name: str, loaded: Loaded) -> None:
    """Refuse a task without any problem.

    Raises:
        TaskError: says what was read.
    """
    if not any(loaded.report.used.values()):
        raise TaskError(f"task {name} has no problem: {'; '.join(loaded.report.lines())}")
