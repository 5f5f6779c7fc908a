import pytest

from steprs.tasks.verifiers.answer_tag import check_answer_tag


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<answer>a  b</answer>", "right"),
        ("<answer>A b</answer>", "wrong"),
        ("<answer>no</answer><answer>a b</answer>", "right"),
        ("<answer>a b</answer><answer>no</answer>", "wrong"),
        ("<answer>a b</answer> then <answer>no", "right"),
        ("<answer>no <answer>a b</answer>", "right"),
        ("</answer>a b<answer>", "unparsed"),
        ("<ANSWER>a b</ANSWER>", "unparsed"),
        ("<answer> \n </answer>", "unparsed"),
        ("<answer>" + "a b" * 10_000 + "</answer>", "wrong"),
    ],
)
def test_the_last_complete_tag_counts(completion, expected):
    assert check_answer_tag("a b", completion) == expected
