"""What `steprs tasks` makes of its words; nothing that was typed is dropped in silence."""

import pytest

from steprs.cli.app import main

from .files.rows import sums, write_lines


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--file", "FILE", "file=other.jsonl"), "file is given 2 times; give it once"),
        (("file=FILE", "first_rows=5", "first_rows=6"), "first_rows is given 2 times"),
        (("file=FILE", "first_rows=[1"), "first_rows=[1': the value is not YAML"),
        (("file=123",), "file is 123 (a whole number); allowed: a text or null; put it in quotes"),
    ],
)
def test_options_that_contradict_or_cannot_be_read(words, message, tmp_path, capsys):
    path = str(write_lines(tmp_path / "a.jsonl", sums(40)))
    with pytest.raises(SystemExit) as done:
        main(["tasks", "validate", "gsm8k", *(word.replace("FILE", path) for word in words)])
    assert done.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
