"""A policy and a run from a file of one's own: as typed, from the first word of the tokenizer to the evaluation."""

from __future__ import annotations

import json
import random
from pathlib import Path

import published
import pytest
from published import ALL_NAMES, LAYOUTS, random_tensors, write_checkpoint
from support import records, small_config

from steprs import build
from steprs.cli.app import main
from steprs.errors import TaskError
from steprs.evaluation.result import EvalResult
from steprs.tasks import get_task
from steprs.tasks.files.gsm8k import Gsm8kTask
from steprs.types import Verdict

LENGTH = "task.options.completion_length=12"
TINY = (
    "batch_size=16", "hidden_size=32", "intermediate_size=32", "layers=1", "heads=2", "updates=60",
    "muon_learning_rate=0.02", "warmup_updates=5",
)  # fmt: skip
TRAIN = (
    "train.updates=2", "train.prompts_per_update=4", "train.group_size=8", "train.eval_every=2", "train.save_every=1",
    "risk.scale=1.5", "policy.dtype=float32", "eval.problems=6", "eval.samples=4", "eval.k=[1,4]",
)  # fmt: skip


def rows() -> list[str]:
    """200 word problems with few numbers, so that a policy of an hour's making is right now and then."""
    rng = random.Random(0)
    found = {}
    while len(found) < 200:
        a, b = rng.randint(1, 4), rng.randint(1, 4)
        who, what = rng.choice(("Ada", "Tom", "Lin", "Bo")), rng.choice(("eggs", "pens", "nuts", "figs"))
        where = rng.choice(("home", "school", "work"))
        question = f"{who} has {a} {what} at {where} and buys {b} . How many {what} ?"
        found[question] = json.dumps({"question": question, "answer": f"{a} + {b}\n#### {a + b}"})
    return list(found.values())


def typed(*words: str) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as done:
        main(list(words))
    return int(done.value.code or 0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole file, the same file with 1 % broken rows, and a policy that knows its words."""
    folder = tmp_path_factory.mktemp("own")
    whole = rows()
    broken = list(whole)
    broken[40] = '{"question": "cut of'
    broken[150] = '{"question": "How many ?", "answer": "#### many"}'
    (folder / "rows.jsonl").write_text("\n".join(whole) + "\n")
    (folder / "broken.jsonl").write_text("\n".join(broken) + "\n")
    assert typed(
        "pretrain", "pretrain/tiny", "task.name=gsm8k", f"task.options.file={folder / 'rows.jsonl'}",
        "task.options.instruction=''", LENGTH, *TINY, "-o", str(folder / "policy"),
    ) == 0  # fmt: skip
    return folder


def task(file: Path, *more: str) -> list[str]:
    return ["task.name=gsm8k", f"task.options.file={file}", "task.options.instruction=''", LENGTH, *more]


def test_a_policy_is_not_overwritten(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (data / "policy" / "model.safetensors").read_bytes()
    assert typed("pretrain", "pretrain/tiny", "updates=1", "-o", str(data / "policy")) == 2
    assert "holds a policy or a run already" in capsys.readouterr().err
    assert (data / "policy" / "model.safetensors").read_bytes() == before


def test_train_and_evaluate(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    losses = [json.loads(line)["loss"] for line in (data / "policy" / "pretrain_log.jsonl").read_text().splitlines()]
    assert losses[-1] < 0.6 * losses[0]
    run = tmp_path / "run"
    own = task(data / "rows.jsonl")
    assert typed("train", "train/countdown", f"policy.path={data / 'policy'}", *own, *TRAIN, "-o", str(run)) == 0
    written = records(run)
    assert [record["update"] for record in written] == [1, 2]
    for record in written:
        assert record["verifier/failures"] == 0.0
        assert 0.0 <= record["completions/truncated"] <= 1.0 and 0.0 <= record["completions/unparsed"] <= 1.0
    assert any("</answer>" in sample["completion"] for sample in records(run, "rollouts.jsonl"))
    kept = json.loads((run / "rows.json").read_text())
    assert kept["rows"] == {str(data / "rows.jsonl"): 200} and sum(kept["used"].values()) == 200
    assert not any(kept["counts"].values())
    capsys.readouterr()
    assert typed("eval", str(run), "eval.problems=4", "eval.samples=4", "eval.k=[1]") == 0
    said = capsys.readouterr().out
    assert "unparsed_rate" in said and "truncated_rate" in said
    result = EvalResult.load(run / "eval.json")
    assert result.task == "gsm8k" and result.verifier_failures == 0
    for problem in result.problems:
        assert problem.ended is not None
        for text, ended in zip(problem.texts, problem.ended, strict=True):
            assert problem.traces is not None and isinstance(problem.traces[text].text, str) and isinstance(ended, bool)
    # The rows of a run are its own: another file under the same name is refused.
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(rows()[:150]))
    config = json.loads((run / "config.json").read_text())
    config["task"]["options"]["file"] = str(other)
    (run / "config.json").write_text(json.dumps(config))
    (run / "result.json").unlink()
    assert typed("train", str(run), "--resume") == 2
    assert "are not those that" in capsys.readouterr().err


def test_one_percent_broken_rows_stop_or_are_left_out(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    command = ["train", "train/countdown", f"policy.path={data / 'policy'}", *TRAIN, "-o", str(run)]
    assert typed(*command, *task(data / "broken.jsonl")) == 2
    said = capsys.readouterr().err
    assert "2 of 200 rows cannot be used" in said and "bad_rows=skip" in said
    assert "broken.jsonl:41: not JSON" in said and "broken.jsonl:151: no number behind ####" in said
    assert not (run / "metrics.jsonl").exists()
    assert typed(*command, *task(data / "broken.jsonl", "task.options.bad_rows=skip")) == 0
    said = capsys.readouterr().out
    assert "2 of 200 rows left out: broken" in said and "broken.jsonl:41: not JSON" in said
    assert len(records(run)) == 2
    kept = json.loads((run / "rows.json").read_text())
    assert kept["counts"]["broken"] == 2 and sum(kept["used"].values()) == 198
    assert [note["where"].rpartition(":")[2] for note in kept["notes"]["broken"]] == ["41", "151"]


def test_validate_sample_and_plan_as_typed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, broken = str(data / "rows.jsonl"), str(data / "broken.jsonl")
    assert typed("tasks", "validate", "gsm8k", "--file", whole, "-n", "5") == 0
    assert "gold completions taken         15 of 15" in capsys.readouterr().out
    assert typed("tasks", "validate", "gsm8k", "--file", broken, "-n", "5") == 1
    said = capsys.readouterr().out
    assert "2 of 200 rows left out: broken" in said and "broken.jsonl:151: no number behind ####" in said
    assert typed("tasks", "sample", "gsm8k", "--file", whole, "-n", "1", "answer_format=hash") == 0
    assert "####" in capsys.readouterr().out
    assert typed("tasks", "sample", "gsm8k", "--file", broken) == 2
    assert typed("tasks", "validate", "countdown", "-n", "2") == 0
    assert "rows" not in capsys.readouterr().out
    options = [*task(data / "broken.jsonl", "task.options.bad_rows=skip"), f"policy.path={data / 'policy'}"]
    assert typed("train", "train/countdown", *options, "--dry-run") == 0
    plan = capsys.readouterr().out
    assert "dev and test cut from train, a tenth each" in plan and "2 of 200 rows left out: broken" in plan


def test_a_policy_without_the_words_says_so(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("train", "train/countdown", *task(data / "rows.jsonl"), "--dry-run") == 2
    assert "words that the policy's vocabulary lacks" in capsys.readouterr().err


def test_files_without_training_or_dev_rows(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "train/countdown", f"policy.path={data / 'policy'}", *TRAIN, "-o", str(tmp_path / "run")]
    options = ["task.name=gsm8k", "task.options.instruction=''", LENGTH]
    assert typed(*command, *options, f"task.options.test_file={data / 'rows.jsonl'}") == 2
    assert "has no training problem; give task.options.train_file" in capsys.readouterr().err
    few = tmp_path / "few.jsonl"
    few.write_text(rows()[0] + "\n")
    assert (
        typed(*command, *options, f"task.options.train_file={few}", f"task.options.test_file={data / 'rows.jsonl'}")
        == 2
    )
    assert "no training problem" in capsys.readouterr().err, "its only row is held out"


@pytest.mark.parametrize("family", ALL_NAMES)
def test_an_overlong_prompt_is_named_or_dropped_everywhere(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through every family's tokenizer and template: rewards, rollouts and prompts stay in step."""
    long = {"question": "How many eggs " + "and pens " * 40 + "?", "answer": "#### 3"}
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join([*rows()[:40], json.dumps(long)]) + "\n")
    options = {"train_file": str(file), "dev_file": None, "instruction": ""}
    words = ["<|im_start|>", "<|im_end|>", *get_task("gsm8k", **options).vocabulary()]
    monkeypatch.setattr(published, "words", lambda: words)
    write_checkpoint(tmp_path / "policy", family, tensors=random_tensors(LAYOUTS[family], rows=len(words) + 8))
    lengths: list[int] = []

    def parity(self: Gsm8kTask, problem, completion: str) -> Verdict:  # type: ignore[no-untyped-def]
        lengths.append(len(problem.prompt.split()))
        right = sum(map(ord, completion)) % 2 == 0
        return Verdict(reward=float(right), status="right" if right else "wrong", answer_key=completion)

    monkeypatch.setattr(Gsm8kTask, "score", parity)
    monkeypatch.setattr(Gsm8kTask, "gold_fault", lambda self, item: None)
    held_out = tmp_path / "test.jsonl"
    held_out.write_text("\n".join([*rows()[40:50], json.dumps({**long, "question": long["question"] + " ?"})]) + "\n")
    given = [
        f"policy.path={tmp_path / 'policy'}", "task.name=gsm8k", f"task.options.train_file={file}",
        f"task.options.test_file={held_out}", "task.options.instruction=''", "task.max_prompt_tokens=40",
        "sampler.length=8", "sampler.steps=8", "sampler.block_size=4",
        "train.updates=2", "train.prompts_per_update=20", "train.group_size=2",
    ]  # fmt: skip
    with pytest.raises(TaskError, match=r"its prompt has \d+ tokens, allowed are 40"):
        build.train(small_config(*given), output=tmp_path / "error")
    run = build.train(small_config(*given, "task.overlong_prompts=drop"), output=tmp_path / "run")
    dropped = json.loads((run / "dropped.json").read_text())
    assert len(dropped["train"]) + len(dropped["dev"]) == 1
    assert len(lengths) == 2 * 20 * 2 and max(lengths) < 40
    assert [record["skipped"] for record in records(run)] == [0.0, 0.0]
    result = build.evaluate(run, overrides=["eval.problems=11", "eval.samples=2", "eval.k=[1]"], checkpoint="last")
    assert len(result.dropped) == 1 and len(result.problems) == 10
