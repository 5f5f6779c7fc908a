"""The made-up study and its report, written once."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from steprs.report.study import Study, read_study
from steprs.report.write import Report, write_report


def _beside(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"report_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def made() -> ModuleType:
    """`study.py`: the numbers that the study was made from."""
    return _beside("study")


@pytest.fixture(scope="session")
def slow() -> ModuleType:
    """`slow.py`: the statistics by enumeration."""
    return _beside("slow")


@pytest.fixture(scope="session")
def folder(made: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.make_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="session")
def study(folder: Path) -> Study:
    return read_study(folder)


@pytest.fixture(scope="session")
def report(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return write_report(folder, tmp_path_factory.mktemp("report"))
