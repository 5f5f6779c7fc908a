"""What became of a file's rows: how many are used, and which are not, by file and line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal["broken", "duplicate", "overlap", "other"]
# All rows are counted; so many of each kind are named.
MAX_NAMED = 1000
SHOWN = 5
WORDS: Mapping[Kind, str] = {
    "broken": "broken",
    "duplicate": "the same problem as an earlier row",
    "overlap": "the same problem as one in a split that is held out",
    "other": "not asked for by the options",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """A row that is not used.

    Attributes:
        where: `file:line`.
        reason: what is wrong with it, or which row it repeats.
    """

    where: str
    reason: str


@dataclass(kw_only=True, slots=True)
class RowReport:
    """Counts over all sources of a task, filled while they are read.

    Attributes:
        rows: source -> rows it has.
        used: split -> problems.
        counts: rows that are not used, by kind.
        notes: the first thousand of each kind.
        split_rule: how rows became splits, in words.
        digest: of all problems, as the policy reads them, with their splits and answers: equal for the same content.
    """

    rows: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WORDS, 0))
    notes: dict[str, list[Note]] = field(default_factory=lambda: {kind: [] for kind in WORDS})
    split_rule: str = ""
    digest: str = ""

    @property
    def total(self) -> int:
        """Rows of all sources."""
        return sum(self.rows.values())

    def add(self, kind: Kind, where: str, reason: str) -> None:
        """Count a row, and name it while there is room."""
        self.counts[kind] += 1
        if len(self.notes[kind]) < MAX_NAMED:
            self.notes[kind].append(Note(where=where, reason=reason))

    def lines(self, shown: int = SHOWN) -> Iterator[str]:
        """For people: where the problems come from, then each kind of unused row with the first few of them."""
        sources = ", ".join(f"{label} ({count:,} rows)" for label, count in self.rows.items())
        yield f"{sources}; {self.split_rule}"
        for kind, words in WORDS.items():
            if self.counts[kind]:
                yield f"{self.counts[kind]:,} of {self.total:,} rows left out: {words}"
                yield from (f"  {note.where}: {note.reason}" for note in self.notes[kind][:shown])
                if self.counts[kind] > shown:
                    yield f"  and {self.counts[kind] - shown:,} more"

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the run folder."""
        return asdict(self)
