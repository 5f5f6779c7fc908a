"""A made-up study whose numbers are known by construction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steprs.evaluation.records import Example, ProblemSamples
from steprs.evaluation.result import EvalResult

PROBLEMS = 24
# Label -> share of right samples, seeds, and the settings that make the arm; no seeds: a policy that was not trained.
ARMS: Mapping[str, tuple[float, tuple[int, ...], Mapping[str, Any]]] = {
    "base": (0.3, (), {}),
    "base, greedy": (0.4, (), {}),
    "centred GRPO": (0.45, (1, 2, 3), {"risk.scale": 0}),
    "StepRS decreasing": (0.5, (1, 2, 3), {"risk.schedule.start": 1, "risk.schedule.end": 0}),
    "StepRS increasing": (0.44, (2, 3), {"risk.schedule.start": 0, "risk.schedule.end": 1}),
    "constant": (0.46, (3, 2, 1), {"risk.schedule.kind": "constant", "risk.schedule.start": 1}),
    "full": (0.5, (1, 2, 3), {"risk.control": "full"}),
    "flat": (0.47, (1, 2, 3), {"risk.control": "flat"}),
}
BASELINE = "centred GRPO"
UPDATES = 20
NASTY = "<script>alert(1)</script> | `x` \x1b[31m **bold** \u202e"


def evaluation(label: str, rate: float, samples: int, seed: int = 0) -> EvalResult:
    """Problem q has about samples * rate * 2q / problems right samples, one more in odd seeds of odd problems.

    Right ones alternate between two derivations (three in seed 2), wrong ones between three answers; the last wrong
    sample of a problem is unparsed.
    """
    records = []
    for q in range(PROBLEMS):
        right = min(samples, round(samples * rate * 2 * q / PROBLEMS) + (seed % 2) * (q % 2))
        wrong = samples - right
        answers = [f"w{(i + seed) % 3}" for i in range(wrong)]
        records.append(
            ProblemSamples(
                id=f"toy/{q}",
                statuses=("right",) * right + ("wrong",) * max(wrong - 1, 0) + ("unparsed",) * min(wrong, 1),
                answer_keys=("24",) * right + tuple(answers[:-1]) + (None,) * min(wrong, 1),
                solution_keys=tuple(f"s{i % (3 if seed == 2 else 2)}" for i in range(right)) + (None,) * wrong,
                texts=tuple(range(samples)),
                tokens=(12,) * samples,
            )
        )
    return EvalResult(
        policy=label,
        task="toy",
        split="test",
        seed=seed,
        samples=samples,
        k=(1,) if samples == 1 else (1, 4, 16),
        decoding={"steps": 12, "temperature": 1.0},
        problems=tuple(records),
        examples=(Example(problem="toy/0", prompt="1 2 3 4 24", completion=NASTY, status="wrong"),),
    )


def make_study(root: Path) -> Path:
    """A folder as a study leaves it, with a context of eight arms."""
    arms = []
    for label, (rate, seeds, fields) in ARMS.items():
        folders = [f"store/{label.replace(' ', '-')}-{seed}" for seed in seeds or (0,)]
        for folder, seed in zip(folders, seeds or (0,), strict=True):
            evaluation(label, rate, 1 if "greedy" in label else 16, seed).save(root / folder / "eval.json")
            if seeds:
                write_run(root / folder, rate=rate, seed=seed)
        arms.append(
            {
                "label": label,
                "kind": "trained" if seeds else "base",
                "folders": folders,
                "seeds": list(seeds or (0,)),
                "fields": dict(fields),
            }
        )
    manifest = {
        "title": "A made-up study",
        "claim": "Nothing can be claimed.",
        "notes": ["Nothing here was trained."],
        "coverage": {"runs_planned": 17, "runs_finished": 17},
        "contexts": [{"name": "", "baseline": BASELINE, "arms": arms}],
    }
    (root / "manifest.json").write_text(json.dumps(manifest))
    return root


def write_run(folder: Path, *, rate: float, seed: int) -> None:
    """A run's files.

    Reward is `rate / 20 * update + seed / 100`; the scale grid is 1 + row / 4 in even and empty in odd updates; dev has
    pass@1 = .2 + update * rate / 50 and a pass@16 that falls by update * (.51 - rate) / 10.
    """
    folder.mkdir(parents=True, exist_ok=True)
    metrics = []
    for update in range(1, UPDATES + 1):
        scale = [[1.0 + row / 4 if update % 2 == 0 else None for _ in range(5)] for row in range(5)]
        scale[0][0] = None
        metrics.append(
            {
                "update": update,
                "reward/mean": rate / 20 * update + seed / 100,
                "scale_grid": scale,
                "mass_grid": [[0.04] * 5 for _ in range(5)],
                "completions/tokens": 11.0,
                "tokens/scored": 100.0 * seed,
                "forwards": 3.0,
                "groups/dead": 0.25,
                "seconds/rollout": 2.0,
                "seconds/update": 4.0,
            }
        )
    dev = [
        {
            "update": update,
            "pass@1": 0.2 + update * rate / 50,
            "pass@16": 0.9 - update * (0.51 - rate) / 10 + 0.001 * seed,
            "distinct_right@16": 2.0 + 0.01 * seed * update * rate,
        }
        for update in range(0, UPDATES + 1, 10)
    ]
    torn = '{"update": 21, "re'
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in metrics) + torn)
    (folder / "dev.jsonl").write_text("".join(json.dumps(record) + "\n" for record in dev))
    train = {"prompts_per_update": 4, "group_size": 8}
    config = {"name": folder.name, "seed": seed, "train": train, "risk": {"scale": rate}}
    (folder / "config.json").write_text(json.dumps(config))
    outcome = {"updates": UPDATES, "grid_pass_rate_edges": [0, 0.2, 0.4, 0.6, 0.8, 1], "status": "finished"}
    (folder / "result.json").write_text(json.dumps(outcome))
    (folder / "traces.json").write_text(json.dumps(traces(seed)))


def traces(seed: int) -> dict[str, Any]:
    """Two problems with two rollouts of three tokens."""
    rollout = {
        "tokens": ["3", NASTY, "\n"],
        "unmask_step": [2, 0, -1],
        "progress": [1.0, 0.0, None],
        "advantage": [0.25, 0.5 + seed, 0.0],
        "entropy": [0.1, 0.2, float("nan")],
        "status": "right",
        "answer_key": "24",
        "solution_key": "(1 + 2) * 8",
    }
    wrong = {**rollout, "status": "wrong", "answer_key": NASTY, "solution_key": None}
    problems = [
        {
            "id": f"toy/{q}",
            "prompt": f"1 2 3 4 24 {NASTY}",
            "answer": "24",
            "pass_rate": 0.5,
            "rollouts": [rollout, wrong],
        }
        for q in range(2)
    ]
    return {
        "task": "toy",
        "policy": "x",
        "label": "x",
        "schedule": "linear",
        "coordinate": "step",
        "problems": problems,
    }
