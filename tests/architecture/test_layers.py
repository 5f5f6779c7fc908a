"""The contracts of pyproject.toml hold, and they watch every module."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BESIDE_THE_LAYERS = {"__init__", "__main__", "config", "configs", "checkpoints", "drawing", "progress", "testing"}


def test_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_has_a_layer() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    placed = set(re.findall(r"steprs\.(\w+)", " ".join(layers)))
    modules = {
        path.stem for path in (ROOT / "src/steprs").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert modules - BESIDE_THE_LAYERS <= placed, "a new module needs a place in the layers of pyproject.toml"
