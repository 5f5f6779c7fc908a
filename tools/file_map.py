"""Bring the file map of README.md up to date: `python tools/file_map.py` (part of `make format`).

Descriptions that the map already has are kept; a new file gets the first sentence of its docstring.
"""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"(## File map\n.*?```text\n)(.*?)(```)", re.S)
# Shown by the folder they lie in, or by nothing.
UNMAPPED = {"__init__.py", "__main__.py", "py.typed", "LICENSE", "README.md", ".gitignore"}
DEEPER = {"tests", "docs"}
COLUMN, WIDTH = 30, 120


def printed_map() -> dict[str, str]:
    """Path -> description, as README.md has it; two spaces of indentation are one folder."""
    block = BLOCK.search(README.read_text(encoding="utf-8"))
    if block is None:
        raise SystemExit("README.md has no ```text block below '## File map'")
    parents: list[str] = []
    found = {}
    for line in block[2].splitlines():
        indent, name, description = re.match(r"( *)(\S+) *(.*)", line).groups()  # type: ignore[union-attr]
        parents = [*parents[: len(indent) // 2], name.rstrip("/")]
        found["/".join(parents)] = description
    return found


def expected_map() -> set[str]:
    """Every source file and shipped configuration, the second level of tests and docs, the first of everything else."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    expected = set()
    for file in listing.stdout.splitlines():
        if not (ROOT / file).exists():
            continue
        parts = file.split("/")
        if parts[-1] in UNMAPPED:
            parts = parts[:-1]
        if file.startswith("src/") and not file.endswith((".py", ".yaml")):
            parts = parts[:3]
        elif not file.startswith("src/"):
            parts = parts[: 2 if parts and parts[0] in DEEPER else 1]
        elif "checkpoints" in parts:
            parts = parts[:3]
        expected |= {"/".join(parts[: depth + 1]) for depth in range(len(parts))}
    return expected


def first_sentence(path: Path) -> str:
    """How a module or configuration begins to explain itself, in lower case; nothing for other files."""
    file = path / "__init__.py" if path.is_dir() else path
    if file.suffix not in {".py", ".yaml"} or not file.exists():
        return ""
    source = file.read_text(encoding="utf-8")
    documentation = source.removeprefix("# ").split("\n")[0] if file.suffix == ".yaml" else module_docstring(source)
    text = documentation.split("\n\n")[0].replace("\n", " ")
    # An initial ("S. Nie") ends no sentence, and a name that is not written like a word keeps its capitals.
    sentence = re.split(r"(?<![( ][A-Z])(?<=[.:;])\s", text)[0].rstrip(".:;")
    word = sentence.split(" ")[0]
    return sentence if word[1:] != word[1:].lower() or "`" in word else sentence[:1].lower() + sentence[1:]


def module_docstring(source: str) -> str:
    """The docstring of a module, or nothing."""
    return ast.get_docstring(ast.parse(source)) or ""


def render() -> str:
    """The map of the tree as it is now."""
    known = printed_map()
    lines = []
    for path in sorted(expected_map(), key=lambda path: path.split("/")):
        name = "  " * path.count("/") + path.rpartition("/")[2] + ("/" if (ROOT / path).is_dir() else "")
        line = f"{name:<{COLUMN}} {known.get(path) or first_sentence(ROOT / path)}".rstrip()
        lines.append(line if len(line) <= WIDTH else line[: line.rfind(" ", 0, WIDTH)])
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    README.write_text(BLOCK.sub(lambda found: found[1] + render() + found[3], text, count=1), encoding="utf-8")
