"""Problems to rollouts to text, on the real tiny policy with random weights."""

from __future__ import annotations

import dataclasses
import warnings

import pytest
import torch

from steprs.errors import ArgumentError, TaskError
from steprs.policies.tiny import create_tiny
from steprs.rollout import collect as module
from steprs.rollout.collect import collect, decode_completions, distinct_completions, encode_prompts
from steprs.types import Problem

from .helpers import assert_same, decoding, make_keys, make_sampler

WORDS = [str(number) for number in range(10)] + ["+", "-", "="]
PROBLEMS = [
    Problem(id="a", prompt="1 2 3", answer="6"),
    Problem(id="b", prompt="4 5 6 7 8 9", answer="39"),
    Problem(id="c", prompt="7", answer="7"),
]
SETTINGS = {
    "seed": 5,
    "purpose": "train",
    "update": 3,
    "max_prompt_tokens": 8,
    "max_rows": 64,
}


@pytest.fixture(scope="module", params=["masked", "block"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def policy(kind):
    return make_policy(kind)


def make_policy(kind):
    attention = "bidirectional" if kind == "masked" else "block_causal"
    sizes = {"hidden_size": 32, "intermediate_size": 48, "heads": 2, "layers": 2}
    return create_tiny(WORDS, seed=1, attention=attention, decoding_defaults={"length": 8}, **sizes)


def run(policy, kind, problems=PROBLEMS, index=None, group_size=4, settings=None, **changes):
    sampler = make_sampler(settings or decoding(kind, 8, 8, 4))
    index = torch.arange(len(problems)) if index is None else torch.tensor(index)
    return collect(policy, sampler, problems, group_size=group_size, prompt_index_P=index, **(SETTINGS | changes))


def test_left_padding_does_not_change_a_rollout(policy, kind):
    """Case: one prompt alone, and beside a longer one."""
    together = run(policy, kind)
    assert bool(together.prompt_mask_BC[:, -1].all()) and not bool(together.prompt_mask_BC[0, 0])
    for index, problem in enumerate(PROBLEMS):
        alone = run(policy, kind, [problem], [index])
        assert_same(alone, together.rows(torch.arange(4 * index, 4 * index + 4)))


def test_the_same_for_every_batch_order_and_split(policy, kind):
    together = run(policy, kind)
    assert_same(run(policy, kind, max_rows=3), together)
    reverse = run(policy, kind, PROBLEMS[::-1], [2, 1, 0])
    assert_same(reverse.rows(torch.arange(12).reshape(3, 4).flip(0).flatten()), together)


@pytest.mark.parametrize("change", [{"seed": 6}, {"purpose": "eval"}, {"update": 4}, {"index": [3, 4, 5]}])
def test_every_part_of_the_key_changes_the_rollouts(policy, kind, change):
    assert not torch.equal(run(policy, kind, **change).completion_ids_BL, run(policy, kind).completion_ids_BL)


@pytest.mark.parametrize("rule", ["max_probability", "low_confidence", "confidence_threshold"])
@pytest.mark.parametrize("prompt_block", ["whole", "aligned"])
def test_cached_equals_cache_free_on_a_transformers_model(rule, prompt_block):
    policy = dataclasses.replace(make_policy("block"), prompt_block=prompt_block)
    settings = decoding("block", 8, 7, 4, unmasking=rule)
    prompts = encode_prompts(policy, PROBLEMS, max_prompt_tokens=8)
    options = {"group_size": 8, "row_keys_B": make_keys(3, 8)}
    cached, plain = (
        make_sampler(settings, use_cache=use).sample(policy, prompts.ids_PC, prompts.mask_PC, **options)
        for use in (True, False)
    )
    assert_same(cached, plain)


def test_recorded_logprobs_are_those_of_the_state_before(policy, kind):
    """One state at a time through `policy.logits`, no cache, no packing."""
    from steprs.rollout.sampling import forbidden_ids
    from steprs.states import state_at

    trajectory = run(policy, kind, settings=decoding(kind, 8, 6, 4, temperature=0.8))
    layout = policy.block_layout(trajectory.prompt_mask_BC, 8)
    mask = torch.cat([trajectory.prompt_mask_BC, torch.ones(12, 8, dtype=torch.bool)], dim=1)
    for step in range(int(trajectory.num_steps_B.max())):
        ids = torch.cat([trajectory.prompt_ids_BC, state_at(trajectory, step)], dim=1)
        with torch.no_grad():
            logits = policy.logits(ids, attention_mask=mask, block_BT=layout)[:, -8:] / 0.8
        logits[..., list(forbidden_ids(policy))] = -float("inf")
        logprobs = logits.log_softmax(-1)
        mine = trajectory.unmask_step_BL == step
        expected = logprobs.gather(-1, trajectory.completion_ids_BL[..., None]).squeeze(-1)[mine]
        torch.testing.assert_close(trajectory.sampling_logprobs_BL[mine], expected, atol=1e-5, rtol=0)
        entropy = torch.special.entr(logprobs.exp()).sum(-1)[mine]
        torch.testing.assert_close(trajectory.entropies_BL[mine], entropy, atol=1e-5, rtol=0)


def test_text_ends_before_the_first_end_token(policy, kind):
    trajectory = run(policy, kind)
    words, eos = policy.tokenizer.convert_ids_to_tokens, policy.eos_token_id
    ids = torch.tensor([[3, 4, eos, 5, 5, 5, 5, 5]]).expand(12, -1)
    mask = torch.tensor([[True] * 3 + [False] * 5]).expand(12, -1)
    changed = dataclasses.replace(trajectory, completion_ids_BL=ids, completion_mask_BL=mask)
    assert decode_completions(policy, changed) == [" ".join(words([3, 4]))] * 12


class DestructiveTokenizer:
    """Encodes, but its text does not encode back to the ids it came from."""

    def __init__(self, inner):
        self.inner = inner
        self.encoded: list[str] = []

    def __call__(self, text):
        self.encoded.append(text)
        return self.inner(text)

    def batch_decode(self, ids, **options):
        return ["7" for _ in ids]


def test_training_keeps_the_sampled_ids_whatever_their_text(policy, kind):
    """Case: decode and re-encode would change them; nothing but prompts is ever encoded."""
    tokenizer = DestructiveTokenizer(policy.tokenizer)
    other = dataclasses.replace(policy, tokenizer=tokenizer)
    trajectory = run(other, kind)
    assert set(decode_completions(other, trajectory)) == {"7"}
    assert tokenizer.encoded == [problem.prompt for problem in PROBLEMS]
    assert_same(trajectory, run(policy, kind))


def test_overlong_prompts_are_an_error_that_names_the_problem(policy):
    with pytest.raises(TaskError, match=r"problem 'b': its prompt has 6 tokens, allowed are 5"):
        encode_prompts(policy, PROBLEMS, max_prompt_tokens=5)


def test_overlong_prompts_are_dropped_everywhere_and_counted(policy, kind):
    """Case: dropped from one list and not from the other."""
    prompts = encode_prompts(policy, PROBLEMS, max_prompt_tokens=5, overlong="drop")
    assert prompts.dropped == 1 and [problem.id for problem in prompts.kept] == ["a", "c"]
    assert prompts.ids_PC.shape == prompts.mask_PC.shape == (2, 3)
    trajectory = run(policy, kind, prompts.kept, [0, 2], max_prompt_tokens=5)
    assert trajectory.completion_ids_BL.shape[0] == 2 * 4
    with pytest.raises(TaskError, match="no prompt is left"):
        encode_prompts(policy, PROBLEMS, max_prompt_tokens=0, overlong="drop")


def test_empty_prompts_and_missing_indices_are_refused(policy, kind):
    with pytest.raises(TaskError, match="problem 'e': its prompt has no token"):
        encode_prompts(policy, [Problem(id="e", prompt="", answer="")], max_prompt_tokens=5)
    with pytest.raises(ArgumentError, match="3 problems; give one each"):
        run(policy, kind, index=[0, 1])


def test_the_chat_template_is_used_where_there_is_one(policy):
    tokenizer = create_tiny(WORDS, seed=0, hidden_size=8, heads=1, layers=1).tokenizer
    tokenizer.chat_template = (
        "{% for m in messages %}+ {{ m['content'] }} -{% endfor %}{% if add_generation_prompt %} ={% endif %}"
    )
    prompts = encode_prompts(dataclasses.replace(policy, tokenizer=tokenizer), PROBLEMS[2:], max_prompt_tokens=8)
    assert tokenizer.convert_ids_to_tokens(prompts.ids_PC[0].tolist()) == ["+", "7", "-", "="]


def test_argmax_in_a_group_warns_once_with_the_number_of_distinct_completions(policy, kind, monkeypatch):
    """Case: temperature 0 and a group of 8."""
    monkeypatch.setattr(module, "_warned_greedy", set())
    greedy = decoding(kind, 8, 8, 4, temperature=0.0)
    with pytest.warns(UserWarning, match=r"1\.00 distinct completions in a group of 8") as caught:
        trajectory = run(policy, kind, group_size=8, settings=greedy)
    assert len(caught) == 1
    assert distinct_completions(trajectory).tolist() == [1, 1, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(policy, kind, group_size=8, settings=greedy)
        run(policy, kind, group_size=1, settings=greedy)


def test_distinct_completions_ignore_what_stands_behind_the_end(policy, kind):
    trajectory = run(policy, kind)
    ids = torch.zeros_like(trajectory.completion_ids_BL)
    ids[:, 0] = torch.tensor([1, 1, 2, 3] * 3)
    ids[:, 1] = torch.arange(12)
    mask = torch.zeros_like(trajectory.completion_mask_BL)
    mask[:, 0] = True
    changed = dataclasses.replace(trajectory, completion_ids_BL=ids, completion_mask_BL=mask)
    assert distinct_completions(changed).tolist() == [3, 3, 3]


def test_rollouts_leave_the_global_generator_and_gradients_alone(policy, kind):
    before = torch.get_rng_state()
    trajectory = run(policy, kind)
    assert torch.equal(torch.get_rng_state(), before)
    assert not trajectory.sampling_logprobs_BL.requires_grad and torch.is_grad_enabled()
