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
    if config.loss.logprobs != "trace" or config.loss.shrinkage != 1:
        raise ConfigError(
            f"loss.logprobs is {config.loss.logprobs!r} and loss.shrinkage {config.loss.shrinkage}, but family "
            f"{policy.family!r} revises its tokens: only the recorded states say what they were drawn from, so "
            "set loss.logprobs=trace and loss.shrinkage=1"
        )


def check_group(config: RunConfig, estimator: Estimator) -> None:
    """Refuse groups that are too small for the estimator.

    Raises:
        ConfigError: names the estimator and the sizes.
    """
    if config.train.group_size < estimator.smallest_group():
        raise ConfigError(
            f"estimator {estimator.spec.name!r} with these options compares groups of {estimator.smallest_group()} or "
            f"more; train.group_size is {config.train.group_size}"
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
