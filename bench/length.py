"""Long rollouts of a block-causal policy: the exact prefix cache against reading everything again.

A random model of 30 million weights in SDAR's layout (Qwen3: 8 layers, 512 wide, 8 query and 4 key heads), prompts of
64 tokens, 512 tokens in blocks of 4, a step for every second token. `cache-free` is the plain form: every step reads
the prompt and the canvas up to and with the open block, every rollout by itself, and computes logits at the block's
masked positions only. Both use the same keys and draw the same tokens. CPU seconds of one thread, one run of each; the
cache's memory against what its rollouts need at least.

    python bench/length.py [length] [steps] [block size] [group size] [eager or sdpa]
"""

from __future__ import annotations

import sys
import time

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.cache_utils import CacheLayerMixin

from steprs.policies.base import Policy, PolicyModule
from steprs.policies.tiny import word_tokenizer
from steprs.randomness import row_keys
from steprs.rollout import block
from steprs.rollout.prefix import PrefixCache
from steprs.types import Decoding, Trajectory

CONTEXT, WORDS = 64, 4096
made: list[Watched] = []


class Watched(PrefixCache):
    """Remembers the most memory it held."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        made.append(self)

    def crop(self, tokens_to_remove: int) -> None:
        """A step is over."""
        self.most = max(self.most, self.nbytes)
        super().crop(tokens_to_remove)


def make_policy(block_size: int, implementation: str) -> Policy:
    """Random weights, and an end token that never comes."""
    config = Qwen3Config(
        vocab_size=WORDS, hidden_size=512, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=4, head_dim=64, bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(config)
    model.set_attn_implementation(implementation)
    bias = torch.zeros(WORDS)
    bias[1] = -1e4
    model.lm_head.bias = torch.nn.Parameter(bias)
    return Policy(
        module=PolicyModule(model), tokenizer=word_tokenizer([str(number) for number in range(WORDS - 3)]),
        family="sdar", attention="block_causal", block_size=block_size, prompt_block="aligned", mask_token_id=2,
        eos_token_id=1, pad_token_id=0, vocab_size=WORDS,
    )  # fmt: skip


def decode(policy: Policy, decoding: Decoding, group: int, *, use_cache: bool) -> tuple[Trajectory, float]:
    """The rollouts of one prompt, and the CPU seconds of this thread."""
    prompt_1C = torch.randint(3, WORDS, (1, CONTEXT), generator=torch.Generator().manual_seed(0))
    keys_B = row_keys(0, "bench", 0, torch.zeros(group, dtype=torch.int64), torch.arange(group))
    sampler = block.BlockDiffusionSampler(decoding=decoding, use_cache=use_cache)
    start = time.thread_time()
    trajectory = sampler.sample(policy, prompt_1C, prompt_1C > 0, group_size=group, row_keys_B=keys_B)
    return trajectory, time.thread_time() - start


def main() -> None:
    given, defaults = sys.argv[1:], ("512", "256", "4", "1", "eager")
    length, steps, size, group = (int(text) for text in (*given, *defaults[len(given) :])[:4])
    policy = make_policy(size, (*given, *defaults[len(given) :])[4])
    torch.set_num_threads(1)
    block.PrefixCache = Watched  # type: ignore[misc]
    decoding = Decoding(kind="block", length=length, steps=steps, block_size=size, unmasking="max_probability")
    weights = sum(weight.numel() for weight in policy.module.parameters())
    print(
        f"{group} rollouts of {length} tokens, {steps} steps, block {size}, {weights / 1e6:.1f} M weights, one thread"
    )
    cached, fast = decode(policy, decoding, group, use_cache=True)
    print(f"cached      {fast:8.1f} CPU s {group * length / fast:8.1f} tokens/s", flush=True)
    keys = [layer.keys for layer in made[0].layers if isinstance(layer, CacheLayerMixin)]
    token = sum(2 * key.shape[1] * key.shape[3] * key.element_size() for key in keys if key is not None)
    print(f"cache       {made[0].most / 2**20:8.1f} MiB, {made[0].most / (group * (CONTEXT + length) * token):.2f} of "
          f"{group} x {CONTEXT + length} positions x {token / 2**10:.0f} KiB")  # fmt: skip
    plain, slow = decode(policy, decoding, group, use_cache=False)
    print(f"cache-free  {slow:8.1f} CPU s {group * length / slow:8.1f} tokens/s")
    gap = float((cached.sampling_logprobs_BL - plain.sampling_logprobs_BL).abs().max())
    same = torch.equal(cached.completion_ids_BL, plain.completion_ids_BL)
    print(f"ratio       {slow / fast:8.1f}; same tokens: {'yes' if same else 'no (a float tie)'}, gap {gap:.1e} nats")


if __name__ == "__main__":
    main()
