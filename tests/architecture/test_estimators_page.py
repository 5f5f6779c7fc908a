"""The page of estimators says what the estimators say; `make format` brings it up to date."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from steprs.estimators import ESTIMATORS

TOOL = Path(__file__).resolve().parents[2] / "tools/estimators_page.py"


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("estimators_page", TOOL)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_estimators_say() -> None:
    tool = load_tool()
    block = tool.BLOCK.search(tool.PAGE.read_text(encoding="utf-8"))
    assert block is not None
    assert block[2] == tool.render(), "run `python tools/estimators_page.py`"


def test_every_estimator_has_a_section_with_its_source() -> None:
    page = load_tool().PAGE.read_text(encoding="utf-8")
    for name, kind in ESTIMATORS.items():
        assert f"\n## {name}\n" in page
        assert kind.spec.source and kind.spec.source in page
