"""The tokenizer says no to what it does not know; number embeddings start as rotations."""

import pytest
import torch

from steprs.errors import PolicyError
from steprs.policies.tiny import EOS, MASK, PAD, create_tiny, fourier_features, initialise_numbers, word_tokenizer


def test_words_round_trip_and_special_tokens_come_first():
    tokenizer = word_tokenizer(["1", "31", "+"])
    assert tokenizer.convert_ids_to_tokens(range(6)) == [PAD, EOS, MASK, "1", "31", "+"]
    ids = tokenizer("31 + 1")["input_ids"]
    assert ids == [4, 5, 3]
    assert tokenizer.decode(ids) == "31 + 1"
    assert tokenizer.decode([4, 1, 0], skip_special_tokens=True) == "31"


def test_batches_are_padded_on_the_left():
    batch = word_tokenizer(["1", "2"])(["1", "1 2 1"], padding=True)
    assert batch["input_ids"] == [[0, 0, 3], [3, 4, 3]]
    assert batch["attention_mask"] == [[0, 0, 1], [1, 1, 1]]


def test_unknown_words_are_an_error():
    with pytest.raises(Exception, match="UNK"):
        word_tokenizer(["1"])("1 2")


@pytest.mark.parametrize("words", [["1", "1"], ["1", ""], ["a b"], ["<mask>"]])
def test_words_that_cannot_be_told_apart_are_refused(words):
    with pytest.raises(PolicyError, match="distinct"):
        word_tokenizer(words)


def test_fourier_features_turn_addition_into_rotation():
    """The angle between n and n + d does not depend on n, at every period."""
    features = fourier_features(torch.arange(1.0, 32.0)[:, None], 8)
    waves = torch.complex(features[:, :8], features[:, 8:])
    turns = waves[5:] / waves[:-5]
    torch.testing.assert_close(turns, turns[:1].expand_as(turns), atol=1e-4, rtol=0)


def test_numbers_get_their_features_and_other_words_keep_their_noise():
    words = [*map(str, range(1, 6)), "+"]
    plain, numbers = (create_tiny(words, seed=0, hidden_size=8, heads=2, layers=1) for _ in range(2))
    initialise_numbers(numbers, values={word: int(word) for word in words[:-1]}, frequencies=2)
    before, after = (policy.model.get_input_embeddings().weight for policy in (plain, numbers))
    assert torch.equal(before[[0, 1, 2, 8]], after[[0, 1, 2, 8]])
    assert torch.equal(before[3:8, 4:], after[3:8, 4:])
    sizes = after[3:8, :4].detach().norm(dim=1)
    torch.testing.assert_close(sizes, sizes[:1].expand(5))
    assert sizes[0].item() == pytest.approx(2 * before.std().item(), rel=1e-4)
