"""Peak memory of scoring with a vocabulary of 126,464 (LLaDA's), against holding the [B, L, V] logits.

Each form runs forward and backward in a process of its own on a narrow random model; the peak is the process's
largest resident set, less what it held before the first forward.

    python bench/memory.py [rollouts] [completion length]
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

VOCABULARY, PROMPT = 126_464, 16
FORMS = ("full logits", "selected logits", "chunked head")


def resident_mib() -> float:
    """The largest resident set so far; Linux counts KiB, macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def measure(form: str, rollouts: int, length: int) -> None:
    """Score one-step, print the growth of the resident set in MiB, CPU seconds and the loss."""
    import dataclasses

    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from steprs.logprobs import plan_one_step, score_batch
    from steprs.policies.base import PolicyModule
    from steprs.policies.tiny import create_tiny
    from steprs.types import Decoding, Trajectory

    torch.set_num_threads(1)
    torch.manual_seed(0)
    policy = create_tiny(["a"], seed=0, attention="bidirectional", hidden_size=8, heads=2, layers=1)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=PROMPT + length,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.set_attn_implementation("eager")
    policy = dataclasses.replace(policy, module=PolicyModule(model), vocab_size=VOCABULARY)
    trajectory = Trajectory(
        prompt_ids_BC=torch.randint(3, VOCABULARY, (rollouts, PROMPT)),
        prompt_mask_BC=torch.ones(rollouts, PROMPT, dtype=torch.bool),
        completion_ids_BL=torch.randint(3, VOCABULARY, (rollouts, length)),
        unmask_step_BL=torch.arange(length).expand(rollouts, length),
        block_index_BL=torch.zeros(rollouts, length, dtype=torch.int64),
        completion_mask_BL=torch.ones(rollouts, length, dtype=torch.bool),
        sampling_logprobs_BL=torch.zeros(rollouts, length),
        entropies_BL=torch.zeros(rollouts, length),
        num_steps_B=torch.full((rollouts,), length),
        mask_token_id=policy.mask_token_id,
        decoding=Decoding(kind="masked", length=length, steps=length, block_size=length),
        group_size=1,
        selection_exact=True,
        steps_fixed=True,
    )
    for weight in policy.parameters():
        weight.grad = torch.zeros_like(weight)
    (batch,) = plan_one_step(
        trajectory, policy, keys_B=torch.arange(rollouts), token_budget=1 << 30, prompt_mask_rate=0.0
    )
    before, start = resident_mib(), time.process_time()
    if form == "full logits":
        ids_BW = torch.cat((trajectory.prompt_ids_BC, torch.full_like(trajectory.completion_ids_BL, 2)), 1)
        logits_BLV = policy.logits(ids_BW)[:, PROMPT:]
        logits_BLV = logits_BLV.index_fill(-1, torch.tensor([0, 2]), float("-inf"))
        loss = logits_BLV.log_softmax(-1).gather(-1, trajectory.completion_ids_BL[..., None]).sum()
    else:
        limit = {"selected logits": {"head_elements": 1 << 40}, "chunked head": {}}[form]
        loss = score_batch(policy, trajectory, batch, **limit).logprobs_N.sum()
    loss.backward()
    print(resident_mib() - before, time.process_time() - start, loss.item())


def main(rollouts: int = 8, length: int = 128) -> None:
    tensor = rollouts * length * VOCABULARY * 4 / (1 << 20)
    print(f"{rollouts} rollouts of {length} tokens, vocabulary {VOCABULARY}: [B, L, V] is {tensor:.0f} MiB in float32")
    print(f"{'form':<16} {'peak MiB':>9} {'of [B, L, V]':>13} {'CPU s':>6}")
    peaks, values = {}, []
    for form in FORMS:
        command = [sys.executable, __file__, "--measure", form, str(rollouts), str(length)]
        peak, seconds, value = map(float, subprocess.check_output(command, text=True).split())
        peaks[form] = peak
        values.append(value)
        print(f"{form:<16} {peak:>9.0f} {peak / tensor:>12.2f}x {seconds:>6.1f}")
    if max(values) - min(values) > 1e-5 * abs(values[0]):
        raise SystemExit(f"the forms disagree on the loss: {values}")
    print(f"full logits / chunked head: {peaks['full logits'] / peaks['chunked head']:.1f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main(*map(int, sys.argv[1:]))
