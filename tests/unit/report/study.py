"""A made-up study whose numbers are known by construction."""

from __future__ import annotations

import json
from pathlib import Path

from steprs.evaluation.records import Example, ProblemSamples
from steprs.evaluation.result import EvalResult

ARMS = {
    "base": ("base", 0.3, 0),
    "base, greedy": ("base-greedy", 0.4, 0),
    "centred GRPO": ("centred", 0.45, 20),
    "StepRS decreasing": ("decreasing", 0.5, 20),
}
NASTY = "<script>alert(1)</script> | `x` \x1b[31m **bold** \u202e"


def evaluation(label: str, rate: float, samples: int, problems: int = 40) -> EvalResult:
    """Problem q has round(samples * rate * 2q / problems) right samples; two derivations, three wrong answers."""
    records = []
    for q in range(problems):
        right = min(samples, round(samples * rate * 2 * q / problems))
        wrong = samples - right
        records.append(
            ProblemSamples(
                id=f"toy/{q}",
                statuses=("right",) * right + ("wrong",) * wrong,
                answer_keys=("24",) * right + tuple(f"w{i % 3}" for i in range(wrong)),
                solution_keys=tuple(f"s{i % 2}" for i in range(right)) + (None,) * wrong,
                texts=tuple(range(samples)),
                tokens=(12,) * samples,
            )
        )
    return EvalResult(
        policy=label,
        task="toy",
        split="test",
        seed=0,
        samples=samples,
        k=(1,) if samples == 1 else (1, 4, 16),
        decoding={"steps": 12, "temperature": 1.0},
        problems=tuple(records),
        examples=(Example(problem="toy/0", prompt="1 2 3 4 24", completion=NASTY, status="wrong"),),
    )


def make_study(root: Path) -> Path:
    """A folder as `steprs demo` leaves it, with four arms of which two were trained."""
    for label, (folder, rate, updates) in ARMS.items():
        evaluation(label, rate, 1 if "greedy" in label else 16).save(root / folder / "eval.json")
        if updates:
            write_run(root / folder, updates, slope=rate / updates)
    manifest = {
        "title": "A made-up study",
        "baseline": "centred GRPO",
        "notes": ["Nothing here was trained."],
        "arms": [{"label": label, "folders": [folder]} for label, (folder, _, _) in ARMS.items()],
    }
    (root / "manifest.json").write_text(json.dumps(manifest))
    return root


def write_run(folder: Path, updates: int, slope: float) -> None:
    """A run's files: reward `slope * update`, and a scale grid that is 1 + row in even and empty in odd updates."""
    metrics = []
    for update in range(1, updates + 1):
        scale = [[1.0 + row / 4 if update % 2 == 0 else None for _ in range(5)] for row in range(5)]
        scale[0][0] = None
        mass = [[0.04] * 5 for _ in range(5)]
        metrics.append({"update": update, "reward/mean": slope * update, "scale_grid": scale, "mass_grid": mass})
    dev = [{"update": update, "pass@1": slope * update} for update in range(0, updates + 1, 10)]
    torn = '{"update": 21, "re'
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in metrics) + torn)
    (folder / "dev.jsonl").write_text("".join(json.dumps(record) + "\n" for record in dev))
    (folder / "config.json").write_text(json.dumps({"name": folder.name}))
    outcome = {"updates": updates, "grid_pass_rate_edges": [0, 0.2, 0.4, 0.6, 0.8, 1], "status": "finished"}
    (folder / "result.json").write_text(json.dumps(outcome))
