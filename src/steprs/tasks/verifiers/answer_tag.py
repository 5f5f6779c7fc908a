"""The `answer_tag` convention: the last complete `<answer>...</answer>`, compared as text."""

from __future__ import annotations

from ...types import Status

# Answers are short; what is longer is compared no further.
MAX_ANSWER_CHARACTERS = 10_000


def check_answer_tag(gold: str, completion: str) -> Status:
    """Compare the tag's content with the gold text, case as written, runs of white space as one space.

    >>> check_answer_tag("42", "<answer>41</answer> no, <answer> 42 </answer>")
    'right'
    >>> check_answer_tag("42", "<answer>42")
    'unparsed'
    """
    content = tagged_answer(completion)
    if not content:
        return "unparsed"
    return "right" if content == " ".join(gold.split()) else "wrong"


def tagged_answer(text: str) -> str | None:
    """The content of the last complete tag, white space collapsed; None without one.

    >>> tagged_answer("<answer>1 <answer>2</answer>")
    '2'
    """
    content = raw_tagged_answer(text)
    return content if content is None or len(content) > MAX_ANSWER_CHARACTERS else " ".join(content.split())


def raw_tagged_answer(text: str) -> str | None:
    """The content of the last complete tag as written; None without one."""
    span = tagged_span(text)
    return text[slice(*span)] if span else None


def tagged_span(text: str) -> tuple[int, int] | None:
    """Where the content of the last complete tag stands."""
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, end) if end >= 0 else -1
    return (start + len("<answer>"), end) if start >= 0 else None
