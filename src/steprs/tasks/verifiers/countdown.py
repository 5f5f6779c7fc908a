"""The `countdown` convention: one arithmetic expression that uses every number once and reaches the target.

Grammar (spaces between symbols are free):

    line       = expression [ "=" number ]
    expression = term { ("+" | "-") term }
    term       = factor { ("*" | "/" | "×" | "÷") factor }
    factor     = number | "(" expression ")"
    number     = "0" | a digit 1..9 { digit }

No unary minus, decimals, underscores or powers. The reader keeps its own stacks, so depth costs no recursion, and works
in exact fractions; text beyond 1,000 characters is not read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from ...errors import ArgumentError
from ...types import Status, Verdict

MAX_CHARACTERS = 1_000
_LINE = re.compile(r"([^=]*)(?:=([^=]*))?")
_SYMBOLS = re.compile(r" *([0-9]+|[()+\-*/×÷]) *")
_NUMBER = re.compile(r"0|[1-9][0-9]*")
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}
_ALIASES = {"×": "*", "÷": "/"}


# The value (None after a division by zero) and the canonical text of what has been read.
Operand = tuple[Fraction | None, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Expression:
    """A line that follows the grammar.

    Attributes:
        value: exact value, None where something is divided by zero.
        numbers: the numbers written, in order.
        canonical: the expression in full brackets, operands of + and * sorted: equal for lines that differ by
            commuting or by brackets that change nothing.
        claimed: the number behind `=`, if there is one.
    """

    value: Fraction | None
    numbers: tuple[int, ...]
    canonical: str
    claimed: int | None


def check_countdown(gold: str, completion: str) -> Status:
    """Right iff the expression uses the numbers of `gold`, each once, and reaches its target.

    Args:
        gold: `numbers|target`, for example `1 2 3|9`.
        completion: text that a model wrote.

    Raises:
        ArgumentError: the gold text has another form.

    >>> check_countdown("1 2 3|9", "(1 + 2) × 3 = 9")
    'right'
    >>> check_countdown("1 2 3|9", "(1 + 2) * 3 = 8")
    'wrong'
    >>> check_countdown("1 2 3|9", "3 ** 2 * 1")
    'unparsed'
    """
    numbers, target = read_gold(gold)
    expression = read_expression(completion)
    if expression is None:
        return "unparsed"
    holds = expression.value == target and expression.claimed in (None, target)
    return "right" if holds and sorted(expression.numbers) == numbers else "wrong"


def countdown_verdict(gold: str, completion: str) -> Verdict:
    """The verdict of the convention, with the value reached and the canonical expression.

    A wrong expression that reaches the target has a `?` behind its key: a vote for the target counts right ones only.

    Raises:
        ArgumentError: the gold text has another form than `numbers|target`.

    >>> countdown_verdict("1 2 3|9", "3 * (1 + 2)").solution_key
    '((1 + 2) * 3)'
    """
    status = check_countdown(gold, completion)
    expression = read_expression(completion) if status != "unparsed" else None
    if expression is None:
        return Verdict(reward=0.0, status="unparsed")
    reached = str(expression.value) if expression.value is not None else "division by zero"
    target = gold.partition("|")[2].strip()
    return Verdict(
        reward=float(status == "right"),
        status=status,
        answer_key=f"{reached}?" if status == "wrong" and reached == target else reached,
        solution_key=expression.canonical,
    )


def operators_in(text: str) -> str:
    """The operators of a line in written order.

    >>> operators_in("(1 + 2) × 3 = 9")
    '+*'
    """
    return "".join(_ALIASES.get(sign, sign) for sign in text.partition("=")[0] if sign in "+-*/×÷")


def read_gold(gold: str) -> tuple[list[int], int]:
    """Sorted numbers and the target of a gold text.

    >>> read_gold("3 1 2|9")
    ([1, 2, 3], 9)
    """
    numbers, bar, target = gold.partition("|")
    words = numbers.split()
    if not (bar and words and all(_NUMBER.fullmatch(word) for word in (*words, target.strip()))):
        raise ArgumentError(f"gold answer {gold[:80]!r} is not `numbers|target`, for example '1 2 3|9'")
    return sorted(map(int, words)), int(target)


def read_expression(text: str) -> Expression | None:
    """The expression that a line is, or None when it does not follow the grammar.

    >>> read_expression("2 + 3 * 4").canonical
    '((3 * 4) + 2)'
    """
    line = text.strip() if len(text) <= MAX_CHARACTERS else ""
    halves = _LINE.fullmatch(line)
    if halves is None:
        return None
    claimed = halves[2].strip(" ") if halves[2] is not None else None
    symbols = _read_symbols(halves[1])
    if symbols is None or (claimed is not None and not _NUMBER.fullmatch(claimed)):
        return None
    reader = _Reader()
    if not (all(reader.take(symbol) for symbol in symbols) and reader.finish()):
        return None
    (value, canonical) = reader.operands[0]
    return Expression(
        value=value,
        numbers=tuple(int(symbol) for symbol in symbols if symbol[0].isdigit()),
        canonical=canonical,
        claimed=int(claimed) if claimed is not None else None,
    )


def _read_symbols(text: str) -> list[str] | None:
    """Numbers and signs of a line; None where a character is foreign or a number has a leading zero."""
    symbols, end = [], 0
    while end < len(text):
        match = _SYMBOLS.match(text, end)
        if match is None or (match[1][0].isdigit() and not _NUMBER.fullmatch(match[1])):
            return None
        symbols.append(_ALIASES.get(match[1], match[1]))
        end = match.end()
    return symbols


class _Reader:
    """Operator-precedence reading with explicit stacks (Dijkstra's shunting yard), one symbol at a time."""

    def __init__(self) -> None:
        self.operands: list[Operand] = []
        self.operators: list[str] = []
        self.after_operand = False

    def take(self, symbol: str) -> bool:
        """False when the symbol cannot stand here."""
        opens = symbol == "(" or symbol[0].isdigit()
        if opens == self.after_operand:
            return False
        if symbol == "(":
            self.operators.append(symbol)
        elif opens:
            self.operands.append((Fraction(int(symbol)), symbol))
            self.after_operand = True
        elif symbol == ")":
            return self._close()
        else:
            self._reduce(_PRECEDENCE[symbol])
            self.operators.append(symbol)
            self.after_operand = False
        return True

    def finish(self) -> bool:
        """False when an operand or a closing bracket is missing at the end."""
        if not self.after_operand:
            return False
        self._reduce(1)
        return not self.operators

    def _close(self) -> bool:
        self._reduce(1)
        return bool(self.operators) and self.operators.pop() == "("

    def _reduce(self, precedence: int) -> None:
        while self.operators and _PRECEDENCE.get(self.operators[-1], 0) >= precedence:
            right, left = self.operands.pop(), self.operands.pop()
            self.operands.append(_combined(self.operators.pop(), left, right))


def _combined(op: str, left: Operand, right: Operand) -> Operand:
    first, second = (left[1], right[1]) if op in "-/" else sorted((left[1], right[1]))
    return _value(op, left[0], right[0]), f"({first} {op} {second})"


def _value(op: str, a: Fraction | None, b: Fraction | None) -> Fraction | None:
    if a is None or b is None or (op == "/" and b == 0):
        return None
    return a + b if op == "+" else a - b if op == "-" else a * b if op == "*" else a / b
