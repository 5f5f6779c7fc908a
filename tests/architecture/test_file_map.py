"""The file map that README.md prints is the tree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNMAPPED = {"__init__.py", "__main__.py", "py.typed", "LICENSE", "README.md", ".gitignore"}


def printed_map() -> set[str]:
    """Paths of the block after `## File map`; two spaces of indentation are one folder."""
    section = (ROOT / "README.md").read_text().split("## File map", 1)[1]
    block = re.search(r"```text\n(.*?)```", section, re.S)
    assert block, "README.md has no ```text block below '## File map'"
    parents: list[str] = []
    found = set()
    for line in block[1].splitlines():
        indent, name = re.match(r"( *)(\S+)", line).groups()  # type: ignore[union-attr]
        parents = [*parents[: len(indent) // 2], name.rstrip("/")]
        found.add("/".join(parents))
    return found


def tracked_files() -> list[str]:
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listing.stdout.splitlines() if (ROOT / name).exists()]


def expected_map() -> set[str]:
    """Every source file, and everything else down to the second level."""
    expected = set()
    for file in tracked_files():
        parts = file.split("/")
        if parts[-1] in UNMAPPED:
            parts = parts[:-1]
        if file.startswith("src/steprs/") and file.endswith(".py"):
            shown = parts
        elif file.startswith("src/"):
            shown = parts[:4] if file.endswith(".yaml") else parts[:3]
        else:
            shown = parts[:2] if parts and parts[0] in {"tests", "docs"} else parts[:1]
        expected |= {"/".join(shown[: depth + 1]) for depth in range(len(shown))}
    return expected


def test_the_printed_map_is_the_tree() -> None:
    printed, expected = printed_map(), expected_map()
    assert printed - expected == set(), "README.md maps what is not there"
    assert expected - printed == set(), "README.md does not map these"
