"""Settings that are right each by itself and wrong together; `train` and `--dry-run` refuse the same ones."""

from __future__ import annotations

from ..config import PolicyConfig, RiskConfig, RunConfig
from ..errors import ConfigError
from ..estimators.base import Estimator
from ..logprobs import check_precision
from ..policies.base import Policy


def check(config: RunConfig) -> None:
    """Refuse contradictions.

    Args:
        config: resolved.

    Raises:
        ConfigError: names the settings, what they need and what to do.
    """
    if config.train.group_size < 2:
        raise ConfigError(
            f"train.group_size is {config.train.group_size}; a group needs at least 2 rollouts "
            "to compare rewards within it"
        )
    check_masters(config.policy)
    truncated = config.sampler.top_p < 1.0 or config.sampler.top_k > 0
    if truncated and config.loss.logprobs != "trace":
        raise ConfigError(
            f"sampler.top_p/top_k truncate the sampling distribution, which loss.logprobs={config.loss.logprobs!r} "
            "cannot score; use 'trace', or top_p=1 and top_k=0"
        )
    if config.loss.kind == "f-tis" and config.loss.logprobs != "trace":
        raise ConfigError(
            f"loss.kind 'f-tis' weighs by the likelihood that rollouts were drawn with, and loss.logprobs="
            f"{config.loss.logprobs!r} is another one; use loss.logprobs=trace"
        )
    _check_steps_used(config)
    risk = config.risk
    if config.advantage.estimator != "steprs-grpo":
        _check_risk_is_idle(config)
    if risk.control == "constant" and risk.reference_pass_rate is None and risk.scale != "calibrated":
        raise ConfigError(
            "risk.control is 'constant'; give risk.reference_pass_rate, the pass rate it is matched at, or let "
            "risk.scale=calibrated measure it"
        )
    if risk.cap is not None and risk.baseline != "leave-one-out":
        raise ConfigError("risk.cap is for risk.baseline=leave-one-out; the group baseline needs none, drop it")
    if risk.baseline == "leave-one-out" and risk.control not in ("full", "centred"):
        raise ConfigError(
            f"risk.control={risk.control!r} is defined with the group's own pass rate; with "
            "risk.baseline=leave-one-out use 'full' or 'centred'"
        )


def _check_risk_is_idle(config: RunConfig) -> None:
    """Refuse settings of the risk transformation that another estimator would pass over in silence."""
    risk, default = config.risk, RiskConfig()
    for name in ("control", "base", "baseline", "cap", "reference_pass_rate"):
        if getattr(risk, name) != getattr(default, name):
            raise ConfigError(
                f"risk.{name} is {getattr(risk, name)!r}, which estimator {config.advantage.estimator!r} knows nothing "
                "of; leave it out, or set advantage.estimator=steprs-grpo"
            )


def _check_steps_used(config: RunConfig) -> None:
    """Refuse a reward for few steps where their number is fixed, or where graded rewards have no meaning."""
    if config.advantage.steps_used is None:
        return
    sampler = config.sampler
    # Canvases take all their steps whatever the rule, unless a stable one may end early.
    dynamic = sampler.kind != "revise" and sampler.unmasking in ("confidence_threshold", "entropy_bound")
    if not dynamic and sampler.stop_entropy is None:
        raise ConfigError(
            f"advantage.steps_used rewards few denoising steps, and sampler.kind={sampler.kind!r} with "
            f"sampler.unmasking={sampler.unmasking!r} always takes sampler.steps; use confidence_threshold or "
            "entropy_bound (on canvases that are revised: sampler.stop_entropy), or leave steps_used out"
        )
    if config.risk.schedule.kind == "pass-rate" and config.calibrates | (config.risk.scale != 0):
        raise ConfigError(
            "advantage.steps_used makes graded rewards, which have no pass rate for risk.schedule.kind=pass-rate; use "
            "another schedule, or leave steps_used out"
        )


def check_policy(config: RunConfig, policy: Policy) -> None:
    """Refuse settings under which rollouts that revise their tokens could not be scored as they were sampled.

    Args:
        config: resolved.
        policy: that is trained.

    Raises:
        ConfigError: names the setting.
    """
    if policy.attention != "canvas":
        return
    check_precision(policy)
    if config.loss.kind == "f-tis":
        raise ConfigError(f"loss.kind 'f-tis' is not for family {policy.family!r}, whose ratio is 1 or an error")
    if config.loss.logprobs != "trace" or config.loss.shrinkage != 1:
        raise ConfigError(
            f"loss.logprobs is {config.loss.logprobs!r} and loss.shrinkage {config.loss.shrinkage}, but family "
            f"{policy.family!r} revises its tokens: only the recorded states say what they were drawn from, so "
            "set loss.logprobs=trace and loss.shrinkage=1"
        )


def check_advantage(config: RunConfig, estimator: Estimator, policy: Policy) -> None:
    """Refuse an estimator that these settings or this policy would feed wrongly, before the first rollout.

    Args:
        config: resolved.
        estimator: as built.
        policy: that is trained.

    Raises:
        ConfigError: names the estimator, the setting and what to do.
    """
    spec, needs, settings = estimator.spec, set(estimator.requires()), config.advantage
    who = f"estimator {spec.name!r}"
    if config.train.group_size < estimator.smallest_group():
        raise ConfigError(
            f"{who} with these options compares groups of {estimator.smallest_group()} or more; train.group_size is "
            f"{config.train.group_size}"
        )
    if settings.normalise != "none" and (spec.reweights or spec.alive):
        raise ConfigError(
            f"advantage.normalise={settings.normalise} after {who} would cancel its weight of a prompt, or divide by "
            "the spread of equal rewards; set advantage.normalise=none"
        )
    if settings.steps_used is not None and (spec.binary or needs & {"reference_rewards_PM", "state_rewards_PGS"}):
        raise ConfigError(
            f"advantage.steps_used makes graded rewards, and {who} takes right and wrong or compares with rewards that "
            "are not shaped; leave one of the two out"
        )
    if "components_PGK" in needs:
        _check_components(config, who, by_region="regions_PGL" in needs)
    foreseen = needs & {"state_rewards_PGS", "state_keys_PGS"}
    if policy.attention == "canvas" and foreseen:
        raise ConfigError(
            f"{who} needs {min(foreseen)}, which is defined for states in which tokens are masked; family "
            f"{policy.family!r} revises whole canvases. Use an estimator over sequences"
        )


def _check_components(config: RunConfig, who: str, *, by_region: bool) -> None:
    """Several rewards: at least two, none with a negative weight, and a block for each where blocks have their own."""
    weights, sampler = config.advantage.components, config.sampler
    if len(weights) < 2 or min(weights.values()) < 0 or not any(weights.values()):
        raise ConfigError(
            f"advantage.components is {dict(weights)}; {who} takes two or more of right, parsed, ended with weights of "
            "0 or more, not all 0"
        )
    blocks = (sampler.length or 0) // (sampler.block_size or 1)
    if by_region and blocks < len(weights):
        raise ConfigError(
            f"{who} gives each of {len(weights)} rewards decoding blocks of its own, and a completion has {blocks}; "
            "name fewer advantage.components, or decode in more blocks"
        )


def check_masters(policy: PolicyConfig) -> None:
    """Refuse to train weights in half precision, where small updates round to nothing.

    Raises:
        ConfigError: names the setting.
    """
    if policy.weights != "float32" and policy.lora is None:
        raise ConfigError(
            f"policy.weights is {policy.weights!r}, which loses small updates of trained weights; keep float32, or "
            "train adapters (policy.lora) over frozen weights"
        )
