"""The countdown grammar against expression trees that are evaluated without reading any text."""

import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steprs.errors import ArgumentError
from steprs.tasks.verifiers.countdown import check_countdown, read_expression

LEVEL = {"+": 1, "-": 1, "*": 2, "/": 2}
trees = st.recursive(
    st.integers(0, 99),
    lambda inner: st.tuples(st.sampled_from("+-*/"), inner, inner),
    max_leaves=8,
)


def value_of(tree):
    if isinstance(tree, int):
        return Fraction(tree)
    op, left, right = tree
    a, b = value_of(left), value_of(right)
    if a is None or b is None or (op == "/" and b == 0):
        return None
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}[op]()


def leaves_of(tree):
    return [tree] if isinstance(tree, int) else leaves_of(tree[1]) + leaves_of(tree[2])


def text_of(tree, draw, needed=0):
    """Brackets where precedence or left association demands them, and sometimes where it does not; random spaces."""
    space = " " * draw(st.integers(0, 2))
    if isinstance(tree, int):
        return f"{space}{tree}"
    op, left, right = tree
    sign = draw(st.sampled_from({"*": "*×", "/": "/÷"}.get(op, op)))
    body = f"{text_of(left, draw, LEVEL[op])}{space}{sign}{text_of(right, draw, LEVEL[op] + 1)}"
    return f"({body}{space})" if LEVEL[op] < needed or draw(st.integers(0, 3)) == 0 else body


def commuted(tree, draw):
    if isinstance(tree, int):
        return tree
    op, left, right = tree[0], commuted(tree[1], draw), commuted(tree[2], draw)
    return (op, right, left) if op in "+*" and draw(st.booleans()) else (op, left, right)


@settings(max_examples=150, deadline=None)
@given(trees, st.data())
def test_reading_agrees_with_the_tree(tree, data):
    expression = read_expression(text_of(tree, data.draw))
    assert expression is not None
    assert expression.value == value_of(tree)
    assert list(expression.numbers) == leaves_of(tree)


@settings(deadline=None)
@given(trees, st.data())
def test_canonical_form_is_blind_to_commuting_and_spare_brackets(tree, data):
    one = read_expression(text_of(tree, data.draw))
    other = read_expression(text_of(commuted(tree, data.draw), data.draw))
    assert one.canonical == other.canonical


@settings(deadline=None)
@given(trees, trees)
def test_canonical_form_gives_the_value_back(tree, other):
    """Equal canonical forms mean equal value and equal numbers: different derivations keep different keys."""
    first, second = (read_expression(_bracketed(t)) for t in (tree, other))
    if first.canonical == second.canonical:
        assert first.value == second.value
        assert sorted(first.numbers) == sorted(second.numbers)
    again = read_expression(first.canonical)
    assert again.value == first.value


def _bracketed(tree):
    return str(tree) if isinstance(tree, int) else f"({_bracketed(tree[1])}{tree[0]}{_bracketed(tree[2])})"


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="0123456789+-*/()=× ÷._\n", max_size=30))
def test_near_misses_get_a_verdict(text):
    """What the grammar takes is at most numbers, signs and brackets, with no sign before a number."""
    expression = read_expression(text)
    if expression is not None:
        assert not re.search(r"[._\n]|(^|[(+\-*/×÷=])\s*[+\-*/×÷]|\b0[0-9]|[0-9] +[0-9]", text.strip())


@pytest.mark.parametrize(
    "text",
    [
        "-1+2", "+1", "1+", "1 2", "(1", "1)", "()", "1()", "(1)(2)", "1++2", "1--2", "1**2", "1//2", "1.0+2", "1_0",
        "01+2", "1+2\n+3", "1+2=", "=3", "1+2=3=3", "1+2=-3", "1+2=3.0", "\uff11+2", "1+2 # 3", "x",
        "1\t+2", "1^2", "2x3",
    ],
)  # fmt: skip
def test_text_outside_the_grammar_is_unparsed(text):
    assert check_countdown("1 2|3", text) == "unparsed"


def test_text_beyond_the_cap_is_unparsed():
    assert check_countdown("1 2|3", "1+2" + " " * 997) == "right"
    assert check_countdown("1 2|3", "1+2" + " " * 998) == "unparsed"


def test_a_false_equation_is_wrong():
    assert check_countdown("1 2|3", "1+2=4") == "wrong"


@pytest.mark.parametrize("text", ["1/(2-2)", "(1/0)*0", "2/(1/0)"])
def test_division_by_zero_is_wrong_and_not_an_error(text):
    assert check_countdown("1 2|3", text) == "wrong"


@pytest.mark.parametrize("gold", ["1 2 3", "|3", "1 -2|3", "1 2|x", "1.5 2|3"])
def test_a_gold_of_another_form_is_an_error(gold):
    with pytest.raises(ArgumentError, match="numbers\\|target"):
        check_countdown(gold, "1+2")
