"""Sampled sequences follow the exact distribution of the decoding process, enumerated on a tiny vocabulary."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch

from .helpers import decoding, padded, sample
from .stand_in import EOS, MASK, PAD, TablePolicy

ROLLOUTS = 20000
PROMPT = [3, 4]


def exact_distribution(policy: TablePolicy, rule: str, length: int, size: int) -> dict[tuple[int, ...], float]:
    """Probability of every final canvas, one token a step, by walking the tree of canvases."""
    found: Counter[tuple[int, ...]] = Counter()
    policy.module.eval()

    def probabilities(canvas: tuple[int, ...]) -> torch.Tensor:
        ids, mask = padded([[*PROMPT, *canvas]])
        with torch.no_grad():
            if policy.attention == "bidirectional":
                logits = policy.logits(ids, attention_mask=mask)[0, len(PROMPT) :]
            else:
                block = torch.tensor([0] * len(PROMPT) + [1 + place // size for place in range(length)])
                seen = (block[None, :] <= block[:, None])[None, None]
                places = torch.arange(ids.shape[1])[None]
                logits = policy.logits(ids, attention_mask=seen, position_ids=places)[0, len(PROMPT) :]
        logits[:, [MASK, PAD]] = -float("inf")
        return torch.softmax(logits, -1)

    def walk(canvas: tuple[int, ...], weight: float) -> None:
        masked = [place for place, token in enumerate(canvas) if token == MASK]
        if not masked or (EOS in canvas and masked[0] % size == 0 and min(masked) > canvas.index(EOS)):
            found[canvas] += weight
            return
        open_places = [place for place in masked if place // size == masked[0] // size]
        probs = probabilities(canvas)
        for place, token, share in reveals(probs, open_places):
            if share > 0:
                walk((*canvas[:place], token, *canvas[place + 1 :]), weight * share)

    def reveals(probs: torch.Tensor, places: list[int]):
        words = range(probs.shape[1])
        if rule == "low_confidence":
            for tokens in itertools.product(words, repeat=len(places)):
                drawn = [float(probs[place, token]) for place, token in zip(places, tokens, strict=True)]
                if math.prod(drawn) > 0:
                    best = max(range(len(places)), key=lambda index: drawn[index])
                    yield places[best], tokens[best], math.prod(drawn)
            return
        if rule == "random":
            chosen = places
        elif rule == "left_to_right":
            chosen = places[:1]
        elif rule == "max_probability":
            chosen = [max(places, key=lambda place: float(probs[place].max()))]
        else:
            chosen = [min(places, key=lambda place: float(torch.special.entr(probs[place]).sum()))]
        for place in chosen:
            for token in words:
                yield place, token, float(probs[place, token]) / len(chosen)

    walk((MASK,) * length, 1.0)
    return dict(found)


@pytest.mark.parametrize("rule", ["low_confidence", "max_probability", "entropy", "random", "left_to_right"])
@pytest.mark.parametrize(("kind", "length", "size"), [("masked", 3, 3), ("masked", 4, 2), ("block", 4, 2)])
def test_sampled_sequences_follow_the_enumerated_distribution(rule, kind, length, size):
    attention = "bidirectional" if kind == "masked" else "block_causal"
    policy = TablePolicy(vocab_size=5, attention=attention, block_size=size, seed=3)
    expected = exact_distribution(policy, rule, length, size)
    assert math.isclose(sum(expected.values()), 1.0, rel_tol=1e-9)
    trajectory = sample(
        policy, decoding(kind, length, length, size, unmasking=rule), [PROMPT], ROLLOUTS, max_rows=20000
    )
    canvas = trajectory.completion_ids_BL.masked_fill(trajectory.unmask_step_BL < 0, MASK)
    counts = Counter(tuple(row) for row in canvas.tolist())
    assert set(counts) <= set(expected)
    # Rare sequences are pooled, so that every cell of the chi-square expects at least five.
    common = [key for key, share in expected.items() if share * ROLLOUTS >= 5]
    cells = [(counts[key], expected[key] * ROLLOUTS) for key in common]
    rest = 1.0 - sum(expected[key] for key in common)
    if rest * ROLLOUTS >= 5:
        cells.append((ROLLOUTS - sum(counts[key] for key in common), rest * ROLLOUTS))
    statistic = sum((seen - mean) ** 2 / mean for seen, mean in cells)
    freedom = len(cells) - 1
    assert freedom >= 5
    assert statistic < freedom + 4.5 * math.sqrt(2 * freedom), (statistic, freedom)


def test_recorded_logprobs_add_up_to_the_path():
    """Left to right, the sum of recorded log-probabilities is the sequence's own."""
    policy = TablePolicy(vocab_size=5, seed=3)
    expected = exact_distribution(policy, "left_to_right", 3, 3)
    trajectory = sample(policy, decoding("masked", 3, 3, 3, unmasking="left_to_right"), [PROMPT], 200)
    for ids, logprob in zip(
        trajectory.completion_ids_BL.tolist(), trajectory.sampling_logprobs_BL.sum(1).tolist(), strict=True
    ):
        assert logprob == pytest.approx(math.log(expected[tuple(ids)]), abs=1e-5)
