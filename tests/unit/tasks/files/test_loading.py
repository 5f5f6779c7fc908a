"""Splits, duplicates and broken rows: nothing is left out without a name and a number."""

import subprocess
import sys

import pytest

from steprs.errors import ConfigError, TaskError
from steprs.tasks import get_task
from steprs.tasks.base import SPLITS, split_of
from steprs.tasks.files.report import MAX_NAMED

from .rows import sums, write_lines

BROKEN = [
    ("{not json", "not JSON"),
    ('{"question": "How many ?"}', "no column answer; it has question"),
    ('{"question": " ", "answer": "#### 3"}', "the question is empty"),
    ('{"question": null, "answer": "#### 3"}', "column question is empty"),
    ('{"question": "How many ?", "answer": "#### lots"}', "no number behind #### in the answer '#### lots'"),
    ('{"question": "How many ?", "answer": "1,23"}', "the answer '1,23' is not a number"),
    ('{"question": ["How many ?"], "answer": "#### 3"}', 'the question is ["How many ?"], not text'),
    ('{"question": "How \\ud800 many ?", "answer": "#### 3"}', "lone surrogate"),
    ("[1, 2]", "a list, not an object with columns"),
]


UNPLAIN = [
    ("Fill <mask> in", "'<mask>', which tokenizers take for a special token"),
    ("the end <eos> ?", "'<eos>'"),
    ("so <|im_end|> ?", "'<|im_end|>'"),
    ("so <|turn> ?", "'<|turn>'"),
    ("so <turn|> ?", "'<turn|>'"),
    ("so <end_of_turn> ?", "'<end_of_turn>'"),
    ("so [MASK] ?", "'[MASK]'"),
    ("so \x00 ?", "U+0000 (a control character), which is not shown"),
    ("so \x1b[31m ?", "U+001B"),
    ("so \x9b31m ?", "U+009B"),
    ("so \u202e ?", "U+202E (right-to-left override)"),
    ("so \u2066 ?", "U+2066 (left-to-right isolate)"),
]


def test_texts_that_a_tokenizer_or_a_reader_takes_for_something_else(tmp_path):
    """In the question, and in the solution that a policy learns to write."""
    rows = [{"question": text, "answer": "#### 3"} for text, _ in UNPLAIN]
    rows += [{"question": f"How many of {n} ?", "answer": f"{text}\n#### 3"} for n, (text, _) in enumerate(UNPLAIN)]
    fine = ["a|b < 3 > c|d ?", "tab\tand\nline ?", "<b>bold</b> [M] <answer> ?", "שלום \u200f1 + 1 ?", "👩\u200d🔬 ?"]
    rows += [{"question": text, "answer": "#### 3"} for text in fine]
    path = write_lines(tmp_path / "a.jsonl", rows)
    report = get_task("gsm8k", file=str(path), bad_rows="skip", max_bad_share=1.0).row_report()
    assert sum(report.used.values()) == len(fine)
    for note, (_, reason) in zip(report.notes["broken"], [*UNPLAIN, *UNPLAIN], strict=True):
        assert reason in note.reason
    assert {note.reason.partition(" holds")[0] for note in report.notes["broken"]} == {"the question", "the solution"}


def ids(task, split):
    return [problem.id for problem in task.problems(split)]


def test_broken_rows_stop_by_default_and_are_named(tmp_path):
    rows = [*sums(500), *(line for line, _ in BROKEN)]
    task = get_task("gsm8k", file=str(write_lines(tmp_path / "a.jsonl", rows)))
    with pytest.raises(
        TaskError, match=r"task gsm8k: 9 of 509 rows cannot be used \(.*a\.jsonl:501: not JSON"
    ) as stopped:
        task.problems("train")
    assert "and 4 more" in str(stopped.value) and "task.options.bad_rows=skip" in str(stopped.value)


def test_broken_rows_are_left_out_named_and_counted(tmp_path):
    rows = [*sums(500), *(line for line, _ in BROKEN)]
    path = write_lines(tmp_path / "a.jsonl", rows)
    task = get_task("gsm8k", file=str(path), bad_rows="skip")
    assert sum(len(task.problems(split)) for split in SPLITS) == 500
    report = task.row_report()
    assert (report.total, report.counts["broken"]) == (509, 9)
    for number, (note, (_, reason)) in enumerate(zip(report.notes["broken"], BROKEN, strict=True)):
        assert note.where == f"{path}:{501 + number}"
        assert reason in note.reason
    shown = list(report.lines(2))
    assert shown[1] == "9 of 509 rows left out: broken" and shown[-1] == "  and 7 more"


def test_too_many_broken_rows_stop_all_the_same(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [*sums(40), "{", "{", "{"])
    with pytest.raises(TaskError, match=r"3 of 43 rows.*that is 7.0%, above task.options.max_bad_share=0.05"):
        get_task("gsm8k", file=str(path), bad_rows="skip").problems("train")
    assert get_task("gsm8k", file=str(path), bad_rows="skip", max_bad_share=0.07).row_report().counts["broken"] == 3


def test_all_are_counted_and_the_first_thousand_named(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [*sums(10), *(["{"] * 1500)])
    report = get_task("gsm8k", file=str(path), bad_rows="skip", max_bad_share=1.0).row_report()
    assert report.counts["broken"] == 1500 and len(report.notes["broken"]) == MAX_NAMED


def test_duplicates_and_contradictions(tmp_path):
    rows = sums(30)
    again = {"question": rows[3]["question"].replace(" ", "  "), "answer": rows[3]["answer"]}
    other = {"question": rows[4]["question"], "answer": "#### 77"}
    path = write_lines(tmp_path / "a.jsonl", [*rows, again, other])
    report = get_task("gsm8k", file=str(path), bad_rows="skip").row_report()
    assert report.counts == {"broken": 1, "duplicate": 1, "overlap": 0, "other": 0}
    assert report.notes["duplicate"][0].where == f"{path}:31" and report.notes["duplicate"][0].reason == f"as {path}:4"
    assert report.notes["broken"][0].reason == f"the problem of {path}:5 with another answer, '77'"


def test_one_file_is_split_by_the_hash_of_the_problem(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", sums(300))
    task = get_task("gsm8k", file=str(path))
    for split in SPLITS:
        assert {split_of(id.partition("/")[2]) for id in ids(task, split)} == {split}
    assert "dev and test cut from train, a tenth each" in "".join(task.row_report().lines())
    # The split and the order are the problem's own: not the file's order, nor its other rows.
    reverse = get_task("gsm8k", file=str(write_lines(tmp_path / "b.jsonl", [*sums(50, 300), *reversed(sums(300))])))
    for split in SPLITS:
        known = set(ids(task, split))
        assert [id for id in ids(reverse, split) if id in known] == ids(task, split)
    assert task.row_report().digest != reverse.row_report().digest


def test_a_test_file_is_the_test_split_and_leaves_training(tmp_path):
    train, test = write_lines(tmp_path / "train.jsonl", sums(200)), write_lines(tmp_path / "test.jsonl", sums(40, 190))
    task = get_task("gsm8k", train_file=str(train), test_file=str(test))
    assert len(task.problems("test")) == 40
    assert not set(ids(task, "test")) & {*ids(task, "train"), *ids(task, "dev")}
    assert len(task.problems("train")) + len(task.problems("dev")) == 190
    assert {split_of(id.partition("/")[2]) for id in ids(task, "dev")} == {"dev"}
    report = task.row_report()
    assert report.counts["overlap"] == 10
    assert report.notes["overlap"][0].where == f"{train}:191" and report.notes["overlap"][0].reason == f"as {test}:1"
    assert "dev cut from train" in report.split_rule


def test_three_files_are_three_splits_and_a_test_file_alone_is_for_evaluation(tmp_path):
    files = {
        f"{split}_file": str(write_lines(tmp_path / f"{split}.jsonl", sums(20, 100 * n)))
        for n, split in enumerate(SPLITS)
    }
    task = get_task("gsm8k", **files)
    assert [len(task.problems(split)) for split in SPLITS] == [20, 20, 20]
    assert task.row_report().split_rule == "splits as given"
    alone = get_task("gsm8k", test_file=files["test_file"])
    assert [len(alone.problems(split)) for split in SPLITS] == [0, 0, 20]
    assert "for evaluation only" in alone.row_report().split_rule


def test_rows_not_asked_for_and_first_rows(tmp_path):
    rows = [{"nums": [1, 2, n], "target": n + 3} for n in range(3, 23)] + [{"nums": [1, 2, 3, 4], "target": 10}]
    path = str(write_lines(tmp_path / "a.jsonl", rows))
    report = get_task("countdown-file", file=path, count=3).row_report()
    assert report.counts["other"] == 1 and sum(report.used.values()) == 20
    assert get_task("countdown-file", file=path, first_rows=5).row_report().total == 5


def test_hub_splits_and_files_that_win_over_them(tmp_path, monkeypatch):
    from steprs.tasks.files import reading

    given = {"train": sums(100), "test": sums(10, 200)}
    monkeypatch.setattr(
        reading.importlib, "import_module",
        lambda name: type("datasets", (), {"load_dataset": staticmethod(lambda name, subset, split: given[split])}),
    )  # fmt: skip
    task = get_task("gsm8k", hub="openai/gsm8k", hub_subset="main")
    assert len(task.problems("test")) == 10
    assert list(task.row_report().rows) == ["openai/gsm8k/main/test", "openai/gsm8k/main/train"]
    one = get_task("gsm8k", hub="openai/gsm8k", test_split=None)
    assert list(one.row_report().rows) == ["openai/gsm8k/train"] and one.problems("test")
    mine = str(write_lines(tmp_path / "mine.jsonl", sums(50)))
    assert list(get_task("gsm8k", hub="openai/gsm8k", file=mine).row_report().rows) == [mine]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "gsm8k has no rows: give file=rows.jsonl"),
        ({"file": "a.jsonl", "train_file": "b.jsonl"}, "mean the same"),
        ({"file": "a.jsonl", "bad_rows": "ignore"}, "bad_rows 'ignore'; allowed: error, skip"),
        ({"file": "a.jsonl", "answer_format": "box"}, "answer_format 'box'; allowed: .*Did you mean 'boxed'"),
        ({"file": "a.jsonl", "max_bad_share": 2}, "max_bad_share=2.*allowed"),
        ({"fil": "a.jsonl"}, "no option 'fil'.*Did you mean 'file'"),
    ],
)
def test_options_are_checked_before_any_file(options, message):
    with pytest.raises(ConfigError, match=message):
        get_task("gsm8k", **options)


def test_a_file_without_a_usable_row(tmp_path):
    with pytest.raises(TaskError, match="task gsm8k has no problem: .*empty.jsonl \\(0 rows\\)"):
        get_task("gsm8k", file=str(write_lines(tmp_path / "empty.jsonl", []))).problems("test")


def test_a_long_file_is_mild_on_memory(tmp_path):
    """Peak of a process that reads 30,000 rows (7 MB), above one that only imports: under 2 kB a row."""
    pad = " of the many things that people count" * 3
    rows = ({"question": row["question"] + pad, "answer": row["answer"]} for row in sums(30_000))
    path = write_lines(tmp_path / "big.jsonl", rows)
    program = (
        "import resource, sys\n"
        "from steprs.tasks import get_task\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "task = get_task('gsm8k', file=sys.argv[1])\n"
        "problems = task.problems('train')\n"
        "assert sum(len(task.problems(s)) for s in ('train', 'dev', 'test')) == 30_000\n"
        "assert sum(len(p.prompt) > 0 for p in problems) == len(problems)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 60
