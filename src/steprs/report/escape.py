"""Model text is data: what it looks like as a command to a terminal or a page is shown, never carried out."""

from __future__ import annotations

import re
import unicodedata

# Control (Cc), format (Cf: bidirectional overrides, zero-width), surrogates, private use, line separators.
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
_ANYWHERE = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", **{c: f"\\{c}" for c in "\\`*_[]|~$"}})
# Marks of lists and headings count at the start only; addresses would be turned into links.
_ELSEWHERE = ((r"^(\d*)([-+#=.)])", r"\1\\\2"), (r"://", r":\\//"), (r"\b(www|\S+@\S+?)\.", r"\1\\."))


def escape_terminal(text: str, limit: int | None = None) -> str:
    r"""One printable line: line ends as a sign, every other invisible character by its number.

    Args:
        text: anything a model wrote.
        limit: characters kept; what follows is cut and said.

    >>> print(escape_terminal("a" + chr(27) + "[31mb" + chr(10) + "c"))
    a\x1b[31mb⏎c
    """
    cut = text if limit is None or len(text) <= limit else text[:limit]
    shown = "".join(_visible(character) for character in cut.replace("\r\n", "\n"))
    return shown if len(cut) == len(text) else f"{shown} … ({len(text) - len(cut)} more)"


def escape_markdown(text: str, limit: int | None = None) -> str:
    r"""Text that a Markdown page (also one that lets HTML through, also inside a table) shows as it is.

    >>> print(escape_markdown("<script> | *"))
    &lt;script&gt; \| \*
    """
    escaped = escape_terminal(text, limit).translate(_ANYWHERE)
    for pattern, replacement in _ELSEWHERE:
        escaped = re.sub(pattern, replacement, escaped)
    return escaped


def _visible(character: str) -> str:
    if character == "\n":
        return "⏎"
    if unicodedata.category(character) not in _INVISIBLE:
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"
