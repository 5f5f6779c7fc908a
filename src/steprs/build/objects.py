"""One function a section: settings in, an object out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch

from .. import schedules
from ..config import PolicyConfig, RiskConfig, RunConfig, SamplerConfig, ScheduleConfig, TaskConfig
from ..errors import ConfigError
from ..estimators import get_estimator
from ..estimators.base import Estimator
from ..estimators.stepwise import StepRSGRPO
from ..policies.base import Policy
from ..policies.loading import Lora, Overrides, load_policy
from ..rollout.block import BlockDiffusionSampler
from ..rollout.collect import Sampler
from ..rollout.masked import MaskedDiffusionSampler
from ..rollout.revising import RevisingSampler
from ..schedules import AbstractSchedule
from ..tasks import get_task
from ..tasks.base import AbstractTask
from ..training.settings import (
    AdvantageSettings,
    EvalSettings,
    LoopSettings,
    LossSettings,
    OptimSettings,
    StepsUsed,
)
from ..types import Decoding

Kind = Literal["masked", "block", "revise"]
DECODED_AS: Mapping[str, Kind] = {"bidirectional": "masked", "block_causal": "block", "canvas": "revise"}
SAMPLERS: Mapping[Kind, Callable[..., Sampler]] = {
    "masked": MaskedDiffusionSampler,
    "block": BlockDiffusionSampler,
    "revise": RevisingSampler,
}


def build_task(config: TaskConfig) -> AbstractTask:
    """The task with its options.

    Raises:
        ConfigError: an unknown name (with the nearest one) or an option that the task does not take.
    """
    return get_task(config.name, **config.options)


def build_policy(
    config: PolicyConfig, *, path: str | None = None, device: torch.device | str | None = None, seed: int = 0
) -> Policy:
    """The policy of the settings, or the same settings with the weights at `path`; `seed` is of new adapters."""
    lora = None if config.lora is None else Lora(**config.lora.model_dump())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return load_policy(
            path or config.path,
            config.family,
            overrides=Overrides(**config.model_dump(include=set(Overrides.__dataclass_fields__))),
            dtype=config.dtype,
            weights=config.weights,
            attention=config.attention,
            lora=lora,
            gradient_checkpointing=config.gradient_checkpointing,
            trust_remote_code=config.trust_remote_code,
            revision=config.revision,
            device=device,
        )


def resolve(config: RunConfig, policy: Policy, task: AbstractTask) -> RunConfig:
    """Fill in what was left to the policy or the task, so that `config.json` says what ran.

    The order is: the setting, then the checkpoint's own decoding defaults, then the task.
    """
    given = config.sampler
    defaults = policy.decoding_defaults
    kind = DECODED_AS[policy.attention] if given.kind == "auto" else given.kind
    length = given.length or defaults.get("length") or task.completion_length
    block = given.block_size or policy.block_size or defaults.get("block_size") or length
    # The checkpoint's number of steps belongs to its length; another length gets a step a token. Canvases that are
    # revised are all like the first.
    same = length == defaults.get("length")
    steps = given.steps or (defaults.get("steps") if same else None) or length
    if given.steps is None and policy.attention == "canvas" and defaults.get("steps"):
        steps = defaults["steps"] * length // block
    filled = {"kind": kind, "length": length, "block_size": block, "steps": steps}
    budget = config.train.token_budget
    if budget == "auto":
        # CPUs are fastest while one layer's activations stay in cache; GPUs want long rows of work.
        # A row holds what comes before a state, and is worth that much only with many states behind it.
        budget = max(2048 if policy.device.type == "cpu" else 32768, 2 * length)
    dtype = str(policy.compute_dtype).removeprefix("torch.")
    return config.model_copy(
        update={
            # What `auto` found holds for the whole run: a resumed one must not measure again and decide otherwise.
            "policy": config.policy.model_copy(update={"dtype": dtype}),
            "sampler": given.model_copy(update=filled),
            "train": config.train.model_copy(update={"token_budget": budget}),
        }
    )


def build_sampler(config: SamplerConfig, policy: Policy) -> Sampler:
    """The sampler of resolved settings.

    Raises:
        ConfigError: the policy's attention does not allow this kind of decoding.
    """
    if config.length is None or config.steps is None or config.block_size is None:
        raise ConfigError("sampler.length, steps and block_size are not resolved; call build.resolve first")
    kind = DECODED_AS[policy.attention]
    if config.kind != kind:
        raise ConfigError(
            f"sampler.kind is {config.kind!r} but this policy's attention is {policy.attention}; use {kind!r} or 'auto'"
        )
    decoding = Decoding(
        kind=kind,
        length=config.length,
        steps=config.steps,
        block_size=config.block_size,
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        unmasking=config.unmasking,
        threshold=config.threshold,
        final_temperature=config.final_temperature,
        stop_entropy=config.stop_entropy,
    )
    return SAMPLERS[kind](decoding=decoding)


# Names in YAML -> the schedule, from (start, end) already multiplied by the scale.
SCHEDULES: Mapping[str, Callable[[float, float, ScheduleConfig], AbstractSchedule]] = {
    "constant": lambda start, end, config: schedules.ConstantSchedule(start),
    "linear": lambda start, end, config: schedules.LinearSchedule(start, end),
    "cosine": lambda start, end, config: schedules.CosineSchedule(start, end),
    "power": lambda start, end, config: schedules.PowerSchedule(start, end, **_given(gamma=config.gamma)),
    "sigmoid": lambda start, end, config: schedules.SigmoidSchedule(
        start, end, **_given(steepness=config.steepness, midpoint=config.midpoint)
    ),
    "exponential": lambda start, end, config: schedules.ExponentialSchedule(
        start, end, **_given(steepness=config.steepness)
    ),
    "geometric": lambda start, end, config: schedules.GeometricSchedule(start, end),
    "step": lambda start, end, config: schedules.StepSchedule(start, end, **_given(midpoint=config.midpoint)),
}


def build_schedule(config: RiskConfig, scale: float) -> AbstractSchedule:
    """The schedule whose endpoints are the settings' multiples of `scale`.

    Raises:
        ConfigError: a kind that needs settings which are missing.
    """
    return _schedule(config.schedule, scale, "risk.schedule")


def build_estimator(config: RunConfig, scale: float) -> Estimator:
    """The estimator of the settings; `scale` is what the ends of StepRS-GRPO's schedule are multiples of.

    Raises:
        ConfigError: an unknown name or option; names the nearest.
    """
    name, risk = config.advantage.estimator, config.risk
    if name != StepRSGRPO.spec.name:
        return get_estimator(name, **config.advantage.options)
    if config.advantage.options:
        raise ConfigError(
            f"advantage.options has {', '.join(config.advantage.options)}, but {name} is set up by the section `risk`"
        )
    return StepRSGRPO(
        schedule=build_schedule(risk, scale),
        control=risk.control,
        base=risk.base,
        baseline=risk.baseline,
        cap=risk.cap,
        std_ddof=risk.std_ddof,
        reference_pass_rate=risk.reference_pass_rate,
    )


def needs_reference(config: RunConfig, estimator: Estimator) -> bool:
    """Whether a second copy of the base policy is held; adapters are switched off instead."""
    compares = config.loss.kl_coef > 0 or "reference_rewards_PM" in estimator.requires()
    return compares and config.policy.lora is None


def described(estimator: Estimator) -> str:
    """A short text for people: the schedule of StepRS-GRPO, or the name and settings of another estimator.

    >>> described(get_estimator("standardised"))
    'standardised(ddof=1, eps=0.0001)'
    """
    if isinstance(estimator, StepRSGRPO):
        return estimator.schedule.describe()
    return f"{estimator.spec.name}({', '.join(f'{name}={value}' for name, value in estimator.settings().items())})"


def _schedule(config: ScheduleConfig, scale: float, where: str) -> AbstractSchedule:
    forward = _forward_schedule(config, scale, where)
    return schedules.ReversedSchedule(forward) if config.reverse else forward


def _forward_schedule(config: ScheduleConfig, scale: float, where: str) -> AbstractSchedule:
    if config.kind == "knots":
        if not config.knots:
            raise ConfigError(f"{where}.kind is 'knots'; give {where}.knots as a list of [progress, multiple] pairs")
        return schedules.KnotSchedule(tuple((at, scale * coef) for at, coef in config.knots))
    if config.kind == "pass-rate":
        if config.below is None or config.above is None:
            raise ConfigError(f"{where}.kind is 'pass-rate'; give both {where}.below and {where}.above")
        return schedules.PassRateSchedule(
            below=_schedule(config.below, scale, f"{where}.below"),
            above=_schedule(config.above, scale, f"{where}.above"),
            **_given(threshold=config.threshold),
        )
    if scale == 0.0:
        return schedules.ConstantSchedule(0.0)
    return SCHEDULES[config.kind](scale * config.start, scale * config.end, config)


def _given(**settings: Any) -> dict[str, Any]:
    """Settings that were given; the rest keep the schedule's own defaults."""
    return {name: value for name, value in settings.items() if value is not None}


def loop_settings(config: RunConfig) -> LoopSettings:
    """The loop's plain settings, copied field by field from the configuration."""
    train, evaluation = config.train, config.eval
    return LoopSettings(
        seed=config.seed,
        updates=train.updates,
        prompts_per_update=train.prompts_per_update,
        group_size=train.group_size,
        token_budget=int(train.token_budget),
        max_rows=config.sampler.max_rows,
        max_prompt_tokens=config.task.max_prompt_tokens,
        bad_rewards=config.task.bad_rewards,
        save_every=train.save_every,
        keep_last=train.keep_last,
        log_completions=train.log_completions,
        store_rollouts=train.store_rollouts,
        loss=LossSettings(**config.loss.model_dump()),
        advantage=_advantage_settings(config),
        optim=OptimSettings(**train.model_dump(include=set(OptimSettings.__dataclass_fields__))),
        eval=EvalSettings(every=train.eval_every, samples=evaluation.samples, k=evaluation.k, patience=train.patience),
    )


def _advantage_settings(config: RunConfig) -> AdvantageSettings:
    risk, advantage = config.risk, config.advantage
    shaping = advantage.steps_used
    return AdvantageSettings(
        coordinate=risk.coordinate,
        scope=risk.scope,
        rms_match=risk.rms_match,
        normalise=advantage.normalise,
        components={str(name): weight for name, weight in advantage.components.items()},
        reference_samples=advantage.reference_samples,
        steps_used=None if shaping is None else StepsUsed(**shaping.model_dump()),
    )
