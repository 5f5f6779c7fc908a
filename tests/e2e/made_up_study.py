"""Made-up studies that look like real ones: many arms and seeds, curves, grids, rollouts, hostile text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from steprs.evaluation.records import Example, ProblemSamples
from steprs.evaluation.result import EvalResult

PROBLEMS, SAMPLES, UPDATES = 64, 16, 60
NASTY = "<script>document.title='owned'</script><img src=x onerror=alert(1)> \x1b[31m\u202egnp.exe\u2066 `x` | \u2028"


@dataclass(frozen=True)
class MadeUp:
    """How good an arm becomes, and how much of its spread it keeps."""

    label: str
    skill: float
    spread: float
    kind: str = "trained"
    fields: Mapping[str, Any] = field(default_factory=dict)
    samples: int = SAMPLES


BASES = (
    MadeUp("base", -0.7, 1.0, "base"),
    MadeUp("base, greedy", 0.0, 0.2, "base", samples=1),
    MadeUp("base, T = 0.7", -0.4, 0.85, "base"),
)
CENTRED = MadeUp("centred GRPO", 0.0, 0.45, fields={"risk.scale": 0})
MAIN = (
    *BASES,
    CENTRED,
    MadeUp("standardised GRPO", 0.05, 0.4, fields={"risk.base": "standardised", "risk.scale": 0}),
    MadeUp("RS-GRPO, constant", 0.0, 0.5, fields={"risk.schedule.start": 1, "risk.schedule.end": 1}),
    MadeUp("StepRS decreasing", 0.02, 0.7, fields={"risk.schedule.start": 1, "risk.schedule.end": 0}),
    MadeUp("StepRS increasing", 0.03, 0.42, fields={"risk.schedule.start": 0, "risk.schedule.end": 1}),
)
CONTROLS = (
    *BASES[:1],
    CENTRED,
    *(
        MadeUp(name, 0.02, spread, fields={"risk.control": name})
        for name, spread in (
            ("full", 0.7), ("flat", 0.6), ("constant", 0.6), ("reverse", 0.42), ("shuffle-token", 0.5),
            ("shuffle-state", 0.52), ("state-only", 0.55),
        )
    ),
)  # fmt: skip
ENDPOINTS = (
    *BASES[:1],
    CENTRED,
    *(
        MadeUp(
            f"{start:g} to {end:g}", -0.03 * abs(start + end), 0.45 + 0.06 * start + 0.02 * end,
            fields={"risk.schedule.start": start, "risk.schedule.end": end},
        )
        for start in (-1, 0, 1, 2, 4)
        for end in (-1, 0, 1, 2, 4)
        if (start, end) != (0, 0)
    ),
)  # fmt: skip


def write_study(
    root: Path, contexts: Mapping[str, Sequence[MadeUp]], *, seeds: int = 4, title: str = "A made-up study"
) -> Path:
    """A study folder; what a run holds depends on its names and seed alone."""
    plain = []
    for number, (name, arms) in enumerate(contexts.items()):
        plain.append(
            {
                "name": name,
                "baseline": CENTRED.label,
                "arms": [_write_arm(root, arm, number, seeds) for arm in arms],
            }
        )
    trained = sum(len(arm["folders"]) for context in plain for arm in context["arms"] if arm["kind"] == "trained")
    manifest = {
        "title": title,
        "claim": "Coefficients that decrease over denoising keep more right solutions at equal pass@1.",
        "notes": ["Nothing here was trained: every number was drawn from a made-up model."],
        "coverage": {"runs_planned": trained, "runs_finished": trained},
        "contexts": plain,
    }
    (root / "manifest.json").write_text(json.dumps(manifest))
    return root


def _write_arm(root: Path, arm: MadeUp, context: int, seeds: int) -> dict[str, Any]:
    numbers = list(range(101, 101 + seeds)) if arm.kind == "trained" else [101]
    folders = []
    for seed in numbers:
        name = f"store/{context}-{arm.label.replace(' ', '-').replace(',', '')}-{seed}"
        folder = root / name
        folder.mkdir(parents=True)
        rng = np.random.default_rng([seed, context, len(arm.label), int(100 * arm.spread)])
        skill = arm.skill + 0.4 * context
        evaluation(arm.label, skill + 0.05 * rng.normal(), arm.spread, arm.samples, seed).save(folder / "eval.json")
        if arm.kind == "trained":
            _write_training(folder, arm, skill, rng)
        if arm.samples > 1:
            (folder / "traces.json").write_text(json.dumps(traces(arm, rng)))
        folders.append(name)
    return {"label": arm.label, "kind": arm.kind, "folders": folders, "seeds": numbers, "fields": dict(arm.fields)}


def evaluation(label: str, skill: float, spread: float, samples: int, seed: int) -> EvalResult:
    """Problems of all difficulties, each with up to five right solutions among which a policy spreads."""
    problems = np.random.default_rng(7)
    rng = np.random.default_rng([seed, int(1000 * (skill + 5)), int(1000 * spread)])
    records = []
    for number in range(PROBLEMS):
        difficulty, solutions = problems.normal(0.3, 1.3), int(problems.integers(1, 6))
        share = problems.dirichlet(np.ones(solutions)) ** (1 / max(spread, 0.05))
        right = rng.random(samples) < 1 / (1 + np.exp(difficulty - skill))
        unparsed = ~right & (rng.random(samples) < 0.05)
        chosen = rng.choice(solutions, size=samples, p=share / share.sum())
        wrong = rng.geometric(1 - 0.5 * spread, size=samples)
        records.append(
            ProblemSamples(
                id=f"countdown/{number:03d}",
                statuses=tuple(
                    "right" if r else "unparsed" if u else "wrong" for r, u in zip(right, unparsed, strict=True)
                ),
                answer_keys=tuple(
                    "24" if r else None if u else str(24 + w) for r, u, w in zip(right, unparsed, wrong, strict=True)
                ),
                solution_keys=tuple(f"s{c}" if r else None for r, c in zip(right, chosen, strict=True)),
                texts=tuple(int(100 * r + c) for r, c in zip(right, chosen, strict=True)),
                tokens=(12,) * samples,
            )
        )  # fmt: skip
    return EvalResult(
        policy=label, task="countdown", split="test", seed=seed, samples=samples,
        k=(1,) if samples == 1 else (1, 4, 16), decoding={"steps": 12, "temperature": 0.0 if samples == 1 else 1.0},
        problems=tuple(records),
        examples=(Example(problem="countdown/000", prompt="3 5 2 24", completion=NASTY, status="wrong"),),
    )  # fmt: skip


def _write_training(folder: Path, arm: MadeUp, skill: float, rng: np.random.Generator) -> None:
    """Logs of a run that approaches its skill."""
    start, end = arm.fields.get("risk.schedule.start", 1), arm.fields.get("risk.schedule.end", 0)
    if arm.fields.get("risk.scale") == 0:
        start = end = 0
    coefficient, rate = start + (end - start) * np.arange(5) / 4, (np.arange(5) + 0.5) / 5
    scale = np.exp(1.3 * np.outer(0.5 - rate, coefficient))
    base = np.outer([0.2, 0.25, 0.25, 0.2, 0.1], [0.25, 0.2, 0.18, 0.17, 0.2]) * scale
    metrics = []
    for update in range(1, UPDATES + 1):
        grown = 1 - np.exp(-update / 20)
        reward = 1 / (1 + np.exp(0.3 - (-0.7 + (skill + 0.7) * grown))) + 0.03 * rng.normal()
        grid = scale + 0.01 * rng.normal(size=(5, 5))
        mass = base / base.sum()
        metrics.append(
            {
                "update": update, "reward/mean": reward, "entropy": 0.4 - (0.25 - 0.15 * arm.spread) * grown,
                "completions/tokens": 12.0, "tokens/scored": 2800 + 100 * rng.normal(), "forwards": 7,
                "rollout/steps": 12.0, "groups/dead": 0.12, "seconds/rollout": 0.3, "seconds/update": 0.6,
                "scale_grid": [[None if (r, c) == (4, 4) else grid[r, c] for c in range(5)] for r in range(5)],
                "mass_grid": mass.tolist(),
            }
        )  # fmt: skip
    dev = []
    for update in range(0, UPDATES + 1, 10):
        grown = 1 - np.exp(-update / 20)
        one = 1 / (1 + np.exp(0.3 - (-0.7 + (skill + 0.7) * grown))) + 0.008 * rng.normal()
        kept = 1 - (1 - arm.spread) * grown
        dev.append(
            {
                "update": update, "pass@1": one, "pass@4": min(1, one + 0.3 * kept),
                "pass@16": min(1, one + 0.45 * kept + 0.1) + 0.01 * rng.normal(),
                "distinct_right@16": 1 + 1.6 * kept + 0.3 * one + 0.03 * rng.normal(),
            }
        )  # fmt: skip
    _lines(folder / "metrics.jsonl", metrics)
    _lines(folder / "dev.jsonl", dev)
    settings = {
        "name": arm.label,
        "seed": 0,
        "train": {"prompts_per_update": 16, "group_size": 16},
        "risk": dict(arm.fields),
    }
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "result.json").write_text(json.dumps({"status": "finished", "updates": UPDATES}))


def traces(arm: MadeUp, rng: np.random.Generator) -> dict[str, Any]:
    """Twelve problems; the last rollout of the first one is hostile and long."""
    problems = []
    for number in range(12):
        rate = 1 / (1 + np.exp(rng.normal(0.3, 1.0) - arm.skill))
        rollouts = [_rollout(rng, rng.random() < rate) for _ in range(SAMPLES)]
        problems.append(
            {
                "id": f"countdown/{number:03d}", "prompt": "3 5 2 9 24", "answer": "24",
                "pass_rate": sum(r["status"] == "right" for r in rollouts) / SAMPLES, "rollouts": rollouts,
            }
        )  # fmt: skip
    first = problems[0]["rollouts"]
    first[-1] = {**first[-1], "status": "wrong", "answer_key": NASTY, "solution_key": None}
    first[-1]["tokens"] = [NASTY, "x" * 100_000, *first[-1]["tokens"][2:]]
    return {
        "task": "countdown", "policy": arm.label, "label": arm.label, "schedule": "linear(1.313 -> 0)",
        "coordinate": "step", "problems": problems,
    }  # fmt: skip


def _rollout(rng: np.random.Generator, right: bool) -> dict[str, Any]:
    a, b = int(rng.integers(2, 10)), int(rng.integers(2, 6))
    last = 24 if right else 24 + int(rng.geometric(0.4))
    tokens = [str(a), "+", str(b), "=", str(a + b), "\n", str(a + b), "*", "2", "=", str(last), "<eos>"]
    order = np.concatenate([4 * block + rng.permutation(4) for block in range(3)])
    step = np.empty(12, dtype=int)
    step[order] = np.arange(12)
    sign = 0.6 if right else -0.4
    return {
        "tokens": tokens, "unmask_step": step.tolist(), "progress": np.round(step / 11, 4).tolist(),
        "advantage": np.round(sign * (1.4 - 0.7 * step / 11), 4).tolist(),
        "entropy": np.round(rng.exponential(0.4, 12), 4).tolist(),
        "status": "right" if right else "wrong", "answer_key": str(last),
        "solution_key": f"({a} + {b}) * 2" if right else None,
    }  # fmt: skip


def _lines(file: Path, records: Sequence[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
