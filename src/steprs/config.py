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

    rank: int = Field(16, ge=1, description="of each adapter")
    alpha: float = Field(32.0, description="adapters are scaled by alpha / rank")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="on the adapters' input while training")
    target_modules: tuple[str, ...] | Literal["all-linear"] = Field(
        "all-linear", description="names of linear layers, or all but the head"
    )


class PolicyConfig(Section):
    """Which model is trained. `path`: a shipped name (`tiny`, `tiny-full`), a folder, or the Hub's name of a model.

    Fields left null are the checkpoint's own.
    """

    path: str = Field("tiny", description="`tiny`, `tiny-full`, a folder, or the Hub's name of a model")
    family: str | None = Field(None, description="null: what the checkpoint says of itself")
    revision: str | None = Field(None, description="of a Hub model: branch, tag or commit")
    weights: Literal["float32", "bfloat16"] = Field(
        "float32", description="as stored; bfloat16 with `lora` or for evaluation only"
    )
    block_size: int | None = Field(
        None, ge=1, description="tokens of a block; null: the checkpoint's; makes a converted model block-causal"
    )
    mask_token_id: int | None = Field(None, ge=0, description="null: the checkpoint's")
    eos_token_id: int | None = Field(None, ge=0, description="null: the checkpoint's")
    shifted: bool | None = Field(None, description="the head predicts the next token; null: the checkpoint's")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="of the computation; auto times both once and keeps one: set it where runs are compared"
    )
    attention: Literal["auto", "eager", "sdpa", "flex_attention"] = Field(
        "auto", description="backend; auto: eager on CPUs, SDPA elsewhere"
    )
    gradient_checkpointing: bool = Field(False, description="activations twice: less memory, more time")
    lora: LoraConfig | None = Field(None, description="train low-rank adapters; null trains all weights")
    trust_remote_code: bool = Field(False, description="run Python that comes with a checkpoint")


class TaskConfig(Section):
    """Which problems. `options` go to the task's constructor as they are."""

    name: str = Field("countdown", description="`steprs tasks list` has them")
    options: dict[str, Any] = Field(default_factory=dict, description="to the task's constructor, as they are")
    max_prompt_tokens: int = Field(1024, ge=1, description="a longer prompt is overlong")
    overlong_prompts: Literal["error", "drop"] = Field(
        "error", description="stop with the problem's name, or leave such problems out and list them in dropped.json"
    )
    bad_rewards: Literal["error", "mask"] = Field(
        "error", description="a bad reward stops the run, or masks its rollout; evaluations stop"
    )


class SamplerConfig(Section):
    """How completions are decoded. Fields left null take the policy's or the task's value (printed in the plan)."""

    kind: Literal["auto", "masked", "block", "revise"] = Field(
        "auto", description="the policy's attention decides; another is refused"
    )
    length: int | None = Field(None, ge=1, description="completion tokens; null: the checkpoint's, else the task's")
    steps: int | None = Field(
        None, ge=1, description="of a completion (dynamic rules: at most); null: the checkpoint's, else one a token"
    )
    block_size: int | None = Field(
        None, ge=1, description="decoded together; null: the policy's, the checkpoint's, else all tokens"
    )
    temperature: float = Field(1.0, ge=0.0, description="of the draws; 0 is greedy")
    top_p: float = Field(1.0, gt=0.0, le=1.0, description="nucleus; what is drawn is what is scored")
    top_k: int = Field(0, ge=0, description="0 keeps all tokens")
    unmasking: Unmasking = Field("max_probability", description="which positions a step reveals")
    threshold: float | None = Field(
        None, description="confidence_threshold: 0 to 1; entropy_bound: nats; for no other rule"
    )
    final_temperature: float | None = Field(
        None, ge=0.0, description="revise only: the temperature, which is not below it, falls towards it"
    )
    stop_entropy: float | None = Field(
        None, gt=0.0, description="revise only: an unchanged canvas ends once its mean entropy (nats) is below this"
    )
    max_rows: int = Field(1024, ge=1, description="rollouts decoded at once; changes memory, not results")


class ScheduleConfig(Section):
    """A schedule over denoising progress. `start` and `end` multiply `risk.scale`.

    `pass-rate` holds two schedules and a threshold: `below` is used iff the group's pass rate is below it.
    """

    kind: Literal[
        "constant", "linear", "cosine", "power", "sigmoid", "exponential", "geometric", "step", "knots", "pass-rate"
    ] = Field("linear", description="family; `steprs theory schedule` draws them")
    start: float = Field(1.0, description="coefficient where nothing is revealed, in multiples of the scale")
    end: float = Field(0.0, description="coefficient where the last token is revealed, in multiples of the scale")
    gamma: float | None = Field(None, description="power: above 0; 1 is linear; null: 2")
    steepness: float | None = Field(None, description="sigmoid: above 0, null: 10; exponential: not 0, null: 3")
    midpoint: float | None = Field(None, description="sigmoid, step: progress of the turn; null: .5")
    knots: tuple[tuple[float, float], ...] | None = Field(
        None, description="pairs (progress, multiple); linear between"
    )
    threshold: float | None = Field(None, description="pass-rate: where `below` ends; null: .2")
    below: ScheduleConfig | None = Field(None, description="pass-rate: schedule of groups below the threshold")
    above: ScheduleConfig | None = Field(None, description="pass-rate: schedule of the others")
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

    rule: Rule = Field("halve-failure", description="from pass rate to scale; `steprs theory landmarks` shows them")
    prompts: int = Field(128, ge=1, description="training prompts measured")
    samples: int = Field(8, ge=1, description="rollouts a prompt")
    clip: tuple[float, float] | Literal["rule"] | None = Field(
        "rule", description="bounds on |scale|; rule: the rule's own; null: none"
    )
    target: float | None = Field(
        None, gt=0.0, lt=1.0, description="rule target only: the pass rate that the tilt moves the measured one to"
    )
    weight: float | None = Field(None, gt=0.0, description="rule weight-cap only: the largest weight")

    @model_validator(mode="after")
    def _rule_has_its_input(self) -> CalibrationConfig:
        for rule, name in (("target", "target"), ("weight-cap", "weight")):
            if (self.rule == rule) != (getattr(self, name) is not None):
                raise ValueError(
                    f"rule {rule!r} and {name} go together; rule is {self.rule!r}, {name} is {getattr(self, name)}"
                )
        return self


class RiskConfig(Section):
    """The stepwise risk transformation. `scale: 0` (base centred, baseline group) is centred GRPO bit for bit."""

    scale: float | Literal["calibrated"] = Field(
        "calibrated", description="of the schedule's ends, 1 / reward; 0 leaves base and baseline as they are"
    )
    schedule: ScheduleConfig = ScheduleConfig()
    calibration: CalibrationConfig = CalibrationConfig()
    control: Control = Field(
        "full", description="full: the method; flat, reverse, shuffles: its mass, elsewhere; others: see Method"
    )
    base: Literal["centred", "standardised"] = Field("centred", description="what is rescaled")
    baseline: Literal["group", "leave-one-out"] = Field(
        "group", description="mean of the group's rewards, or of the other rollouts' only"
    )
    cap: float | None = Field(None, gt=0.0, description="leave-one-out only: bound on |A|; null is group_size - 1")
    std_ddof: Literal[0, 1] = Field(1, description="of the standard deviation, with base standardised")
    rms_match: Literal["batch", "group", "state", "group-state"] | None = Field(
        None, description="rescale to the RMS of centred advantages over this unit"
    )
    reference_pass_rate: float | None = Field(
        None, gt=0.0, lt=1.0, description="control constant: pass rate it is matched at; null: the measured one"
    )
    coordinate: Literal["auto", "step", "mask", "rank"] = Field(
        "auto",
        description="what progress counts: steps, revealed tokens or ranks; auto: steps where their number is fixed",
    )
    scope: Literal["sequence", "block", "within"] = Field(
        "sequence",
        description="progress over the completion, by blocks begun (one block: always 0), or within each block",
    )


class StepsUsedConfig(Section):
    """A reward that falls with the denoising steps of right rollouts, for dynamic decoding."""

    kind: Literal["step-grpo", "step-pruner"] = Field("step-grpo", description="formula, see `steprs.training.shaping`")
    strength: float = Field(0.5, gt=0.0, lt=1.0, description="how much of the reward steps can change")


class AdvantageConfig(Section):
    """Which estimator makes advantages of rewards (`steprs estimators list`). `steprs-grpo` is set up by `risk`."""

    estimator: str = Field("steprs-grpo", description="`steprs estimators list` has them")
    options: dict[str, Any] = Field(default_factory=dict, description="its own settings; null drops a base file's")
    normalise: Literal["none", "group-std"] = Field(
        "none", description="group-std: divide by the rewards' deviation; refused after a reweighting"
    )
    components: dict[Literal["right", "parsed", "ended"], float] = Field(
        {"right": 1.0, "parsed": 0.5}, description="rewards and weights, for several rewards"
    )
    reference_samples: int = Field(8, ge=1, description="base policy's rollouts a prompt, for reference baselines")
    steps_used: StepsUsedConfig | None = Field(
        None, description="let rewards of right rollouts depend on the denoising steps they used; null: no"
    )

    @field_validator("options", mode="before")
    @classmethod
    def _null_is_none_of_them(cls, value: Any) -> Any:
        return {} if value is None else value


class LossConfig(Section):
    """From advantages to a scalar. Everything here is the underlying trainer and knows nothing of risk."""

    kind: Literal["policy-gradient", "ppo-clip", "f-tis"] = Field(
        "ppo-clip", description="form of the objective; formulas: `steprs.losses`"
    )
    clip_low: float = Field(0.2, gt=0.0, lt=1.0, description="ppo-clip only: ratios are clipped below 1 - this")
    clip_high: float = Field(0.2, gt=0.0, description="ppo-clip only: ratios are clipped above 1 + this")
    ratio_cap: float = Field(2.0, gt=0.0, description="f-tis only: importance weights are cut here")
    divergence_limit: float = Field(
        0.1,
        gt=0.0,
        description="f-tis only: worse rollouts further than this from the policy are left out, nats a token",
    )
    kl_coef: float = Field(0.0, ge=0.0, description="weight of the divergence from the frozen base policy")
    kl_kind: Literal["k1", "k2", "k3"] = Field("k3", description="its estimate")
    aggregation: Literal["token-mean", "state-mean", "sequence-mean"] = Field(
        "token-mean", description="what the mean is over"
    )
    count_dead_groups: bool = Field(True, description="groups of equal rewards count in the mean's denominator")
    logprobs: Literal["trace", "one-step", "coupled"] = Field("trace", description="how rollouts are scored")
    states_per_rollout: int | None = Field(
        None, ge=1, description="trace only: states scored of each rollout, drawn without bias; null: all"
    )
    shrinkage: int = Field(1, ge=1, description="consecutive denoising steps merged into one state")
    prompt_mask_rate: float = Field(0.15, ge=0.0, lt=1.0, description="one-step only (d1's diffu-GRPO)")
    inner_updates: int = Field(1, ge=1, description="optimiser steps a batch of rollouts")


class TrainConfig(Section):
    """The loop. Micro-batches are derived from `token_budget`."""

    updates: int = Field(60, ge=0, description="batches of rollouts")
    prompts_per_update: int = Field(16, ge=1, description="over all processes, which it must divide among")
    group_size: int = Field(16, ge=1, description="rollouts a prompt; 2 or more")
    learning_rate: float = Field(2e-4, ge=0.0, description="of AdamW, at its highest")
    schedule: Literal["linear", "cosine", "constant"] = Field(
        "linear", description="of the learning rate: falls to 0, or stays"
    )
    warmup_updates: int = Field(5, ge=0, description="over which the rate rises")
    betas: tuple[float, float] = Field((0.9, 0.95), description="of AdamW")
    weight_decay: float = Field(0.0, ge=0.0, description="of AdamW, matrices only")
    max_grad_norm: float = Field(1.0, gt=0.0, description="gradients are scaled down to it")
    token_budget: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="most positions of one forward; changes memory and speed, not results"
    )
    save_every: int = Field(20, ge=0, description="updates between checkpoints; 0: only the last and the best")
    keep_last: int = Field(2, ge=1, description="newest checkpoints kept; the best one is kept too")
    eval_every: int = Field(
        20, ge=0, description="updates between evaluations on dev, the first before training; 0: none"
    )
    patience: int | None = Field(None, ge=1, description="dev evaluations without a new best before stopping")
    log_completions: int = Field(2, ge=0, description="prompts an update whose first completion is logged")
    store_rollouts: int = Field(0, ge=0, description="keep rollouts of update 1 and of every so many; 0 keeps none")
    trackers: tuple[Literal["tensorboard", "wandb"], ...] = Field((), description="also log there")


class EvalConfig(Section):
    """Evaluation during training (`dev`, always decoded as training does) and by `steprs eval` (`test`)."""

    problems: int = Field(128, ge=1, description="from the start of the split")
    samples: int = Field(16, ge=1, description="completions a problem")
    k: tuple[int, ...] = Field((1, 4, 16), description="of pass@k and distinct@k; none above samples")
    temperature: float | None = Field(None, ge=0.0, description="`steprs eval` only; null: the run's")
    top_p: float | None = Field(None, gt=0.0, le=1.0, description="`steprs eval` only; null: the run's")
    top_k: int | None = Field(None, ge=0, description="`steprs eval` only; null: the run's")
    steps: int | None = Field(None, ge=1, description="`steprs eval` only; null: the run's")
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

    name: str = Field("run", description="in reports, and of the folder under runs/")
    seed: int = Field(0, ge=0, description="of everything random in the run")
    output: str | None = Field(None, description="folder of the run; null: runs/NAME")
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

    name: str = Field("tiny", description="of the folder under runs/, after pretrain-")
    seed: int = Field(0, ge=0, description="of everything random in it")
    output: str | None = Field(None, description="folder of the policy; null: runs/pretrain-NAME")
    task: TaskConfig = TaskConfig()
    policy: PolicyConfig | None = Field(None, description="what is adapted; null makes a tiny policy from nothing")
    length: int | None = Field(
        None, ge=1, description="completion tokens of a policy that is adapted; null: the task's number of words"
    )
    attention: Literal["block_causal", "bidirectional"] = Field("block_causal", description="of a new policy")
    block_size: int | None = Field(None, ge=1, description="null: a written step, or the completion if bidirectional")
    hidden_size: int = Field(128, ge=8, description="width")
    intermediate_size: int = Field(160, ge=8, description="width inside the feed-forward part")
    layers: int = Field(3, ge=1, description="number of them")
    heads: int = Field(2, ge=1, description="of attention; hidden_size / heads is a head's size")
    kv_heads: int | None = Field(None, ge=1, description="heads of keys and values; null: as many as heads")
    batch_size: int = Field(64, ge=1, description="solutions an update")
    copies: int = Field(2, ge=1, description="noisy copies of every block of a solution")
    updates: int = Field(4000, ge=1, description="optimiser steps; the rate falls to 0 over the last half")
    max_minutes: float = Field(10.0, gt=0.0, description="ends earlier when they are over, with the policy as it is")
    learning_rate: float = Field(3e-3, gt=0.0, description="of AdamW")
    muon_learning_rate: float | None = Field(0.02, gt=0.0, description="of the matrices; null: AdamW for all weights")
    weight_decay: float = Field(0.0, ge=0.0, description="of AdamW and Muon")
    warmup_updates: int = Field(50, ge=0, description="over which the rate rises")

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
