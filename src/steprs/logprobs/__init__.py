"""Log-probabilities of recorded rollouts under a policy, differentiable and in bounded memory.

A method (`trace`, `one_step`, `coupled`) says which noisy states it looks at; `plan` packs them into rows under a
token budget; `score` reads the log-probabilities off. Rollouts that revise their tokens have a plan of their
own (`revised`).
"""

from .coupled import coupled_logprobs, plan_coupled
from .one_step import one_step_logprobs, plan_one_step
from .plan import DEFAULT_TOKEN_BUDGET, PackedRows, ScoringBatch, pad_plan
from .revised import RevisedBatch, check_precision, check_ratio
from .score import TokenScores, check_scorable, score_batch, score_plan
from .trace import plan_trace, trajectory_logprobs

__all__ = [
    "DEFAULT_TOKEN_BUDGET",
    "PackedRows",
    "RevisedBatch",
    "ScoringBatch",
    "TokenScores",
    "check_precision",
    "check_ratio",
    "check_scorable",
    "coupled_logprobs",
    "one_step_logprobs",
    "pad_plan",
    "plan_coupled",
    "plan_one_step",
    "plan_trace",
    "score_batch",
    "score_plan",
    "trajectory_logprobs",
]
