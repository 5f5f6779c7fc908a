"""Generated parts of the documentation are up to date; `make format` makes them again."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from steprs.configs.listing import list_settings
from steprs.estimators import ESTIMATORS

TOOL = Path(__file__).resolve().parents[2] / "tools/made_pages.py"


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("made_pages", TOOL)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(name: str) -> str:
    text: str = (load_tool().DOCS / name).read_text(encoding="utf-8")
    return text


@pytest.mark.parametrize(
    ("name", "parts"), [("estimators.md", {"estimators"}), ("settings.md", {"run-settings", "pretrain-settings"})]
)
def test_a_page_is_what_the_code_says(name: str, parts: set[str]) -> None:
    tool, text = load_tool(), page(name)
    assert {found[2] for found in tool.BLOCK.finditer(text)} == parts
    assert text == tool.rendered(text), "run `python tools/made_pages.py`"


def test_every_estimator_has_a_section_with_its_source() -> None:
    text = page("estimators.md")
    for name, kind in ESTIMATORS.items():
        assert f"\n## {name}\n" in text
        assert kind.spec.source and kind.spec.source in text


@pytest.mark.parametrize("kind", ["run", "pretrain"])
def test_every_setting_says_what_it_means(kind: str) -> None:
    text = page("settings.md")
    for record in list_settings(kind):
        assert record["meaning"], record["key"]
        assert f"| `{record['key']}` |" in text
