"""What each sequence-level estimator makes of rewards: printed tables, identities, and slow references beside them."""

import itertools
import math
from fractions import Fraction

import pytest
import torch

from steprs import entropic_advantages
from steprs.errors import ArgumentError, NormalisationError
from steprs.estimators import ESTIMATORS, get_estimator
from steprs.estimators.copo import answer_entropy
from steprs.estimators.pipeline import estimate
from steprs.testing.estimators import example_batch

LADDER = [[1.0] * right + [0.0] * (8 - right) for right in range(1, 8)]
MIXED = [[1, 0, 0, 1, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]]
VALID = [[1, 1, 0, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 1, 1, 1, 1]]


def scores(name, rewards, *, memory=None, changes=None, **settings):
    """Advantages [P, G] as nested lists, through the pipeline, for rollouts of one token."""
    estimator = get_estimator(name, **settings)
    batch = example_batch(rewards, length=1, **(changes or {}))
    made, _ = estimate(estimator, batch, estimator.initial_memory() if memory is None else memory)
    return made.values_PGL[:, :, 0].tolist()


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def mean(values):
    return sum(values) / len(values)


def std(values, ddof=0):
    return math.sqrt(sum((value - mean(values)) ** 2 for value in values) / (len(values) - ddof))


def with_accuracy(total, count):
    """An all-reduce in which another process brings `total` right ones of `count` rollouts."""
    return {"all_reduce": lambda sums: sums + tensor([total, count])}


BELIEF = {"belief": tensor([0.3]), "window": tensor([0.3])}
# Weights A / (r - p) of groups of 8 with 1 .. 7 right; of right and wrong rollouts where two rows are given.
# The seven groups hold 28 of 56 right: another process brings the batch to 0.2 or 0.6.
TABLE = [
    ("centred", {}, {}, "1 1 1 1 1 1 1", None),
    ("standardised", {"ddof": 0, "eps": 0.0}, {}, "3.024 2.309 2.066 2 2.066 2.309 3.024", None),
    ("rs-grpo", {"risk_coef": 2.0}, {}, "1.776 1.230 .941 .762 .640 .552 .485", None),
    ("rs-grpo", {"risk_coef": 4.0}, {}, "1.740 .931 .635 .482 .388 .325 .280", None),
    ("maxrl", {}, {}, "8 4 2.667 2 1.6 1.333 1.143", None),
    ("pkpo", {"k": 4}, {}, "1.143 .653 .327 .131 .033 0 0", None),
    ("passk-training", {"k": 4}, {}, "1.143 .696 .444 .241 0 0 0", None),
    ("f-grpo", {"gamma": 1.0}, {}, "2.646 1.732 1.291 1 .775 .577 .378", None),
    ("mapo", {}, {}, "5.823 2.732 2.103 2 2.036 2.065 1.966", None),
    ("wd1", {}, {}, "2.101 1.953 1.873 1.848 1.873 1.953 2.101", None),
    (
        "a-grae", {}, {"changes": with_accuracy(0, 84)},
        ".430 .306 .276 .283 .322 .423 .749", "2.148 1.529 1.382 1.414 1.611 2.114 3.744",
    ),
    (
        "a-grae", {}, {"changes": with_accuracy(20, 24)},
        "1.927 1.151 .921 .849 .875 1.034 1.608", "3.212 1.919 1.534 1.414 1.458 1.724 2.680",
    ),
    (
        "ha-dw", {}, {"memory": BELIEF},
        "4.683 3.156 2.491 2.129 1.940 1.914 2.212", "3.300 2.856 2.894 3.176 3.716 4.708 6.986",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "settings", "given", "right", "wrong"), TABLE, ids=[f"{r[0]} {r[1]}" for r in TABLE])
def test_printed_weights(name, settings, given, right, wrong):
    found = scores(name, LADDER, **given, **settings)
    for number, (first, last) in enumerate(zip(right.split(), (wrong or right).split(), strict=True), 1):
        rate, row = number / 8, found[number - 1]
        assert row[0] / (1 - rate) == pytest.approx(float(first), abs=5.1e-4), f"{number} right"
        assert row[-1] / -rate == pytest.approx(float(last), abs=5.1e-4), f"{number} right"


# Slow references: one group of Python numbers at a time. `others` is the whole batch where one is needed.


def slow_maxrl(rewards):
    return [(r - mean(rewards)) / (mean(rewards) + 1e-6) for r in rewards]


def slow_pkpo(rewards, k=4):
    """Leave-one-out over weights that are counted by listing the (k - 1)-subsets of the others."""
    count, weights = len(rewards), []
    for index, reward in enumerate(rewards):
        others = rewards[:index] + rewards[index + 1 :]
        subsets = list(itertools.combinations(others, k - 1))
        failing = sum(not any(subset) for subset in subsets)
        weights.append(Fraction(failing, len(subsets)) if reward and subsets else Fraction(0))
    return [float(w - (sum(weights) - w) / (count - 1)) for w in weights]


def slow_passk(rewards, k=4):
    """The mean standard score of the k-subsets that a rollout is in; a subset is worth its best rollout."""
    count, right = len(rewards), sum(rewards)
    if count < k:
        return [0.0] * count
    worth = {subset: max(rewards[i] for i in subset) for subset in itertools.combinations(range(count), k)}
    rho, spread = mean(list(worth.values())), std(list(worth.values()))
    if not right or spread == 0:
        return [0.0] * count
    return [mean([v - rho for subset, v in worth.items() if i in subset]) / (spread + 1e-6) for i in range(count)]


def slow_z(rewards):
    return [(r - mean(rewards)) / std(rewards) if std(rewards) else 0.0 for r in rewards]


def slow_fgrpo(rewards):
    return [(1 - mean(rewards)) * z for z in slow_z(rewards)]


def slow_mapo(rewards):
    rate = mean(rewards)
    if rate == 0:
        return [0.0] * len(rewards)
    certain = 1 - 4 * rate * (1 - rate)
    return [(1 - certain) * z + certain * (r - rate) / rate for r, z in zip(rewards, slow_z(rewards), strict=True)]


def slow_wd1(rewards):
    up, down = ([math.exp(sign * (r - mean(rewards))) for r in rewards] for sign in (1, -1))
    return [len(rewards) * (u / sum(up) - d / sum(down)) for u, d in zip(up, down, strict=True)]


def slow_agrae(rewards, others):
    accuracy, rate = mean([r for group in others for r in group]), mean(rewards)
    if rate in (0, 1):
        return [0.0] * len(rewards)
    made = [accuracy / 2 * z / math.sqrt(rate) + (1 - accuracy) / 2 * z / math.sqrt(1 - rate) for z in slow_z(rewards)]
    return [value * min(1, accuracy / 1.0) if value > 0 else value for value in made]


def slow_hadw(rewards, others):
    belief = mean([r for group in others for r in group])
    gap = mean(rewards) - belief
    sign = lambda value: (value > 0) - (value < 0)  # noqa: E731
    return [1.3 * math.exp(-sign(z) * sign(gap) * abs(gap)) * z for z in slow_z(rewards)]


def slow_wd1_batch(rewards, others):
    centred = [r - mean(group) for group in others for r in group]
    up, down = (sum(math.exp(sign * value) for value in centred) for sign in (1, -1))
    own = [r - mean(rewards) for r in rewards]
    return [len(centred) * (math.exp(value) / up - math.exp(-value) / down) for value in own]


ALONE = {
    "maxrl": slow_maxrl, "pkpo": slow_pkpo, "passk-training": slow_passk, "f-grpo": slow_fgrpo, "mapo": slow_mapo,
    "wd1": slow_wd1, "capo": lambda rewards: [max(z, 0.0) for z in slow_z(rewards)],
}  # fmt: skip
TOGETHER = {"a-grae": slow_agrae, "ha-dw": slow_hadw, "wd1-batch": slow_wd1_batch}


@pytest.mark.parametrize("name", [*ALONE, *TOGETHER])
def test_agrees_with_a_slow_reference_where_rollouts_are_masked(name):
    valid = torch.tensor(VALID).bool()
    masked = {"valid_PG": valid, "mask_PGL": valid[..., None], "weights_PGL": valid[..., None].double()}
    found = scores(name, tensor(MIXED) * valid, changes=masked)
    batch = [[r for r, kept in zip(*rows, strict=True) if kept] for rows in zip(MIXED, VALID, strict=True)]
    for row, kept, group in zip(found, VALID, batch, strict=True):
        wanted = ALONE[name](group) if name in ALONE else TOGETHER[name](group, batch)
        assert [a for a, k in zip(row, kept, strict=True) if k] == pytest.approx(wanted, abs=1e-12)
        assert all(a == 0 for a, k in zip(row, kept, strict=True) if not k)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 7, 8])
def test_passk_estimators_equal_counts_of_subsets(k):
    rewards = [[1] * c + [0] * (8 - c) for c in range(9)]
    for row, group in zip(scores("pkpo", rewards, k=k), rewards, strict=True):
        assert row == pytest.approx(slow_pkpo(group, k), abs=1e-12)
    for row, group in zip(scores("passk-training", rewards, k=k), rewards, strict=True):
        assert row == pytest.approx(slow_passk(group, k), abs=1e-12)


def test_pkpo_equals_exact_fractions_of_binomials():
    for count, k in [(2, 2), (5, 3), (16, 4), (64, 30), (300, 150)]:
        rights = sorted({1, 2, count // 3, count // 2, count - k, count - k + 1, count - 1} - {0, count})
        rights = [right for right in rights if 0 < right < count]
        found = scores("pkpo", [[1] * c + [0] * (count - c) for c in rights], k=k)
        for row, c in zip(found, rights, strict=True):
            weight = Fraction(math.comb(count - c, k - 1), math.comb(count - 1, k - 1)) * Fraction(count, count - 1)
            assert row[0] == pytest.approx(float(weight * Fraction(count - c, count)), rel=1e-12)
            assert row[-1] == pytest.approx(float(weight * Fraction(-c, count)), rel=1e-12)


def test_pkpo_on_average():
    """E[A grad log pi] is the gradient of pass@k / k and a little more: the baseline looks at the rollout too."""
    count, k, rate = 8, 4, Fraction(1, 10)
    found = scores("pkpo", LADDER, k=k)
    expected = sum(
        math.comb(count, c) * float(rate**c * (1 - rate) ** (count - c))
        * (c * row[0] * (1 - rate) - (count - c) * row[-1] * rate) / count / (rate * (1 - rate))
        for c, row in enumerate(found, 1)
    )  # fmt: skip
    exact = (1 - rate) ** (k - 1)
    assert expected == pytest.approx(float(exact + Fraction(k - 1, count - 1) * rate * (1 - rate) ** (k - 2)))


class TestIdentities:
    def test_maxrl_is_the_limit_of_risk(self):
        limit = scores("maxrl", LADDER, eps=0.0)
        for coef, error in ((20.0, 2e-7), (50.0, 1e-12)):
            risky = coef * entropic_advantages(tensor(LADDER), coef)
            assert (risky - tensor(limit)).abs().max() < error

    def test_passk_training_in_short(self):
        for c, row in enumerate(scores("passk-training", LADDER, eps=0.0), 1):
            rho, rate = 1 - math.comb(8 - c, 4) / math.comb(8, 4), c / 8
            weight = math.sqrt((1 - rho) / rho) / (1 - rate)
            assert row == pytest.approx([weight * (r - rate) for r in LADDER[c - 1]], abs=1e-14)
            assert sum(row) == pytest.approx(0, abs=1e-14)

    def test_mapo_in_short(self):
        for row, group in zip(scores("mapo", LADDER), LADDER, strict=True):
            p = mean(group)
            weight = 4 * math.sqrt(p * (1 - p)) + (1 - 2 * p) ** 2 / p
            assert row == pytest.approx([weight * (r - p) for r in group], abs=1e-14)

    @pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
    def test_wd1_is_risk_of_both_signs(self, temperature):
        rewards_PG = tensor([[1, 0, 0, 1, 0], [0.3, -2.0, 1.5, 0.0, 0.7]])
        both_PG = entropic_advantages(rewards_PG, 1 / temperature) + entropic_advantages(rewards_PG, -1 / temperature)
        found = scores("wd1", rewards_PG, temperature=temperature)
        assert tensor(found).sub(both_PG / temperature).abs().max() < 1e-12

    def test_wd1_over_one_group_is_wd1_and_over_more_sums_to_0_over_the_batch(self):
        assert scores("wd1-batch", LADDER[:1]) == [pytest.approx(scores("wd1", LADDER[:1])[0], abs=1e-13)]
        found = tensor(scores("wd1-batch", [*LADDER, [0.0] * 8]))
        assert found.sum().abs() < 1e-12
        assert found[-1].tolist() == [found[-1, 0].item()] * 8

    def test_an_equal_group_is_pushed_down_by_wd1_over_a_hard_batch(self):
        assert scores("wd1-batch", [LADDER[0], [0.0] * 8])[1][0] < -0.005
        assert scores("wd1-batch", [LADDER[6], [0.0] * 8])[1][0] > 0.005

    def test_the_simplest_setting_of_each_is_grpo(self):
        centred, z = scores("centred", LADDER), scores("standardised", LADDER, ddof=0, eps=0.0)
        rloo = scores("rloo", LADDER)
        same = [
            ("f-grpo", {"gamma": 0.0}, z),
            ("f-grpo", {"gamma": 0.0, "base": "centred"}, centred),
            ("pkpo", {"k": 1}, rloo),
            ("passk-training", {"k": 1, "eps": 0.0}, z),
            ("capo", {"share": 0.0}, z),
            ("capo", {"share": 0.0, "base": "centred"}, centred),
            ("aapo", {"clip_low": 0.0, "clip_high": 0.0}, scores("standardised", LADDER)),
        ]
        for name, settings, wanted in same:
            found = scores(name, LADDER, **settings)
            assert tensor(found).sub(tensor(wanted)).abs().max() < 1e-14, name
        half = [[1, 1, 0, 0]]
        assert scores("mapo", half)[0] == pytest.approx(slow_z(half[0]), abs=1e-15)

    @pytest.mark.parametrize("name", ["rs-grpo", "maxrl", "f-grpo", "mapo", "wd1", "steprs-grpo"])
    def test_dividing_by_its_own_standard_deviation_leaves_plain_grpo(self, name):
        """The reason why normalising after a reweighting is refused."""
        for row, group in zip(scores(name, LADDER), LADDER, strict=True):
            assert [a / std(row) for a in row] == pytest.approx(slow_z(group), abs=1e-12)
        estimator = get_estimator(name)
        with pytest.raises(NormalisationError, match="already weighted"):
            estimate(estimator, example_batch(LADDER), {}, normalisation="group-std")

    def test_normalising_what_lives_on_equal_rewards_is_refused(self):
        with pytest.raises(NormalisationError, match=r"pvpo .* 10,000"):
            estimate(get_estimator("pvpo"), example_batch(LADDER), {}, normalisation="group-std")


COMPONENTS = [[[1.0, 0.2], [0.0, 0.9], [1.0, 0.4], [0.0, 0.4]], [[1.0, 5.0], [1.0, 5.0], [0.0, 5.0], [1.0, 5.0]]]
WEIGHTS = [1.0, 0.5]


class TestDVAO:
    def given(self, components, weights):
        made = tensor(components)
        weighted = {"components_PGK": made, "component_weights_K": tensor(weights)}
        return {"rewards": made[..., 0], "changes": weighted}

    def test_agrees_with_the_weighted_sum_of_standard_scores(self):
        found = scores("dvao", **self.given(COMPONENTS, WEIGHTS))
        for row, group in zip(found, COMPONENTS, strict=True):
            columns = list(zip(*group, strict=True))
            spreads = [w * std(column) for w, column in zip(WEIGHTS, columns, strict=True)]
            shares = [spread / sum(spreads) for spread in spreads]
            wanted = [
                sum(share * slow_z(column)[i] for share, column in zip(shares, columns, strict=True)) for i in range(4)
            ]
            assert row == pytest.approx(wanted, abs=1e-14)

    def test_is_bounded_by_the_score_of_the_sum(self):
        draw = torch.Generator().manual_seed(0)
        components = torch.rand(200, 8, 3, generator=draw, dtype=torch.float64)
        found = tensor(scores("dvao", **self.given(components.tolist(), [1.0, 2.0, 0.1])))
        summed = [[row[0] + 2 * row[1] + 0.1 * row[2] for row in group] for group in components.tolist()]
        bound = tensor([slow_z(group) for group in summed]).abs()
        assert bool((found.abs() <= bound + 1e-12).all())
        assert bool((found.abs() < 0.9 * bound).any()), "components that disagree lose some of it"

    def test_one_component_gives_the_standard_score_and_equal_ones_nothing(self):
        one = [[[r] for r in group] for group in LADDER]
        assert scores("dvao", **self.given(one, [3.0])) == [pytest.approx(slow_z(group)) for group in LADDER]
        assert scores("dvao", **self.given([[[0.1 + 0.2], [0.3], [0.3]]], [1.0])) == [[0.0, 0.0, 0.0]]

    @pytest.mark.parametrize("weights", [[1.0], [-1.0, 1.0], [0.0, 0.0]])
    def test_unfit_weights_are_refused(self, weights):
        with pytest.raises(ArgumentError, match="one for each, none negative and not all 0"):
            scores("dvao", **self.given(COMPONENTS, weights))


THREE_KINDS = [[1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0]]
ANSWERS = torch.tensor([[7, 7, 7, 7], [3, 3, 3, -1], [5, 1, 2, 3]])


class TestCOPO:
    def test_entropy_is_in_bits_and_unparsed_is_one_answer(self):
        batch = example_batch(THREE_KINDS, answer_ids_PG=ANSWERS)
        wanted = [0.0, -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25)), 2.0]
        assert answer_entropy(batch).flatten().tolist() == pytest.approx(wanted, abs=1e-14)

    def test_agrees_with_a_slow_reference(self):
        rates = [1.0, 0.0, 0.25]
        bits = [0.0, -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25)), 2.0]
        found = scores("copo", THREE_KINDS, gamma=2.0, rho=1.0, changes={"answer_ids_PG": ANSWERS})
        for row, group, rate, entropy in zip(found, THREE_KINDS, rates, bits, strict=True):
            local = 1 / (1 + math.exp(-2.0 * (entropy - 1.0)))
            whole = (rate - mean(rates)) / (std(rates, 1) + 1e-6)
            alone = [(r - mean(group)) / (std(group, 1) + 1e-6) if std(group) else 0.0 for r in group]
            assert row == pytest.approx([local * z + (1 - local) * whole for z in alone], abs=1e-12)

    def test_groups_that_agree_are_pushed_as_a_whole(self):
        found = scores("copo", THREE_KINDS, changes={"answer_ids_PG": ANSWERS})
        assert found[0] == [found[0][0]] * 4 and found[0][0] > 1
        assert found[1] == [found[1][0]] * 4 and found[1][0] < -0.5
        assert sum(found[2]) == pytest.approx(0, abs=1e-3), "two bits of entropy: rollouts are compared"

    def test_one_prompt_or_equal_prompts_have_nothing_to_compare(self):
        agreeing = {"answer_ids_PG": torch.zeros(2, 4, dtype=torch.int64)}
        assert scores("copo", [[1, 1, 1, 1]] * 2, changes=agreeing) == [[0.0] * 4] * 2
        alone = {"answer_ids_PG": torch.zeros(1, 4, dtype=torch.int64)}
        assert scores("copo", [[1, 1, 1, 1]], changes=alone) == [[0.0] * 4]


CACHED = {"reference_rewards_PM": tensor([[1, 0]] * 3)}


class TestReference:
    def test_pvpo_subtracts_the_reference_mean(self):
        found = scores("pvpo", THREE_KINDS, changes=CACHED)
        assert found == [[0.5] * 4, [-0.5] * 4, [0.5, -0.5, -0.5, -0.5]]

    def test_aapo_adds_the_clipped_lead(self):
        found = scores("aapo", THREE_KINDS, changes=CACHED)
        z = [(r - 0.25) / (std([1, 0, 0, 0], 1) + 1e-4) for r in (1, 0, 0, 0)]
        assert found[:2] == [[0.28] * 4, [-0.2] * 4]
        assert found[2] == pytest.approx([z[0] + 0.28, z[1] - 0.2, z[2] - 0.2, z[3] - 0.2], abs=1e-14)

    def test_a_lead_within_the_clip_is_kept(self):
        close = {"reference_rewards_PM": tensor([[1.0] * 9 + [0.0]])}
        assert scores("aapo", [[1, 1]], changes=close) == [[pytest.approx(0.1), pytest.approx(0.1)]]


class TestRefusals:
    @pytest.mark.parametrize("name", [name for name, kind in ESTIMATORS.items() if kind.spec.binary])
    def test_graded_rewards_are_refused_by_name(self, name):
        with pytest.raises(ArgumentError, match=f"estimator {name} is defined for rewards 0 and 1, but one is 0.01"):
            scores(name, [[1, 0.01, 0, 0, 0, 0, 0, 0]])

    def test_what_a_masked_rollout_got_is_not_looked_at(self):
        valid = torch.tensor([[True, False, True, True, True]])
        assert scores("maxrl", [[1, 0.5, 0, 0, 0]], changes={"valid_PG": valid})[0][0] == pytest.approx(3, abs=1e-4)

    def test_groups_too_small_for_k_are_refused(self):
        with pytest.raises(ArgumentError, match="pkpo needs groups of at least 4 rollouts with these settings, these"):
            scores("pkpo", [[1, 0, 0]], k=2, k_end=4)

    @pytest.mark.parametrize(
        ("name", "settings"),
        [
            ("maxrl", {"eps": -1.0}), ("pkpo", {"k": 0}), ("pkpo", {"k_end": 0}), ("passk-training", {"k": 0}),
            ("f-grpo", {"gamma": -1.0}), ("f-grpo", {"base": "rloo"}), ("a-grae", {"alpha": 0.0}),
            ("ha-dw", {"window": 1}), ("ha-dw", {"belief": "firm"}), ("capo", {"share": 1.5}),
            ("wd1", {"temperature": 0.0}), ("wd1-batch", {"temperature": -1.0}), ("copo", {"gamma": -1.0}),
            ("aapo", {"clip_low": -0.2}),
        ],
    )  # fmt: skip
    def test_settings_outside_their_range(self, name, settings):
        with pytest.raises(ArgumentError, match=f"{name}: .*{next(iter(settings))} "):
            get_estimator(name, **settings)

    def test_wd1_over_the_batch_says_when_it_overflows(self):
        with pytest.raises(ArgumentError, match="raise temperature"):
            scores("wd1-batch", [[1, 0]], temperature=5e-4)
        assert scores("wd1", [[1, 0]], temperature=5e-4) == [[2.0, -2.0]]
