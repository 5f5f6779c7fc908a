"""The page of definitions, the table in the module and what is computed name the same statistics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from steprs.evaluation import metrics
from steprs.evaluation.records import ProblemSamples

PAGE = (Path(__file__).parents[3] / "docs" / "statistics.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^### (.*?)\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S)


def computed():
    """Names with k, n and the ends of bins as letters."""
    one = ProblemSamples(
        id="one", statuses=("right",), answer_keys=("1",), solution_keys=(None,), texts=(0,), tokens=(1,)
    )
    names = set(metrics.problem_metrics(one, (1,)))
    letters = {"avg@1": "avg@n"}
    return {letters.get(n) or re.sub(r"@1$", "@k", re.sub(r"tau_[\d.]+_[\d.]+", "tau_A_B", n)) for n in names}


def test_every_statistic_has_a_definition_and_every_definition_a_statistic():
    defined = [name for heading, _ in SECTIONS for name in re.findall(r"`([^`]+)`", heading)]
    assert len(defined) == len(set(defined))
    assert set(defined) == computed()


def test_the_table_of_the_module_is_complete():
    rows = re.findall(r"^\| (`.*?) \|", metrics.__doc__, re.M)
    names = set()
    for row in rows:
        first, *others = re.findall(r"`([^`]+)`", row)
        names |= {first, *(first + other.removeprefix("..") if other.startswith("..") else other for other in others)}
    assert names == computed()


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section[0].split("`")[1])
def test_a_definition_has_a_formula_its_limits_and_a_nan_rule(section):
    _, text = section
    assert re.search(r"^    \S", text, re.M), "a formula, indented"
    assert "Cannot tell" in text
    assert re.search(r"NaN: \S", text)
