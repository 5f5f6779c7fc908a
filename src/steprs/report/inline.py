"""A figure's SVG made part of a page: own ids, the page's colours and type, nothing that reaches outside."""

from __future__ import annotations

import html
import re

from .style import PROPERTIES

_HEAD = re.compile(r"^.*?(?=<svg\b)", re.DOTALL)
_DROPPED = re.compile(r"<metadata>.*?</metadata>|<style\b.*?</style>|<title>.*?</title>|<!--.*?-->", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_VIEW_BOX = re.compile(r'<svg\b[^>]*viewBox="([^"]+)"[^>]*>')
_REFERENCE = re.compile(r'href="#([^"]+)"|url\(#([^)]+)\)')
_ID = re.compile(r' id="([^"]*)"')
_ARM = re.compile(r"(arm-\d+)\.\d+")
_FAMILY = re.compile(r"font-family:[^;\"]*;?\s*")
_SHORTHAND = re.compile(r"(font: [\w. ]*?[\d.]+px) [^;\"]*")


def inline_svg(text: str, *, prefix: str, alt: str) -> str:
    """The drawing alone.

    Ids that something refers to get a prefix, since a page has many figures; groups named `arm-3` become a class, for
    the legend to find. Colours of `style.PROPERTIES` become custom properties, so that a theme can change them.

    Args:
        text: an SVG file that matplotlib wrote; text in it is escaped, so that a `<` begins a tag.
        prefix: unique in the page.
        alt: what the drawing shows.
    """
    body = _DROPPED.sub("", _HEAD.sub("", text, count=1))
    opening = _VIEW_BOX.search(body)
    assert opening, "matplotlib writes an svg element with a viewBox"
    body = body[: opening.start()] + body[opening.end() :]
    referred = {name for pair in _REFERENCE.findall(body) for name in pair if name}

    def _tag(match: re.Match[str]) -> str:
        tag = _ID.sub(lambda found: _identity(found[1]), match[0])
        tag = re.sub(r'(?:xlink:)?href="#', f'href="#{prefix}-', tag).replace("url(#", f"url(#{prefix}-")
        tag = _SHORTHAND.sub(r"\1 var(--sans)", _FAMILY.sub("", tag))
        for colour, name in PROPERTIES.items():
            tag = tag.replace(colour, f"var({name})")
        return re.sub(r"\s+", " ", tag)

    def _identity(name: str) -> str:
        if arm := _ARM.fullmatch(name):
            return f' class="arm {arm[1]}"'
        return f' id="{prefix}-{name}"' if name in referred else ""

    body = re.sub(r">\s+<", "><", _TAG.sub(_tag, body).strip())
    return f'<svg viewBox="{opening[1]}" role="img" aria-label="{html.escape(alt)}" focusable="false">{body}'
