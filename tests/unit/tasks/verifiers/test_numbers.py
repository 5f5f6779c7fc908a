from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steprs.tasks.verifiers.numbers import parse_number, same_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-5", -5),
        ("+5", 5),
        ("−5", -5),
        ("1,234", 1234),
        ("1,234,567.25", Fraction(123456725, 100)),
        ("1{,}000", 1000),
        ("007", 7),
        (".5", Fraction(1, 2)),
        (" 2.50 ", Fraction(5, 2)),
    ],
)
def test_numbers_are_read_exactly(text, value):
    assert parse_number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "1,23",
        "12,34",
        "1234,567",
        ",123",
        "1,2345",
        "1.2.3",
        "1e5",
        "1_000",
        "0x10",
        "½",
        "٣",
        "1 2",
        "nan",
        "inf",
        "5.",
    ],
)
def test_anything_else_is_not_a_number(text):
    assert parse_number(text) is None


def test_a_number_longer_than_the_cap_is_not_read():
    assert parse_number("1" * 100) is not None
    assert parse_number("1" * 101) is None


@settings(deadline=None)
@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=4))
def test_grouping_and_trailing_zeros_change_nothing(value):
    plain = f"{value:f}"
    assert parse_number(plain) == Fraction(value)
    assert same_number(plain, f"{value:,f}")
    assert same_number(plain, plain + "000")


@settings(deadline=None)
@given(st.text(max_size=120))
def test_any_text_is_a_number_or_none(text):
    assert parse_number(text) is None or isinstance(parse_number(text), Fraction)
