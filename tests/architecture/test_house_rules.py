"""Constructs that cost other projects hours are not in the source, and functions stay readable."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))

BUILTINS = {"eval", "exec", "compile", "__import__"}  # nothing a model wrote is ever evaluated
CALLS = {"sympify", "parse_expr", "nan_to_num", "set_seed", "manual_seed_all"}
DOTTED = {
    "torch.load", "torch.save", "torch.manual_seed", "random.seed", "np.random.seed", "numpy.random.seed",
    "torch.cuda.manual_seed", "os.system",
}  # fmt: skip
IMPORTS = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
LONGEST_FILE = 400
LONGEST_FUNCTION = 60
# Text that only makes sense on the machine or in the conversation where it was written.
PRIVATE = re.compile(r"(?<![\w.])/(?:work|root|tmp|home)/\w|pypi\.org|pythonhosted|npmjs|\bissue #?\d|(?<=\s)#\d+\b")


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def dotted(node: ast.AST) -> str:
    """`a.b.c` for nested attributes, else an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def forked(tree: ast.Module) -> set[ast.AST]:
    """What stands below `with torch.random.fork_rng(...)`: seeding there changes nothing outside."""
    blocks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        and any(isinstance(i.context_expr, ast.Call) and "fork_rng" in dotted(i.context_expr.func) for i in node.items)
    ]
    return {inside for block in blocks for inside in ast.walk(block)}


def violations(tree: ast.Module) -> Iterator[str]:
    local = forked(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            if node in local and name == "torch.manual_seed":
                continue
            if name in BUILTINS or name in DOTTED or name.rpartition(".")[2] in CALLS:
                yield f"line {node.lineno}: {name}(...)"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            yield from (f"line {node.lineno}: import {n}" for n in names if n.split(".")[0] in IMPORTS)
        elif isinstance(node, ast.Raise) and node.exc is not None:
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if dotted(raised) == "NotImplementedError":
                yield f"line {node.lineno}: NotImplementedError (a stub)"
        elif isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"line {node.lineno}: bare except"


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    documentation = ast.get_docstring(function, clean=False) or ""
    return (function.end_lineno or 0) - function.lineno + 1 - (documentation.count("\n") + 1 if documentation else 0)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
class TestSource:
    def test_holds_no_forbidden_construct(self, path: Path) -> None:
        assert list(violations(tree_of(path))) == []

    def test_is_finished(self, path: Path) -> None:
        assert UNFINISHED.findall(path.read_text()) == []

    def test_stays_readable(self, path: Path) -> None:
        assert path.read_text().count("\n") < LONGEST_FILE
        functions = [n for n in ast.walk(tree_of(path)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        long = {n.name: body_lines(n) for n in functions if body_lines(n) > LONGEST_FUNCTION}
        assert long == {}


@pytest.mark.parametrize(
    "source",
    ["eval('1')", "import pickle", "torch.load('x')", "x.nan_to_num()", "raise NotImplementedError", "random.seed(0)"],
)
def test_the_checks_can_fail(source: str) -> None:
    assert list(violations(ast.parse(source)))


def test_nothing_private_is_tracked() -> None:
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    wrong = []
    for name in listing.stdout.splitlines():
        path = ROOT / name
        if not path.is_file() or path == Path(__file__).resolve() or path.suffix in {".safetensors", ".png"}:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="ignore").splitlines(), 1):
            if PRIVATE.search(line):
                wrong.append(f"{name}:{number}: {line.strip()[:80]}")
    assert wrong == []
