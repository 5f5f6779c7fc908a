"""The file map that README.md prints is the tree; `make format` brings it up to date."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

TOOL = Path(__file__).resolve().parents[2] / "tools/file_map.py"


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("file_map", TOOL)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_printed_map_is_the_tree() -> None:
    tool = load_tool()
    printed, expected = tool.printed_map(), tool.expected_map()
    assert printed.keys() - expected == set(), "README.md maps what is not there"
    assert expected - printed.keys() == set(), "README.md does not map these"


def test_every_line_says_what_the_file_is() -> None:
    assert [path for path, text in load_tool().printed_map().items() if not text and path not in {"src", "tests"}] == []
