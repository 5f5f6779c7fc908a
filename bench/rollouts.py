"""Rollouts of the tiny default: prefix cache, cache-free reference and plain form, in one run.

`plain` is what a first script does: every step reads prompt and whole canvas of every rollout and computes logits at
every position; prompts are not shared and finished rollouts stay. All three use the same keys and draw the same tokens.
Times are CPU seconds of one thread, the best of several rounds taken in turn, so that a busy machine slows all alike.

    python bench/rollouts.py [prompts] [group size] [rounds]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch

from steprs.policies.base import Policy
from steprs.policies.tiny import create_tiny
from steprs.randomness import row_keys, uniforms
from steprs.rollout.block import BlockDiffusionSampler
from steprs.rollout.sampling import forbidden_ids, sample_tokens
from steprs.types import Decoding

LENGTH, STEPS, BLOCK, CONTEXT = 12, 12, 4, 5
DECODING = Decoding(kind="block", length=LENGTH, steps=STEPS, block_size=BLOCK, unmasking="max_probability")


def make_policy() -> Policy:
    """The default's sizes with random weights, and an end token that never comes: all 12 steps are taken."""
    words = [str(number) for number in range(1, 32)] + ["+", "-", "*"]
    policy = create_tiny(words, seed=0, decoding_defaults={"length": LENGTH, "steps": STEPS})
    head = policy.model.get_output_embeddings()
    head.bias = torch.nn.Parameter(torch.zeros(policy.vocab_size))
    with torch.no_grad():
        head.bias[policy.eos_token_id] = -1e4
    return policy


@torch.no_grad()
def plain(policy: Policy, prompt_PC: torch.Tensor, keys_B: torch.Tensor, group: int) -> torch.Tensor:
    """Completion ids [B, L] without any saving."""
    rows = keys_B.shape[0]
    prompt_BC = prompt_PC.repeat_interleave(group, dim=0)
    canvas_BL = torch.full((rows, LENGTH), policy.mask_token_id)
    layout_BT = policy.block_layout(torch.ones_like(prompt_BC, dtype=torch.bool), LENGTH)
    places_L = torch.arange(LENGTH)
    forbidden = forbidden_ids(policy)
    for step in range(STEPS):
        logits = policy.logits(torch.cat([prompt_BC, canvas_BL], dim=1), block_BT=layout_BT)[:, CONTEXT:]
        draws = sample_tokens(
            logits.flatten(0, 1), uniforms(keys_B, step, places_L).flatten(), DECODING, forbidden=forbidden
        )
        logits[..., list(forbidden)] = -float("inf")
        best_BL = logits.softmax(-1).amax(-1)
        inside_L = places_L // BLOCK == step // BLOCK
        open_BL = (canvas_BL == policy.mask_token_id) & inside_L
        chosen_B1 = best_BL.masked_fill(~open_BL, -1).argmax(1, keepdim=True)
        canvas_BL.scatter_(1, chosen_B1, draws.ids_N.reshape(rows, LENGTH).gather(1, chosen_B1))
    return canvas_BL


def matmul_rate(policy: Policy, rows: int) -> float:
    """FLOP/s of the shapes a cached step multiplies."""
    left, right = torch.randn(rows * BLOCK, 128), torch.randn(128, 256)
    start = time.process_time()
    for _ in range(100):
        left @ right
    return 100 * 2 * left.shape[0] * 128 * 256 / (time.process_time() - start)


def measure(forms: dict[str, Callable[[], torch.Tensor]], rounds: int) -> tuple[dict[str, float], bool]:
    """Best CPU seconds of each form, and whether all gave the same tokens."""
    best = dict.fromkeys(forms, float("inf"))
    results = {name: form() for name, form in forms.items()}
    for _ in range(rounds):
        for name, form in forms.items():
            start = time.process_time()
            form()
            best[name] = min(best[name], time.process_time() - start)
    first = next(iter(results.values()))
    return best, all(torch.equal(first, other) for other in results.values())


def main() -> None:
    prompts, group, rounds = (int(text) for text in (*sys.argv[1:], *("16", "16", "3")[len(sys.argv) - 1 :]))
    torch.set_num_threads(1)
    policy, rows = make_policy(), prompts * group
    prompt_PC = torch.randint(3, 30, (prompts, CONTEXT), generator=torch.Generator().manual_seed(0))
    mask_PC = torch.ones_like(prompt_PC, dtype=torch.bool)
    keys_B = row_keys(
        0, "bench", 0, torch.arange(prompts).repeat_interleave(group), torch.arange(group).repeat(prompts)
    )

    def sampler(use_cache: bool) -> torch.Tensor:
        made = BlockDiffusionSampler(decoding=DECODING, use_cache=use_cache)
        trajectory = made.sample(policy, prompt_PC, mask_PC, group_size=group, row_keys_B=keys_B)
        return trajectory.completion_ids_BL

    forms = {
        "cached": lambda: sampler(True),
        "cache-free": lambda: sampler(False),
        "plain": lambda: plain(policy, prompt_PC, keys_B, group),
    }
    seconds, same = measure(forms, rounds)
    weights = sum(p.numel() for name, p in policy.model.named_parameters() if "embed" not in name)
    # Prompt with the first block once a prompt; 9 steps of one block; 2 steps that also take in the block before.
    tokens = prompts * (CONTEXT + BLOCK) + rows * BLOCK * (9 + 2 * 2)
    rate = matmul_rate(policy, rows)
    print(f"{rows} rollouts of {LENGTH} tokens, {STEPS} steps, {weights / 1e6:.2f} M weights, one thread")
    print(f"{'form':<12}{'CPU s':>8}{'tokens/s':>10}{'x cached':>10}")
    for name, value in seconds.items():
        print(f"{name:<12}{value:>8.3f}{rows * LENGTH / value:>10.0f}{value / seconds['cached']:>10.2f}")
    share = 2 * weights * tokens / seconds["cached"] / rate
    print(f"matmul of a step's shape: {rate / 1e9:.1f} GFLOP/s; cached reaches {share:.0%} of it")
    print(f"same tokens from all three: {'yes' if same else 'no (a float tie)'}")


if __name__ == "__main__":
    main()
