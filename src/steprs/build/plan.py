"""`--dry-run`: what a run would do and roughly need, without a forward."""

from __future__ import annotations

from ..config import RunConfig
from ..estimators.stepwise import StepRSGRPO
from ..policies.base import Policy
from ..tasks.base import AbstractTask
from ..types import Decoding
from .checks import check, check_policy
from .objects import build_estimator, build_policy, build_sampler, build_task, described, resolve

MIB = 2**20


def plan_text(config: RunConfig) -> str:
    """The plan of a run, as lines of text.

    Loads policy and task, so a configuration that names something that does not exist fails here.

    Args:
        config: the run.

    Raises:
        ConfigError, PolicyError, TaskError: whatever `train` would raise before its first rollout.
    """
    task = build_task(config.task)
    policy = build_policy(config.policy)
    config = resolve(config, policy, task)
    check(config)
    check_policy(config, policy)
    budget = int(config.train.token_budget)
    sampler = build_sampler(config.sampler, policy)
    weights = sum(weight.numel() for weight in policy.module.parameters())
    trained = sum(weight.numel() for weight in policy.parameters())
    rollouts = config.train.prompts_per_update * config.train.group_size
    sizes = ", ".join(f"{len(task.problems(split))} {split}" for split in ("train", "dev", "test"))
    tokens = tokens_per_rollout(policy, task, sampler.decoding, config.loss.states_per_rollout)
    micro = -(-rollouts * tokens // budget)
    lines = [
        f"policy      {config.policy.path}: {weights:,} weights, {trained:,} trained, {policy.attention}, "
        f"computes in {str(policy.compute_dtype).removeprefix('torch.')}",
        f"task        {task.name}: {sizes} problems",
        f"decoding    {_decoding(sampler.decoding)}",
        _advantage(config),
        f"update      {config.train.prompts_per_update} prompts x {config.train.group_size} rollouts, "
        f"{config.loss.inner_updates} optimiser step(s), loss {config.loss.kind}, {config.loss.aggregation}, "
        f"all-equal groups {'stay in' if config.loss.count_dead_groups else 'leave'} the mean",
        f"scoring     {config.loss.logprobs}: about {tokens} tokens a rollout, at most {micro} micro-batch(es) of "
        f"{budget} tokens a process",
        f"memory      about {memory_bytes(config, policy, weights, trained) / MIB:,.0f} MiB for weights, optimiser "
        "and one micro-batch",
        f"length      {config.train.updates} updates, checkpoint every {config.train.save_every}, dev evaluation every "
        f"{config.train.eval_every} ({config.eval.problems} problems x {config.eval.samples} samples)",
    ]
    return "\n".join(lines)


def _advantage(config: RunConfig) -> str:
    """What makes advantages of rewards, and what that needs beside the rollouts."""
    estimator = build_estimator(config, 1.0 if config.risk.scale == "calibrated" else float(config.risk.scale))
    if isinstance(estimator, StepRSGRPO):
        unit = " (in units of the scale)" if config.calibrates else ""
        return f"risk        scale {config.risk.scale}, {described(estimator)}{unit}, control {config.risk.control}"
    spec = estimator.spec
    return (
        f"advantage   {described(estimator)}, in place of StepRS-GRPO: `risk.scale` and `risk.schedule` are not used; "
        f"extra forwards: {spec.extra_forwards}; extra verifier calls: {spec.verifier_calls}"
    )


def _decoding(decoding: Decoding) -> str:
    return (
        f"{decoding.kind}: {decoding.length} tokens in {decoding.steps} steps, block {decoding.block_size}, "
        f"{decoding.unmasking}, temperature {decoding.temperature:g}, top_p {decoding.top_p:g}, top_k {decoding.top_k}"
    )


def tokens_per_rollout(policy: Policy, task: AbstractTask, decoding: Decoding, states: int | None) -> int:
    """Input tokens that scoring one rollout takes, prompts estimated from the first problem."""
    prompt = len(policy.tokenizer(task.problems("train", 1)[0].prompt)["input_ids"])
    if policy.attention == "block_causal":
        per_block = -(-decoding.steps * decoding.block_size // decoding.length)
        noisy = decoding.length * min(per_block, states or per_block)
        return prompt + decoding.length - decoding.block_size + noisy
    if policy.attention == "canvas":
        canvases = decoding.length // decoding.block_size
        clean = prompt * canvases + decoding.block_size * canvases * (canvases - 1) // 2
        return clean + decoding.block_size * min(decoding.steps, states or decoding.steps)
    return (prompt + decoding.length) * min(decoding.steps, states or decoding.steps)


def memory_bytes(config: RunConfig, policy: Policy, weights: int, trained: int) -> float:
    """Weights, gradients and AdamW moments in float32, a frozen reference if KL asks for one, and activations.

    Activations are counted as 34 hidden-size numbers a token and layer (one with gradient checkpointing), and a
    chunk of logits; attention scores of the eager backend come on top for long rows.
    """
    model = policy.model.config.get_text_config()
    half = 2 if str(policy.compute_dtype) == "torch.bfloat16" else 4
    kept = 1 if config.policy.gradient_checkpointing else 34
    budget = int(config.train.token_budget)
    activations = budget * model.hidden_size * model.num_hidden_layers * kept * half
    logits = 2 * 4 * min(budget, 1024) * policy.vocab_size
    reference = 4 * weights if config.loss.kl_coef > 0 and config.policy.lora is None else 0
    return 4 * weights + 12 * trained + reference + activations + logits
