"""What an import brings along, measured in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "accelerate", "pydantic", "yaml", "typer", "rich", "matplotlib", "numpy", "peft")
PROBE = "import sys, json; {}; print(json.dumps([name for name in {!r} if name in sys.modules]))"


def loaded_after(statement: str) -> set[str]:
    code = PROBE.format(statement, HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_package_itself_loads_nothing_heavy() -> None:
    assert loaded_after("import steprs") == set()


def test_the_method_loads_torch_only() -> None:
    modules = ["types", "errors", "risk", "schedules", "losses", "states", "calibration", "controls", "advantages"]
    loaded = loaded_after("import " + ", ".join(f"steprs.{module}" for module in modules))
    assert loaded - {"numpy"} == {"torch"}, "numpy comes with torch; nothing else may"


@pytest.mark.parametrize("module", ["config", "configs", "drawing", "errors", "report", "cli", "progress"])
def test_no_torch_beside_the_layers(module: str) -> None:
    assert not loaded_after(f"import steprs.{module}") & {"torch", "transformers", "accelerate"}


@pytest.mark.parametrize("module", ["pass_at_k", "diversity", "traces", "metrics", "statistics"])
def test_evaluation_numbers_need_numpy_only(module: str) -> None:
    assert loaded_after(f"import steprs.evaluation.{module}") <= {"numpy"}


def test_help_is_quick_and_needs_no_torch() -> None:
    loaded = loaded_after("import steprs.cli.app as app\ntry: app.main(['--help'])\nexcept SystemExit: pass")
    assert not loaded & {"torch", "transformers", "pydantic", "rich", "matplotlib"}
    command = [sys.executable, "-m", "steprs", "--help"]
    seconds = [processor_seconds(command) for _ in range(5)]
    # A core shared with other work is slower for everything, a bare interpreter (20 ms on a quiet one) included.
    bare = min(processor_seconds([sys.executable, "-c", "pass"]) for _ in range(5))
    bound = 0.3 * max(1.0, bare / 0.02)
    assert min(seconds) < bound, f"steprs --help took {min(seconds):.2f} s of processor time, allowed {bound:.2f}"


def processor_seconds(command: list[str]) -> float:
    """User and system time: what else runs on the machine does not count."""
    before = os.times()
    subprocess.run(command, capture_output=True, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
