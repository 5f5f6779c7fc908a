import importlib.util
import sys

import pytest

from steprs.errors import DependencyError
from steprs.tasks.verifiers import math_worker_pool
from steprs.tasks.verifiers.boxed import check_boxed, last_box

if importlib.util.find_spec("math_verify") is None:
    pytest.skip("needs the math extra", allow_module_level=True)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{1} \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{2", None),
        (r"\boxed{1} \boxed{2", "1"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed {3}", "3"),
        (r"} \boxed{3} {", "3"),
        (r"{ \boxed{3}", "3"),
        (r"\boxed{\boxed{3}}", r"\boxed{3}"),
        (r"\boxed{}", ""),
        (r"\\boxed{3}", None),
        ("boxed{3}", None),
        ("\\boxed{1\n}", "1\n"),
        ("", None),
    ],
)
def test_last_complete_box(text, content):
    assert last_box(text) == content


def test_without_math_verify_the_error_holds_the_command(monkeypatch):
    monkeypatch.setattr(math_worker_pool.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DependencyError, match=r"pip install 'steprs\[math\]'"):
        check_boxed("1", r"\boxed{1}")


def test_math_verify_is_never_imported_here(monkeypatch):
    monkeypatch.delitem(sys.modules, "math_verify", raising=False)
    assert check_boxed("2", r"\boxed{1+1}") == "right"
    assert "math_verify" not in sys.modules


@pytest.mark.parametrize(
    ("gold", "completion", "expected"),
    [
        (r"\text{east}", r"\boxed{East}", "right"),
        ("evil", r"\boxed{live}", "wrong"),
        ("evil", r"\boxed{\text{evil}.}", "right"),
        ("3", r"\boxed{" + "3" * 1001 + "}", "wrong"),
        ("3", r"\boxed{ }", "unparsed"),
    ],
)
def test_words_and_sizes_are_settled_without_a_worker(gold, completion, expected):
    assert check_boxed(gold, completion) == expected
