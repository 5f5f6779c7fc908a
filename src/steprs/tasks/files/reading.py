"""Rows of a file or of a dataset of the Hub, one after the other; a broken one is handed on with what is wrong."""

from __future__ import annotations

import codecs
import csv
import importlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ConfigError, DependencyError, TaskError
from .columns import RowFault

BATCH_ROWS = 1024
# One field of a CSV file; csv's own limit is smaller than some solutions.
MAX_FIELD_CHARACTERS = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where rows come from: a file, or a split of a dataset of the Hub.

    Attributes:
        name: path of the file, or the dataset's name.
        subset: the dataset's configuration, e.g. `main`.
        split: of the dataset; None marks a file.
    """

    name: str
    subset: str | None = None
    split: str | None = None

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.name if self.split is None else "/".join(filter(None, (self.name, self.subset, self.split)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One row as read.

    Attributes:
        line: its line in a text file, its number in parquet and on the Hub; from 1.
        values: column -> value.
        fault: why it cannot be read; `values` is then empty.
    """

    line: int
    values: Mapping[str, Any]
    fault: str | None = None


def read_rows(source: Source) -> Iterator[Row]:
    """The rows of a source, in order, without holding them all where the format allows it.

    Raises:
        TaskError: there is no such file, or it cannot be read as what its ending says.
        ConfigError: the ending is none that is known.
        DependencyError: parquet without pyarrow, or the Hub without datasets.
    """
    if source.split is not None:
        return _hub_rows(source)
    path = Path(source.name)
    beginning = _beginning(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(f"{source.name}: files end in {', '.join(READERS)}; this one ends in {path.suffix!r}")
    if reader is not _parquet and (encoding := _other_encoding(beginning)):
        raise TaskError(f"{path} is {encoding} text, not UTF-8; save it as UTF-8 (iconv -f {encoding} -t UTF-8)")
    return reader(path)


def _beginning(path: Path) -> bytes:
    """The first bytes of a file.

    Raises:
        TaskError: there are none to read.
    """
    try:
        with path.open("rb") as file:
            return file.read(4096)
    except FileNotFoundError:
        raise TaskError(f"no file {path}; paths are taken from the folder that the command is started in") from None
    except IsADirectoryError:
        files = sorted(file.name for file in path.iterdir() if file.suffix.lower() in READERS)
        here = ", ".join(files[:5]) or f"none of them ends in {', '.join(READERS)}"
        raise TaskError(f"{path} is a folder; give one of the files in it ({here})") from None
    # ValueError: a name with a NUL in it.
    except (OSError, ValueError) as error:
        raise TaskError(f"{path} cannot be read: {error}") from None


def _other_encoding(beginning: bytes) -> str | None:
    """UTF-16 or UTF-32, by its mark or by the zeros between ASCII characters; None for what may be UTF-8."""
    for mark, encoding in (
        (codecs.BOM_UTF32_LE, "UTF-32"),
        (codecs.BOM_UTF32_BE, "UTF-32"),
        (codecs.BOM_UTF16_LE, "UTF-16"),
        (codecs.BOM_UTF16_BE, "UTF-16"),
    ):
        if beginning.startswith(mark):
            return encoding
    if 4 * beginning.count(0) < len(beginning) or not beginning:
        return None
    return "UTF-16LE" if beginning[1::2].count(0) > beginning[::2].count(0) else "UTF-16BE"


def _json_lines(path: Path) -> Iterator[Row]:
    with path.open("rb") as lines:
        for number, raw in enumerate(lines, 1):
            if not raw.strip():
                continue
            try:
                row = _row(number, _parsed(raw.decode("utf-8-sig" if number == 1 else "utf-8")))
            except RowFault as fault:
                row = Row(line=number, values={}, fault=str(fault))
            except (ValueError, RecursionError) as error:
                row = Row(line=number, values={}, fault=_json_fault(error))
            yield row


def _json_fault(error: ValueError | RecursionError) -> str:
    """What is wrong with a line that is not read."""
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8 text"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON ({error.msg} at character {error.pos})"
    if isinstance(error, RecursionError):
        return "not JSON that can be read (nested too deeply)"
    # What is left of json's errors: Python reads no integer of more digits than sys.get_int_max_str_digits().
    return "not JSON that can be read (a number with thousands of digits)"


def _json(path: Path) -> Iterator[Row]:
    """A list of rows, or JSON lines under another ending. A list's rows have numbers, not lines."""
    if _beginning(path).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"[" and not _is_one_value(path):
        yield from _json_lines(path)
        return
    try:
        rows = _parsed(path.read_text("utf-8-sig"))
    except RowFault as fault:
        raise TaskError(f"{path} cannot be read: {fault}") from None
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{path} is not JSON: {error}") from None
    if not isinstance(rows, list):
        rows = [_unwrapped(path, rows)]
    for number, value in enumerate(rows, 1):
        yield _row(number, value)


def _is_one_value(path: Path) -> bool:
    """The file is one JSON value, not one on each line."""
    try:
        json.loads(path.read_text("utf-8-sig"))
    except (ValueError, RecursionError):
        return False
    return True


def _unwrapped(path: Path, value: Any) -> Any:
    """The only row of a file.

    Raises:
        TaskError: the value holds rows under a name.
    """
    names = [name for name, held in value.items() if _are_rows(held)] if isinstance(value, Mapping) else []
    if not names:
        return value
    raise TaskError(
        f"{path} is one object with {', '.join(map(str, value))}; allowed is a list of rows, or a row on each line; "
        f"write the list under {names[0]!r} alone, e.g. jq '.[\"{names[0]}\"]' {path}"
    )


def _are_rows(value: Any) -> bool:
    """A list of objects with columns."""
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _parsed(text: str) -> Any:
    """The JSON value of a text.

    Raises:
        RowFault: an object has two values of the same name, of which Python would drop one.
        ValueError, RecursionError: as of json.
    """
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    whole = dict(pairs)
    if len(whole) < len(pairs) and (fault := _twice([name for name, _ in pairs])):
        raise RowFault(fault)
    return whole


def _twice(names: Sequence[str]) -> str:
    """Which column stands twice; empty for none. A spreadsheet's columns without a name cannot be asked for."""
    found = [name for name, count in Counter(names).items() if count > 1 and name]
    return f"the column {found[0]!r} stands twice; leave one of the two out" if found else ""


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(MAX_FIELD_CHARACTERS)
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        try:
            columns = rows.fieldnames or ()
            if twice := _twice(columns):
                raise TaskError(f"{path}:1: {twice}")
            for values in rows:
                whole = None not in values and None not in values.values()
                odd = None if whole else f"not the {len(columns)} fields that line 1 names"
                yield Row(line=rows.line_num, values=values if whole else {}, fault=odd)
        except (UnicodeDecodeError, csv.Error) as error:
            raise TaskError(f"{path} is no CSV in UTF-8 (near line {rows.line_num}): {error}") from None


def _parquet(path: Path) -> Iterator[Row]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise DependencyError(f"{path} needs pyarrow; install it: pip install 'steprs[parquet]'") from None
    try:
        file = parquet.ParquetFile(path)
        if fault := _twice(file.schema_arrow.names):
            raise TaskError(f"{path}: {fault}")
        numbered = (value for batch in file.iter_batches(batch_size=BATCH_ROWS) for value in batch.to_pylist())
        for number, value in enumerate(numbered, 1):
            yield _row(number, value)
    except TaskError:
        raise
    # pyarrow's own errors are ValueErrors or OSErrors.
    except (ValueError, OSError) as error:
        raise TaskError(f"{path} cannot be read as parquet: {error}") from None


def _hub_rows(source: Source) -> Iterator[Row]:
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise DependencyError(
            f"task.options.hub={source.name} needs datasets; install it: pip install 'steprs[hub]', or give files: "
            "task.options.train_file and test_file"
        ) from None
    try:
        rows = datasets.load_dataset(source.name, source.subset, split=source.split)
    except Exception as error:
        # datasets raises errors of many packages; each means that there are no rows.
        raise TaskError(
            f"cannot load {source.label} from the Hub: {type(error).__name__}: {error}; without a network give files: "
            "task.options.train_file and test_file"
        ) from error
    for number, value in enumerate(rows, 1):
        yield _row(number, value)


def _row(line: int, value: Any) -> Row:
    if isinstance(value, Mapping):
        return Row(line=line, values=value)
    return Row(line=line, values={}, fault=f"a {type(value).__name__}, not an object with columns")


READERS: Mapping[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}
