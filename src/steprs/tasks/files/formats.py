"""Forms of an answer: what the prompt asks for, how a gold completion is written, where the answer is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..verifiers.answer_tag import tagged_span
from ..verifiers.boxed import last_box_span
from ..verifiers.gsm8k import marked_span
from ..verifiers.last_number import last_number_span

Span = tuple[int, int]

# What d1 (arXiv 2504.12216) and other GRPO work ask for.
TAGS = "Respond in the following format:\n<reasoning>\n...\n</reasoning>\n<answer>\n...\n</answer>"


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerFormat:
    r"""One form of an answer.

    Attributes:
        instruction: what the prompt says besides the question.
        after: the instruction stands behind the question, not before it.
        written: a gold completion, with `{reasoning}` and `{answer}`.
        find: where the answer stands in a completion; None without one.
        direct: nothing but the answer is written, so that the last number is the answer.
    """

    instruction: str
    written: str
    find: Callable[[str], Span | None]
    after: bool = False
    direct: bool = False

    def prompt(self, question: str, instruction: str | None) -> str:
        r"""The question with the form's own instruction, or with another one; an empty one adds nothing.

        >>> FORMATS["number"].prompt("1 + 1?", "Compute."), FORMATS["number"].prompt("1 + 1?", "")
        ('Compute.\n\n1 + 1?', '1 + 1?')
        """
        said = self.instruction if instruction is None else instruction
        if not said:
            return question
        # An instruction of one's own stands before the question, as d1's does.
        return f"{question}\n{said}" if self.after and instruction is None else f"{said}\n\n{question}"

    def write(self, reasoning: str, answer: str) -> str:
        r"""A completion that gives this answer.

        >>> FORMATS["hash"].write("1 + 1 = 2", "2"), FORMATS["hash"].write("", "2")
        ('1 + 1 = 2\n#### 2', '#### 2')
        """
        parts = self.written.replace("{reasoning}", "\x00").replace("{answer}", answer)
        text = parts.replace("\x00\n" if not reasoning else "\x00", "" if self.direct else reasoning)
        return text.strip()

    def answer(self, completion: str) -> str | None:
        """The answer's text; None where there is none or nothing is in it."""
        span = self.find(completion)
        return (completion[slice(*span)].strip() or None) if span else None


def _box_in_tag(text: str) -> Span | None:
    tag = tagged_span(text)
    box = last_box_span(text[slice(*tag)]) if tag else None
    return (tag[0] + box[0], tag[0] + box[1]) if tag and box else None


FORMATS: Mapping[str, AnswerFormat] = {
    "answer_tag": AnswerFormat(
        instruction=TAGS,
        written="<reasoning>\n{reasoning}\n</reasoning>\n<answer>\n{answer}\n</answer>",
        find=tagged_span,
    ),
    "boxed": AnswerFormat(
        instruction="Please reason step by step, and put your final answer within \\boxed{}.",
        written="{reasoning}\n\\boxed{{answer}}",
        find=last_box_span,
        after=True,
    ),
    "hash": AnswerFormat(
        instruction="Think step by step, then write the final answer on a line of its own behind ####.",
        written="{reasoning}\n#### {answer}",
        find=marked_span,
        after=True,
    ),
    "number": AnswerFormat(instruction="", written="{answer}", find=last_number_span, direct=True),
    "tagged_box": AnswerFormat(
        instruction=f"{TAGS}\n\nWrap the final answer in a \\boxed{{}} inside the answer tags.",
        written="<reasoning>\n{reasoning}\n</reasoning>\n<answer>\n\\boxed{{answer}}\n</answer>",
        find=_box_in_tag,
    ),
    "plain": AnswerFormat(
        instruction="", written="{answer}", find=lambda text: (0, len(text)) if text.strip() else None, direct=True
    ),
}
