"""Settings of a run as typed data. Never imports torch; only `build` turns these into objects.

A run file is YAML in the shape of `RunConfig`; `base: other.yaml` starts from another file. Dotted overrides
(`risk.scale=2`) are parsed as YAML values. Unknown keys are errors with a did-you-mean.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from .configs.loading import flat_overrides as flat_overrides
from .configs.loading import load_config as load_config

Unmasking = Literal[
    "low_confidence", "max_probability", "entropy", "entropy_bound", "confidence_threshold", "random", "left_to_right"
]
Control = Literal["full", "flat", "constant", "reverse", "shuffle-token", "shuffle-state", "state-only", "centred"]
Rule = Literal["halve-failure", "odds", "log-inverse", "max-scale", "crossover", "weight-cap", "mass-neutral", "target"]


class Section(BaseModel):
    """A group of settings: frozen, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_not_booleans(cls, data: Any) -> Any:
        """YAML's `true` would count as 1."""
        for name, value in data.items() if isinstance(data, dict) else ():
            field = cls.model_fields.get(name)
            if isinstance(value, bool) and field is not None and field.annotation not in (bool, bool | None):
                raise ValueError(f"{name} is {value}; it takes no true or false")
        return data


class LoraConfig(Section):
    """Low-rank adapters through peft; the reference policy is the adapter switched off."""

    rank: int = Field(16, ge=1)
    alpha: float = 32.0
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    target_modules: tuple[str, ...] | Literal["all-linear"] = "all-linear"


class PolicyConfig(Section):
    """Which model is trained. `path`: a shipped name (`tiny`, `tiny-full`), a folder, or the Hub's name of a model.

    Fields left null are the checkpoint's own.
    """

    path: str = "tiny"
    family: str | None = None
    revision: str | None = Field(None, description="of a Hub model")
    weights: Literal["float32", "bfloat16"] = Field("float32", description="bfloat16: with lora or for evaluation")
    block_size: int | None = Field(None, ge=1)
    mask_token_id: int | None = Field(None, ge=0)
    eos_token_id: int | None = Field(None, ge=0)
    shifted: bool | None = Field(None, description="the head predicts the next token")
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    attention: Literal["auto", "eager", "sdpa", "flex_attention"] = "auto"
    gradient_checkpointing: bool = False
    lora: LoraConfig | None = None
    trust_remote_code: bool = False


class TaskConfig(Section):
    """Which problems. `options` go to the task's constructor as they are."""

    name: str = "countdown"
    options: dict[str, Any] = Field(default_factory=dict)
    max_prompt_tokens: int = Field(1024, ge=1)
    overlong_prompts: Literal["error", "drop"] = "error"
    bad_rewards: Literal["error", "mask"] = "error"


class SamplerConfig(Section):
    """How completions are decoded. Fields left null take the policy's or the task's value (printed in the plan)."""

    kind: Literal["auto", "masked", "block", "revise"] = "auto"
    length: int | None = Field(None, ge=1)
    steps: int | None = Field(None, ge=1)
    block_size: int | None = Field(None, ge=1)
    temperature: float = Field(1.0, ge=0.0)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    top_k: int = Field(0, ge=0)
    unmasking: Unmasking = "max_probability"
    threshold: float | None = None
    final_temperature: float | None = Field(None, ge=0.0, description="revise only: the temperature falls towards it")
    stop_entropy: float | None = Field(None, gt=0.0, description="revise only: ends a stable canvas below this mean")
    max_rows: int = Field(1024, ge=1, description="rows decoded at once")


class ScheduleConfig(Section):
    """A schedule over denoising progress. `start` and `end` multiply `risk.scale`.

    `pass-rate` holds two schedules and a threshold: `below` is used iff the group's pass rate is below it.
    """

    kind: Literal[
        "constant", "linear", "cosine", "power", "sigmoid", "exponential", "geometric", "step", "knots", "pass-rate"
    ] = "linear"
    start: float = 1.0
    end: float = 0.0
    gamma: float | None = None
    steepness: float | None = None
    midpoint: float | None = None
    knots: tuple[tuple[float, float], ...] | None = None
    threshold: float | None = None
    below: ScheduleConfig | None = None
    above: ScheduleConfig | None = None
    reverse: bool = Field(False, description="run it from the other end: progress becomes 1 - progress")

    @model_validator(mode="after")
    def _only_its_own_settings(self) -> ScheduleConfig:
        own = {
            "constant": {"start"}, "knots": {"knots"}, "pass-rate": {"threshold", "below", "above"},
            "power": {"start", "end", "gamma"}, "sigmoid": {"start", "end", "steepness", "midpoint"},
            "exponential": {"start", "end", "steepness"}, "step": {"start", "end", "midpoint"},
        }.get(self.kind, {"start", "end"})  # fmt: skip
        # `start` and `end` may stay behind from a base file that another kind is laid over.
        foreign = self.model_fields_set - own - {"kind", "reverse", "start", "end"}
        given = sorted(name for name in foreign if getattr(self, name) is not None)
        if given:
            raise ValueError(
                f"{', '.join(given)} means nothing for kind {self.kind!r}; it takes {', '.join(sorted(own))}"
            )
        return self


class CalibrationConfig(Section):
    """How `risk.scale: calibrated` measures capability before the first update."""

    rule: Rule = "halve-failure"
    prompts: int = Field(128, ge=1)
    samples: int = Field(8, ge=1)
    clip: tuple[float, float] | Literal["rule"] | None = Field("rule", description="bounds on |scale|; null is none")
    target: float | None = Field(None, gt=0.0, lt=1.0)
    weight: float | None = Field(None, gt=0.0)

    @model_validator(mode="after")
    def _rule_has_its_input(self) -> CalibrationConfig:
        for rule, name in (("target", "target"), ("weight-cap", "weight")):
            if (self.rule == rule) != (getattr(self, name) is not None):
                raise ValueError(
                    f"rule {rule!r} and {name} go together; rule is {self.rule!r}, {name} is {getattr(self, name)}"
                )
        return self


class RiskConfig(Section):
    """The stepwise risk transformation. `scale: 0` is centred GRPO bit for bit."""

    scale: float | Literal["calibrated"] = "calibrated"
    schedule: ScheduleConfig = ScheduleConfig()
    calibration: CalibrationConfig = CalibrationConfig()
    control: Control = "full"
    base: Literal["centred", "standardised"] = "centred"
    baseline: Literal["group", "leave-one-out"] = "group"
    cap: float | None = Field(None, gt=0.0, description="leave-one-out only: bound on |A|; null is group_size - 1")
    std_ddof: Literal[0, 1] = 1
    rms_match: Literal["batch", "group", "state", "group-state"] | None = None
    reference_pass_rate: float | None = Field(None, gt=0.0, lt=1.0)
    coordinate: Literal["auto", "step", "mask", "rank"] = "auto"
    scope: Literal["sequence", "block", "within"] = "sequence"


class StepsUsedConfig(Section):
    """A reward that falls with the denoising steps of right rollouts, for dynamic decoding."""

    kind: Literal["step-grpo", "step-pruner"] = "step-grpo"
    strength: float = Field(0.5, gt=0.0, lt=1.0, description="share of the reward that steps can take away")


class AdvantageConfig(Section):
    """Which estimator makes advantages of rewards (`steprs estimators list`). `steprs-grpo` is set up by `risk`."""

    estimator: str = "steprs-grpo"
    options: dict[str, Any] = Field(default_factory=dict, description="its own settings; null drops a base file's")
    normalise: Literal["none", "group-std"] = "none"
    components: dict[Literal["right", "parsed", "ended"], float] = Field(
        {"right": 1.0, "parsed": 0.5}, description="rewards and weights, for several rewards"
    )
    reference_samples: int = Field(8, ge=1, description="base policy's rollouts a prompt, for reference baselines")
    steps_used: StepsUsedConfig | None = None

    @field_validator("options", mode="before")
    @classmethod
    def _null_is_none_of_them(cls, value: Any) -> Any:
        return {} if value is None else value


class LossConfig(Section):
    """From advantages to a scalar. Everything here is the underlying trainer and knows nothing of risk."""

    kind: Literal["policy-gradient", "ppo-clip", "f-tis"] = "ppo-clip"
    clip_low: float = Field(0.2, gt=0.0, lt=1.0)
    clip_high: float = Field(0.2, gt=0.0)
    ratio_cap: float = Field(2.0, gt=0.0, description="f-tis only: importance weights are cut here")
    divergence_limit: float = Field(0.1, gt=0.0, description="f-tis only: nats a token")
    kl_coef: float = Field(0.0, ge=0.0)
    kl_kind: Literal["k1", "k2", "k3"] = "k3"
    aggregation: Literal["token-mean", "state-mean", "sequence-mean"] = "token-mean"
    count_dead_groups: bool = True
    logprobs: Literal["trace", "one-step", "coupled"] = "trace"
    states_per_rollout: int | None = Field(None, ge=1)
    shrinkage: int = Field(1, ge=1)
    prompt_mask_rate: float = Field(0.15, ge=0.0, lt=1.0, description="one-step only (d1's diffu-GRPO)")
    inner_updates: int = Field(1, ge=1)


class TrainConfig(Section):
    """The loop. Micro-batches are derived from `token_budget`."""

    updates: int = Field(60, ge=0)
    prompts_per_update: int = Field(16, ge=1)
    group_size: int = Field(16, ge=1)
    learning_rate: float = Field(2e-4, ge=0.0)
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup_updates: int = Field(5, ge=0)
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = Field(0.0, ge=0.0)
    max_grad_norm: float = Field(1.0, gt=0.0)
    token_budget: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    save_every: int = Field(20, ge=0)
    keep_last: int = Field(2, ge=1)
    eval_every: int = Field(20, ge=0)
    patience: int | None = Field(None, ge=1, description="dev evaluations without a new best before stopping")
    log_completions: int = Field(2, ge=0)
    store_rollouts: int = Field(0, ge=0, description="keep rollouts of update 1 and of every so many; 0 keeps none")
    trackers: tuple[Literal["tensorboard", "wandb"], ...] = ()


class EvalConfig(Section):
    """Evaluation during training (`dev`) and by `steprs eval` (`test`). Decode settings left null are the run's."""

    problems: int = Field(128, ge=1)
    samples: int = Field(16, ge=1)
    k: tuple[int, ...] = (1, 4, 16)
    temperature: float | None = Field(None, ge=0.0)
    top_p: float | None = Field(None, gt=0.0, le=1.0)
    top_k: int | None = Field(None, ge=0)
    steps: int | None = Field(None, ge=1)
    denoising: bool = Field(False, description="`steprs eval` only: also measure how the samples came about")
    backslide_problems: int = Field(64, ge=0, description="with denoising: problems whose states are completed")

    @model_validator(mode="after")
    def _k_within_samples(self) -> EvalConfig:
        if not self.k or min(self.k) < 1:
            raise ValueError(f"eval.k is {list(self.k)}; give numbers of tries from 1 on, e.g. [1, 16]")
        if max(self.k) > self.samples:
            raise ValueError(
                f"eval.k holds {max(self.k)} but eval.samples is {self.samples}; pass@k needs k <= samples"
            )
        return self


class RunConfig(Section):
    """One training run, resolved: written to `config.json`, which is itself a run file."""

    name: str = "run"
    seed: int = Field(0, ge=0)
    output: str | None = None
    policy: PolicyConfig = PolicyConfig()
    task: TaskConfig = TaskConfig()
    sampler: SamplerConfig = SamplerConfig()
    risk: RiskConfig = RiskConfig()
    advantage: AdvantageConfig = AdvantageConfig()
    loss: LossConfig = LossConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()

    @property
    def calibrates(self) -> bool:
        """Whether the run needs a measured pass rate: only StepRS-GRPO has a scale."""
        return self.risk.scale == "calibrated" and self.advantage.estimator == "steprs-grpo"


class PretrainConfig(Section):
    """Masked-diffusion cross-entropy on a task's written solutions: a tiny policy from nothing, or `policy` adapted."""

    shape: ClassVar[frozenset[str]] = frozenset(
        {"attention", "block_size", "hidden_size", "intermediate_size", "layers", "heads", "kv_heads"}
    )

    name: str = "tiny"
    seed: int = Field(0, ge=0)
    output: str | None = None
    task: TaskConfig = TaskConfig()
    policy: PolicyConfig | None = Field(None, description="what is adapted; null makes a tiny policy from nothing")
    length: int | None = Field(None, ge=1, description="completion tokens; null: the task's number of words")
    attention: Literal["block_causal", "bidirectional"] = "block_causal"
    block_size: int | None = Field(None, ge=1, description="null: a written step, or the completion if bidirectional")
    hidden_size: int = Field(128, ge=8)
    intermediate_size: int = Field(160, ge=8)
    layers: int = Field(3, ge=1)
    heads: int = Field(2, ge=1)
    kv_heads: int | None = Field(None, ge=1)
    batch_size: int = Field(64, ge=1)
    copies: int = Field(2, ge=1, description="noisy copies of every block of a solution")
    updates: int = Field(4000, ge=1)
    max_minutes: float = Field(10.0, gt=0.0)
    learning_rate: float = Field(3e-3, gt=0.0)
    muon_learning_rate: float | None = Field(0.02, gt=0.0, description="of the matrices; null: AdamW for all weights")
    weight_decay: float = Field(0.0, ge=0.0)
    warmup_updates: int = Field(50, ge=0)

    @model_validator(mode="after")
    def _an_existing_policy_has_its_shape(self) -> PretrainConfig:
        given = sorted(self.model_fields_set & self.shape)
        if self.policy is not None and given:
            raise ValueError(f"{', '.join(given)}: the policy that is adapted has its own; drop them, or policy")
        return self

    @field_validator("kv_heads")
    @classmethod
    def _divides(cls, value: int | None, info: Any) -> int | None:
        if value is not None and info.data.get("heads", value) % value:
            raise ValueError(f"kv_heads {value} must divide heads {info.data['heads']}")
        return value
