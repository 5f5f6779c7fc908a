"""What each advantage estimator adds to an update of the default: 16 prompts x 16 rollouts, 12 states, one thread.

Every estimator makes its advantages of the same rollouts, then scores them with backward and step. Rounds are
interleaved over the estimators, so that other work on the machine meets all of them; CPU seconds, the least of the
rounds, as a ratio to centred GRPO. Reference rewards are drawn anew, as in a run's first epoch.

    python bench/estimators.py [rounds] [names...]
"""

from __future__ import annotations

import copy
import sys
import time
from collections import defaultdict

import torch
from update import make_run

from steprs.build.checks import check
from steprs.config import RunConfig, load_config
from steprs.estimators import ESTIMATORS
from steprs.training import loop
from steprs.training.distributed import make_accelerator
from steprs.training.optim import make_optimizer


def main(rounds: int, names: list[str]) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    accelerator, seconds = make_accelerator(), defaultdict(list)
    runs = {}
    for name in names:
        config = load_config(
            None, [f"advantage.estimator={name}", "risk.scale=1.5", "train.eval_every=0"], model=RunConfig
        )
        check(config)
        runs[name] = make_run(config)
    for round_ in range(rounds + 1):
        for name, run in runs.items():
            memory, weights = run.estimator.initial_memory(), copy.deepcopy(run.policy.module.state_dict())
            start = time.process_time()
            batch, _ = loop.collect_batch(run, accelerator, 1, memory)
            collected = time.process_time()
            loop.inner_update(run, run.policy, make_optimizer(run.policy, run.settings.optim), batch, accelerator, 1)
            ended = time.process_time()
            run.policy.module.load_state_dict(weights)
            if round_:  # the first one warms up
                seconds[name].append((collected - start, ended - collected, float(batch.active_B.float().mean())))
    rows = {name: tuple(min(part) for part in zip(*found, strict=True)) for name, found in seconds.items()}
    centred = sum(rows["centred"][:2])
    print(f"{'estimator':<18}{'collect s':>10}{'update s':>10}{'rows scored':>13}{'of centred':>12}")
    for name, (collect, update, active) in rows.items():
        print(f"{name:<18}{collect:>10.2f}{update:>10.2f}{active:>13.0%}{(collect + update) / centred:>12.2f}")


if __name__ == "__main__":
    chosen = [*dict.fromkeys(["centred", *sys.argv[2:]])] if sys.argv[2:] else list(ESTIMATORS)
    main(int(sys.argv[1]) if sys.argv[1:] else 2, chosen)
