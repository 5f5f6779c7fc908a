"""From configuration to objects and to runs. The only place that reads settings and constructs things from them."""

from .calibrating import calibrate, chosen_rule, rule_estimates
from .evaluation import evaluate
from .exporting import export
from .objects import build_policy, build_sampler, build_schedule, build_task, resolve
from .plan import plan_text
from .pretraining import pretrain
from .rescoring import rescore
from .runs import train
from .tracing import trace_recorder

__all__ = [
    "build_policy",
    "build_sampler",
    "build_schedule",
    "build_task",
    "calibrate",
    "chosen_rule",
    "evaluate",
    "export",
    "plan_text",
    "pretrain",
    "rescore",
    "resolve",
    "rule_estimates",
    "trace_recorder",
    "train",
]
