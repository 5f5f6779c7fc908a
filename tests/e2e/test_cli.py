"""The command line as a person meets it: real processes where exit codes and streams count."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from steprs.cli import main
from steprs.cli.app import app
from steprs.estimators import ESTIMATORS
from steprs.tasks.countdown import CountdownTask
from steprs.types import Verdict

ROOT = Path(__file__).resolve().parents[2]
TINY_RUN = [
    "train/countdown", "train.updates=2", "train.prompts_per_update=4", "train.group_size=4", "train.eval_every=0",
    "eval.problems=4", "eval.samples=2", "eval.k=[1,2]", "risk.scale=1",
]  # fmt: skip


def steprs_process(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "steprs", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, env=environment)


@dataclass(frozen=True)
class Trained:
    """A folder with a small finished run in `run`, and the process that made it."""

    folder: Path
    process: subprocess.CompletedProcess[str]


COMMANDS = (
    "demo", "train", "eval", "calibrate", "study", "report", "rescore", "theory",
    "pretrain", "convert", "export", "tasks", "estimators", "doctor",
)  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("cli")
    process = steprs_process("train", *TINY_RUN, "-o", "run", cwd=folder)
    assert process.returncode == 0, process.stderr
    return Trained(folder=folder, process=process)


class TestHelp:
    @pytest.mark.parametrize("command", COMMANDS)
    def test_every_command_explains_itself(self, command: str) -> None:
        result = CliRunner().invoke(app, [command, "--help"])
        assert result.exit_code == 0
        assert "Usage:" in result.output

    def test_the_main_page_lists_them(self) -> None:
        output = CliRunner().invoke(app, ["--help"]).output
        listed = {line.split()[0] for line in output.splitlines() if line.startswith("  ") and line.strip()}
        assert set(COMMANDS) <= listed

    def test_version(self) -> None:
        assert CliRunner().invoke(app, ["--version"]).output.startswith("steprs 0.")


class TestMistakes:
    """Exit code 2, one line on stderr, nothing on stdout, and no traceback unless it is asked for."""

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["train", "nowhere.yaml"], "unknown shipped configuration"),
            (["train", "train/countdwon"], "Did you mean 'train/countdown'"),
            (["train", "train/countdown", "train.update=3"], "Did you mean 'updates'"),
            (["train", "train/countdown", "oops"], "not an override"),
            (["train", "train/countdown", "task.name=countdwn", "--dry-run"], "Did you mean 'countdown'"),
            (["train", "train/countdown", "policy.path=tinny", "--dry-run"], "tiny"),
            (["tasks", "sample", "countdwn"], "Did you mean 'countdown'"),
            (["estimators", "show", "maxlr"], "Did you mean 'maxrl'"),
            (["eval", "no-such-policy"], "no-such-policy"),
        ],
    )
    def test_are_answered_in_one_line(self, words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as stop:
            main(words)
        output = capsys.readouterr()
        assert stop.value.code == 2
        assert says in output.err
        assert "Traceback" not in output.err
        assert output.out == ""

    def test_debug_shows_where(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            main(["train", "nowhere.yaml", "--debug"])
        assert "Traceback" in capsys.readouterr().err

    def test_in_a_real_process(self, tmp_path: Path) -> None:
        done = steprs_process("train", "nowhere.yaml", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("steprs: ConfigError: ")


class TestEstimators:
    def test_list_names_every_estimator(self) -> None:
        lines = CliRunner().invoke(app, ["estimators", "list"]).output.splitlines()
        assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(ESTIMATORS)

    def test_show_says_what_it_is_and_its_settings(self) -> None:
        output = CliRunner().invoke(app, ["estimators", "show", "pkpo"]).output
        for words in ("C(n - c, k - 1)", "k = 4", "k_end = None", "arXiv 2505.15201", "variant"):
            assert words in output

    def test_json_is_the_same_records(self) -> None:
        shown = json.loads(CliRunner().invoke(app, ["estimators", "show", "pvpo", "--json"]).output)
        assert shown["requires"] == ["reference_rewards_PM"]
        assert shown["settings"] == {}
        assert shown["alive"] is True
        listed = json.loads(CliRunner().invoke(app, ["estimators", "list", "--json"]).output)
        assert [record["name"] for record in listed] == list(ESTIMATORS)
        assert shown in listed


class TestTasks:
    def test_list_names_every_task(self) -> None:
        output = CliRunner().invoke(app, ["tasks", "list"]).output
        assert all(name in output for name in ("countdown", "chain_arithmetic", "sudoku4", "reasoning_gym"))

    def test_sample_shows_problems(self) -> None:
        result = CliRunner().invoke(app, ["tasks", "sample", "countdown", "-n", "2"])
        assert result.exit_code == 0
        assert result.output.count("countdown/") == 2
        assert result.output.count("right") == 2, "the verifier's word on the gold completion"

    def test_an_unknown_split_is_a_usage_error(self) -> None:
        assert CliRunner().invoke(app, ["tasks", "sample", "countdown", "--split", "tset"]).exit_code == 2

    def test_an_option_that_the_task_does_not_take_is_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as stop:
            main(["tasks", "sample", "countdown", "nmbers=3"])
        assert stop.value.code == 2
        assert "nmbers" in capsys.readouterr().err

    def test_validate_passes_for_a_sound_task(self) -> None:
        result = CliRunner().invoke(app, ["tasks", "validate", "countdown", "-n", "5"])
        assert result.exit_code == 0, result.output
        assert "15 of 15" in result.output

    def test_validate_fails_for_a_task_that_takes_anything(self, monkeypatch: pytest.MonkeyPatch) -> None:
        gullible = lambda self, problem, completion: Verdict(reward=1.0, status="right")  # noqa: E731
        monkeypatch.setattr(CountdownTask, "score", gullible)
        result = CliRunner().invoke(app, ["tasks", "validate", "countdown", "-n", "1"])
        assert result.exit_code == 1
        assert "expected not right" in result.output

    def test_options_reach_the_task(self) -> None:
        result = CliRunner().invoke(app, ["tasks", "sample", "countdown", "numbers=3", "-n", "1"])
        prompt = next(line for line in result.output.splitlines() if line.startswith("prompt"))
        assert len(prompt.split()) == 5, "the word prompt, three numbers and a target"


class TestTrainAndEval:
    def test_dry_run_writes_nothing(self, tmp_path: Path) -> None:
        done = steprs_process("train", *TINY_RUN, "--dry-run", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "4 prompts x 4 rollouts" in done.stdout
        assert list(tmp_path.iterdir()) == []

    def test_a_run_names_what_comes_next(self, trained: Trained) -> None:
        assert "steprs eval run" in trained.process.stdout
        assert (trained.folder / "run/result.json").exists()

    def test_a_run_is_not_overwritten(self, trained: Trained) -> None:
        again = steprs_process("train", *TINY_RUN, "-o", "run", cwd=trained.folder)
        assert again.returncode == 2
        assert "--resume" in again.stderr

    def test_a_run_is_evaluated_and_compared(self, trained: Trained) -> None:
        words = ("--format", "markdown", "--compare", "run", "--traces", "2")
        table = steprs_process("eval", "run", *words, cwd=trained.folder)
        assert table.returncode == 0, table.stderr
        assert "pass@1" in table.stdout
        assert "|" in table.stdout
        assert (trained.folder / "run/eval.json").exists()
        assert len(json.loads((trained.folder / "run/traces.json").read_text())["problems"]) == 2

    def test_every_logged_key_is_explained(self, trained: Trained) -> None:
        page = (ROOT / "docs/metrics.md").read_text()
        explained = {key for row in re.findall(r"^\| (`.*?) \|", page, re.M) for key in re.findall(r"`([^`]+)`", row)}
        records = [json.loads(line) for line in (trained.folder / "run/metrics.jsonl").read_text().splitlines()]
        logged = {key for record in records for key in record}
        logged = {re.sub("^(estimator|collect)/.*", r"\1/*", key) for key in logged}
        assert logged - explained == set(), "docs/metrics.md does not explain these"
        assert explained - logged <= {"risk/constant_risk_coef", "estimator/*", "collect/*", "f_tis/dropped"}, (
            "docs/metrics.md explains what no run logs"
        )

    def test_control_c_says_how_to_go_on(self, tmp_path: Path) -> None:
        command = [sys.executable, "-m", "steprs", "train", *TINY_RUN, "train.updates=500", "-o", "run"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        metrics = tmp_path / "run/metrics.jsonl"
        deadline = time.monotonic() + 120
        while not metrics.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 130, errors
        assert "steprs train run --resume" in errors
        assert "Traceback" not in errors

    def test_resume_takes_the_folder_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "run").mkdir()
        (tmp_path / "run/config.json").write_text('{"name": "stored", "seed": 7}')
        calls = []
        monkeypatch.setattr(
            "steprs.build.train", lambda run, *, resume, output: calls.append((run.seed, resume, output)) or output
        )
        main_exit_zero(["train", str(tmp_path / "run"), "--resume"])
        assert calls == [(7, True, tmp_path / "run")]


def main_exit_zero(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 0
