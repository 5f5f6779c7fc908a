"""What a model wrote is shown, never carried out."""

from __future__ import annotations

import pytest

from steprs.report.escape import escape_markdown, escape_terminal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("a\r\nb\nc\rd", r"a⏎b⏎c\x0dd"),
        ("\u202eevil\u2066", r"\u202eevil\u2066"),
        ("\x9b31m", r"\x9b31m"),
        ("\u2028\u200b", r"\u2028\u200b"),
        ("3 × 4 = 12 é 中", "3 × 4 = 12 é 中"),
    ],
)
def test_terminal(text, shown):
    assert escape_terminal(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("a | b", r"a \| b"),
        ("![x](javascript:y)", r"!\[x\](javascript:y)"),
        ("`code` *b* _i_ ~~s~~ $x$", r"\`code\` \*b\* \_i\_ \~\~s\~\~ \$x\$"),
        ("&lt;", "&amp;lt;"),
        ("# head", r"\# head"),
        ("1. item", r"1\. item"),
        ("- item", r"\- item"),
        ("see https://x.org or www.x.org", r"see https:\//x.org or www\.x.org"),
        ("pass@1 0.45 (-0.02)", "pass@1 0.45 (-0.02)"),
        ("\x1b[31m", r"\\x1b\[31m"),
    ],
)
def test_markdown(text, shown):
    assert escape_markdown(text) == shown


def test_a_cut_is_said():
    assert escape_terminal("abcdef", 4) == "abcd … (2 more)"
