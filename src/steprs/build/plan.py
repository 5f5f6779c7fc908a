"""`--dry-run`: what a run would do and roughly need, without a forward."""

from __future__ import annotations

import sys

from ..config import LossConfig, RunConfig
from ..estimators.base import Estimator
from ..estimators.stepwise import StepRSGRPO
from ..policies.base import Policy
from ..rollout.collect import encode_prompts
from ..tasks.base import AbstractTask
from ..types import Decoding
from .checks import check, check_advantage, check_policy
from .memory import estimate, size_of
from .objects import build_estimator, build_policy, build_sampler, build_task, described, needs_reference, resolve

# Prompts that lengths are estimated from.
LOOKED_AT = 16


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
    size = size_of(policy)
    rollouts = config.train.prompts_per_update * config.train.group_size
    sizes = ", ".join(f"{len(task.problems(split))} {split}" for split in ("train", "dev", "test"))
    prompt = prompt_tokens(policy, task)
    tokens = tokens_per_rollout(policy, prompt, sampler.decoding, config.loss)
    cached = policy.attention != "bidirectional"
    # A block-causal rollout is scored in one row, cut where it exceeds the budget; full attention takes a row a state.
    row = min(tokens, budget) if cached else prompt + sampler.decoding.length
    estimator = build_estimator(config, 1.0 if config.risk.scale == "calibrated" else float(config.risk.scale))
    check_advantage(config, estimator, policy)
    reference = needs_reference(config, estimator)
    memory = estimate(config, size, prompt=prompt, row=row, cached=cached, reference=reference)
    peak, parts = memory.lines()
    report = task.row_report()
    rows = report.lines() if report is not None else ()
    micro = -(-rollouts * tokens // budget)
    lines = [
        f"policy      {config.policy.path}: {size.weights:,} weights, {size.trained:,} trained, {policy.attention}, "
        f"computes in {str(policy.compute_dtype).removeprefix('torch.')}",
        f"task        {task.name}: {sizes} problems",
        *(f"{'' if number else 'rows':<12}{line}" for number, line in enumerate(rows)),
        f"decoding    {_decoding(sampler.decoding)}",
        _advantage(config, estimator),
        f"update      {config.train.prompts_per_update} prompts x {config.train.group_size} rollouts, "
        f"{config.loss.inner_updates} optimiser step(s), loss {config.loss.kind}, {config.loss.aggregation}, "
        f"all-equal groups {'stay in' if config.loss.count_dead_groups else 'leave'} the mean",
        f"scoring     {config.loss.logprobs}: about {tokens} tokens a rollout, at most {micro} micro-batch(es) of "
        f"{budget} tokens a process",
        f"memory      {peak}",
        f"            {parts}",
        f"length      {config.train.updates} updates, checkpoint every {config.train.save_every}, dev evaluation every "
        f"{config.train.eval_every} ({config.eval.problems} problems x {config.eval.samples} samples)",
    ]
    return "\n".join(lines)


def _advantage(config: RunConfig, estimator: Estimator) -> str:
    """What makes advantages of rewards, and what that needs beside the rollouts."""
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


def prompt_tokens(policy: Policy, task: AbstractTask) -> int:
    """Tokens of the longest of the first prompts of a split that has some, template included."""
    problems = next(found for split in ("train", "test", "dev") if (found := task.problems(split, LOOKED_AT)))
    return int(encode_prompts(policy, problems, max_prompt_tokens=sys.maxsize).ids_PC.shape[1])


def tokens_per_rollout(policy: Policy, prompt: int, decoding: Decoding, loss: LossConfig) -> int:
    """Input tokens that scoring one rollout takes, given the tokens of its prompt."""
    if loss.logprobs != "trace":
        # One forward of the masked completion, or two with complementary masks.
        return (prompt + decoding.length) * (1 if loss.logprobs == "one-step" else 2)
    states = loss.states_per_rollout
    steps = -(-decoding.steps // loss.shrinkage)
    if policy.attention == "block_causal":
        per_block = -(-steps * decoding.block_size // decoding.length)
        noisy = decoding.length * min(per_block, states or per_block)
        return prompt + decoding.length - decoding.block_size + noisy
    if policy.attention == "canvas":
        canvases = decoding.length // decoding.block_size
        clean = prompt * canvases + decoding.block_size * canvases * (canvases - 1) // 2
        return clean + decoding.block_size * min(decoding.steps, states or decoding.steps)
    return (prompt + decoding.length) * min(steps, states or steps)
