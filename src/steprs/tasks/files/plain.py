"""Is a row's text plain: nothing that a tokenizer takes for a special token, and nothing that hides text?"""

from __future__ import annotations

import re
import unicodedata

# A tokenizer makes one id of these wherever they stand, so a mask in a prompt would be a place to fill in, and an end
# token the end of a turn. `<|...|>` is how most families write theirs; the rest are the tiny policies' and older ones.
_SPECIAL = re.compile(
    r"<\|[^\s<>|]{1,40}\|?>|<[^\s<>|]{1,40}\|>|<(?:mask|eos|bos|pad|unk|cls|sep|start_of_turn|end_of_turn)>|"
    r"</s>|\[(?:MASK|PAD|CLS|SEP|gMASK)\]"
)
# Controls other than tab and line ends, and the marks that turn the direction of what follows.
_HIDDEN = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069]")


def text_fault(text: str, what: str) -> str | None:
    """Why a text cannot be used in a prompt or a completion; None if it can.

    >>> text_fault("Fill <mask> in.", "the question")
    "the question holds '<mask>', which tokenizers take for a special token; write it in another way"
    >>> text_fault("1 < 2 and |x| > 3, <b>bold</b>", "the question") is None
    True
    """
    if found := _SPECIAL.search(text):
        return f"{what} holds {found[0]!r}, which tokenizers take for a special token; write it in another way"
    if found := _HIDDEN.search(text):
        name = unicodedata.name(found[0], "a control character").lower()
        return f"{what} holds U+{ord(found[0]):04X} ({name}), which is not shown; take it out"
    return None
