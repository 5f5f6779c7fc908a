"""Answer conventions: how a final answer is found in a completion and compared with the gold one.

Nothing a model wrote is evaluated: texts go through small grammars with caps on their size, numbers are exact
fractions, and `boxed` LaTeX is only parsed in a process that the parent can kill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...errors import ArgumentError, unknown_name
from ...types import Status
from .answer_tag import check_answer_tag
from .boxed import check_boxed
from .countdown import check_countdown
from .gsm8k import check_gsm8k
from .last_number import check_number

CONVENTIONS: Mapping[str, Callable[[str, str], Status]] = {
    "answer_tag": check_answer_tag,
    "boxed": check_boxed,
    "countdown": check_countdown,
    "gsm8k": check_gsm8k,
    "number": check_number,
}


def check_answer(convention: str, gold: str, completion: str) -> Status:
    r"""The verdict of a convention on a completion; bounded in time, and usable from any thread.

    | convention | what is read | how it is compared |
    |---|---|---|
    | `gsm8k` | the last `####` that is followed by a number | exact number |
    | `boxed` | the last complete `\boxed{...}` | math-verify, in a process of its own |
    | `answer_tag` | the last complete `<answer>...</answer>` | text, case as written |
    | `number` | the last number of the completion | exact number |
    | `countdown` | the whole completion, one line | every number once, exact value |

    Args:
        convention: a name of the table.
        gold: the right answer in the convention's own form.
        completion: text that a model wrote.

    Raises:
        ArgumentError: the convention is unknown or the gold answer has another form.
        DependencyError: `boxed` without math-verify.

    >>> check_answer("gsm8k", "18", "9 + 9 is #### 18")
    'right'
    """
    if convention not in CONVENTIONS:
        raise ArgumentError(unknown_name("answer convention", str(convention), CONVENTIONS))
    if not (isinstance(gold, str) and isinstance(completion, str)):
        raise ArgumentError(
            f"gold and completion must be text; got {type(gold).__name__} and {type(completion).__name__}"
        )
    return CONVENTIONS[convention](gold, completion)


__all__ = ["CONVENTIONS", "check_answer"]
