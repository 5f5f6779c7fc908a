import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steprs.errors import ArgumentError
from steprs.tasks.verifiers.gsm8k import check_gsm8k, marked_number


@pytest.mark.parametrize(
    ("completion", "number"),
    [
        ("#### 18", 18),
        ("####18", 18),
        ("#### -$18", -18),
        ("#### $-18", -18),
        ("#### 18 €", 18),
        ("#### 18%", 18),
        ("#### 18 eggs.", 18),
        ("#### 18\nThat is all.", 18),
        ("#### 18\n#### I hope this helps", 18),
        ("#### 17 #### 18", 18),
    ],
)
def test_a_number_with_one_unit_is_read(completion, number):
    assert marked_number(completion) == number


@pytest.mark.parametrize(
    "completion",
    [
        "18",
        "### 18",
        "#### x = 18",
        "#### 1,23",
        "#### 18 19",
        "#### 18 eggs per day",
        "#### 18/3",
        "#### 1e5",
        "#### 18-",
        "#### -$-18",
        "#### 17\n#### 18 or 19",
        "####\n18",
    ],
)
def test_anything_else_is_unparsed(completion):
    assert check_gsm8k("18", completion) == "unparsed"


def test_gold_may_be_a_whole_solution():
    assert check_gsm8k("9 + 9 = 18\n#### 1,800", "#### 1800") == "right"


def test_gold_that_is_no_number_is_an_error():
    with pytest.raises(ArgumentError, match="eighteen"):
        check_gsm8k("eighteen", "#### 18")


@settings(deadline=None)
@given(st.text(max_size=300), st.integers(-(10**9), 10**9))
def test_text_before_the_marker_never_matters(noise, value):
    assert check_gsm8k(str(value), f"{noise}\n#### {value:,}") == "right"


@settings(deadline=None)
@given(st.text(alphabet="#1, .-$e\n", max_size=60))
def test_near_misses_get_a_verdict(text):
    assert check_gsm8k("1", text) in ("right", "wrong", "unparsed")
