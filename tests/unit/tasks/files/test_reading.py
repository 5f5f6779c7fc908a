"""The same rows from every format; what cannot be read is named by its place."""

import builtins
import importlib.util
import json
import sys
import types

import pytest

from steprs.errors import ConfigError, DependencyError, TaskError
from steprs.tasks import get_task
from steprs.tasks.files.reading import Source, read_rows

ROWS = [{"question": '1 + 1, "so" ?', "answer": "2"}, {"question": "two\nlines", "answer": "3"}]


def rows_of(path):
    return [(row.line, dict(row.values), row.fault) for row in read_rows(Source(name=str(path)))]


def test_json_lines_keep_their_line_numbers(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf" + json.dumps(ROWS[0]).encode() + b"\n\n{broken\n[1]\n\xff\xfe\n" + json.dumps(ROWS[1]).encode()
    )
    found = rows_of(path)
    assert [line for line, _, _ in found] == [1, 3, 4, 5, 6]
    assert (found[0][1], found[4][1]) == (ROWS[0], ROWS[1])
    faults = [fault for _, _, fault in found]
    assert faults[0] is faults[4] is None
    assert faults[1].startswith("not JSON (") and "character 1" in faults[1]
    assert faults[2] == "a list, not an object with columns" and faults[3] == "not UTF-8 text"


@pytest.mark.parametrize("layout", ["list", "lines"])
def test_json_is_a_list_or_lines(layout, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(ROWS) if layout == "list" else "\n".join(map(json.dumps, ROWS)))
    assert [values for _, values, _ in rows_of(path)] == ROWS
    path.write_text("[1, ")
    with pytest.raises(TaskError, match=r"a\.json is not JSON"):
        rows_of(path)


def test_csv_counts_lines_and_fields(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('question,answer\n"1 + 1, ""so"" ?",2\n"two\nlines",3\nlonely\n1,2,3\n')
    found = rows_of(path)
    assert [values for _, values, _ in found[:2]] == ROWS
    assert [line for line, _, _ in found] == [2, 4, 5, 6]
    assert [fault for _, _, fault in found[2:]] == ["not the 2 fields that line 1 names"] * 2


def test_deep_json_is_one_broken_row(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("[" * 200_000 + "\n" + json.dumps(ROWS[0]))
    (broken, whole) = rows_of(path)
    assert broken[2].startswith("not JSON") and whole[2] is None


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs the parquet extra")
def test_parquet(tmp_path):
    import pyarrow
    import pyarrow.parquet

    many = [{"question": f"{n} ?", "answer": str(n)} for n in range(3000)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(many), tmp_path / "a.parquet")
    found = rows_of(tmp_path / "a.parquet")
    assert [values for _, values, _ in found] == many and found[-1][0] == 3000
    (tmp_path / "b.parquet").write_bytes(b"PAR1 not")
    with pytest.raises(TaskError, match=r"b\.parquet cannot be read as parquet"):
        rows_of(tmp_path / "b.parquet")


def test_parquet_goes_through_pyarrow_batch_by_batch(tmp_path, monkeypatch):
    """With a stand-in, so that it is tested where pyarrow is not installed."""
    asked, names = [], ["question", "answer"]

    class File:
        def __init__(self, path):
            self.path = path
            self.schema_arrow = types.SimpleNamespace(names=names)

        def iter_batches(self, batch_size):
            asked.append(batch_size)
            for start in range(0, len(ROWS)):
                yield types.SimpleNamespace(to_pylist=lambda start=start: ROWS[start : start + 1])

    monkeypatch.setitem(sys.modules, "pyarrow", types.ModuleType("pyarrow"))
    stand_in = types.ModuleType("pyarrow.parquet")
    stand_in.ParquetFile = File
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", stand_in)
    (tmp_path / "a.parquet").write_bytes(b"")
    assert rows_of(tmp_path / "a.parquet") == [(1, ROWS[0], None), (2, ROWS[1], None)]
    assert asked == [1024]
    names.append("answer")
    with pytest.raises(TaskError, match=r"a\.parquet: the column 'answer' stands twice"):
        rows_of(tmp_path / "a.parquet")


def test_the_hub_goes_through_datasets(monkeypatch):
    asked = []

    def load_dataset(name, subset, split):
        asked.append((name, subset, split))
        if name == "gone":
            raise ConnectionError("no route")
        return iter(ROWS)

    stand_in = types.ModuleType("datasets")
    stand_in.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    source = Source(name="openai/gsm8k", subset="main", split="test")
    assert [dict(row.values) for row in read_rows(source)] == ROWS
    assert asked == [("openai/gsm8k", "main", "test")]
    assert source.label == "openai/gsm8k/main/test"
    with pytest.raises(
        TaskError, match=r"cannot load gone/train from the Hub: ConnectionError: no route; without a network"
    ):
        list(read_rows(Source(name="gone", split="train")))


@pytest.mark.parametrize(
    ("source", "module", "command"),
    [
        (Source(name="a.parquet"), "pyarrow", r"a\.parquet needs pyarrow.*pip install 'steprs\[parquet\]'"),
        (
            Source(name="openai/gsm8k", split="train"),
            "datasets",
            r"hub=openai/gsm8k needs datasets.*pip install 'steprs\[hub\]'",
        ),
    ],
)
def test_without_the_extra_the_error_holds_the_command(source, module, command, tmp_path, monkeypatch):
    def without(name, *rest):
        if name.startswith(module):
            raise ImportError(name)
        return builtins.__import__(name, *rest)

    monkeypatch.setattr("importlib.import_module", without)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(DependencyError, match=command):
        list(read_rows(source))


def test_missing_files_and_other_endings(tmp_path):
    with pytest.raises(TaskError, match="no file none.jsonl"):
        read_rows(Source(name="none.jsonl"))
    (tmp_path / "a.xlsx").write_bytes(b"")
    with pytest.raises(
        ConfigError, match=r"files end in .jsonl, .ndjson, .json, .csv, .parquet; this one ends in '.xlsx'"
    ):
        read_rows(Source(name=str(tmp_path / "a.xlsx")))


def test_numbers_without_end_are_broken_rows(tmp_path):
    """Python reads no integer of more than 4,300 digits, and makes no float of one with more than 308."""
    path = tmp_path / "a.jsonl"
    lines = [f'{{"question": "How many ?", "answer": {"9" * digits}}}' for digits in (5_000, 4_000, 400, 101)]
    path.write_text("\n".join([*lines, json.dumps({"question": "1 + 1 ?", "answer": 2})]))
    faults = [fault for _, _, fault in rows_of(path)]
    assert faults == ["not JSON that can be read (a number with thousands of digits)", None, None, None, None]
    report = get_task("gsm8k", file=str(path), bad_rows="skip", max_bad_share=1.0).row_report()
    assert [note.reason for note in report.notes["broken"][1:]] == [
        "the answer is a number of more than 100 digits"
    ] * 3
    assert sum(report.used.values()) == 1


def test_a_column_that_stands_twice_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("question,answer,answer\n1 + 1 ?,2,3\n")
    with pytest.raises(TaskError, match=r"a\.csv:1: the column 'answer' stands twice"):
        rows_of(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("question,answer,,\n1 + 1 ?,2,,\n")
    assert rows_of(tmp_path / "b.csv")[0][1]["answer"] == "2", "a spreadsheet's empty columns cannot be asked for"
    twice = '{"question": "1 + 1 ?", "answer": 2, "answer": 3}'
    (tmp_path / "a.jsonl").write_text(f"{twice}\n{json.dumps(ROWS[0])}\n")
    assert [fault for *_, fault in rows_of(tmp_path / "a.jsonl")] == [
        "the column 'answer' stands twice; leave one of the two out", None,
    ]  # fmt: skip
    (tmp_path / "a.json").write_text(f"[{twice}]")
    with pytest.raises(TaskError, match=r"a\.json cannot be read: the column 'answer' stands twice"):
        rows_of(tmp_path / "a.json")


def test_what_is_no_file_says_what_it_is(tmp_path):
    with pytest.raises(TaskError, match=r"is a folder; give one of the files in it \(none of them ends in \.jsonl"):
        read_rows(Source(name=str(tmp_path)))
    (tmp_path / "train.jsonl").write_text("")
    with pytest.raises(TaskError, match=r"is a folder; give one of the files in it \(train\.jsonl\)"):
        read_rows(Source(name=str(tmp_path)))
    for name in ("a\x00.jsonl", "a" * 5_000 + ".jsonl", str(tmp_path / "train.jsonl" / "b.jsonl")):
        with pytest.raises(TaskError, match="cannot be read: "):
            read_rows(Source(name=name))


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("many", [1, 2])
def test_rows_under_a_name_are_explained(indent, many, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"version": "1", "data": ROWS[:many]}, indent=indent))
    with pytest.raises(TaskError, match=r"one object with version, data; .*the list under 'data' alone, e\.g\. jq"):
        rows_of(tmp_path / "a.json")
    (tmp_path / "a.json").write_text(json.dumps(ROWS[0], indent=indent))
    assert rows_of(tmp_path / "a.json") == [(1, ROWS[0], None)]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
def test_another_encoding_is_one_message(encoding, name, tmp_path):
    text = "question,answer\n1 + 1 ?,2\n" if name == "a.csv" else "\n".join(map(json.dumps, ROWS))
    (tmp_path / name).write_bytes(text.encode(encoding))
    with pytest.raises(TaskError, match=rf"{name} is UTF-(16|32).* text, not UTF-8; save it as UTF-8 \(iconv -f UTF"):
        rows_of(tmp_path / name)
