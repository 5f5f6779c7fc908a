"""HTML elements whose text is escaped unless it is HTML already."""

from __future__ import annotations

import html


class Html(str):
    """Text that is HTML already; `element` makes it, everything else is escaped."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str | bool | int) -> Html:
    r"""An element; plain strings among its children, and all attributes, are escaped.

    Args:
        name: of the tag.
        children: `Html` stands as it is.
        attributes: `class_` and `for_` lose their underscore, others inside a name become hyphens; True is an attribute
            without a value, False none.

    >>> print(element("td", "<b>", class_="num"))
    <td class="num">&lt;b&gt;</td>
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    inside = "".join(child if isinstance(child, Html) else html.escape(child) for child in children)
    return Html(f"<{name}{given}>{inside}</{name}>")


def joined(*parts: str) -> Html:
    """Parts one after the other; plain strings are escaped."""
    return Html("".join(part if isinstance(part, Html) else html.escape(part) for part in parts))


def _attribute(key: str, value: str | bool | int) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'
