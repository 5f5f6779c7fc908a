"""Every recipe plans on a small random checkpoint of its family, says what it needs, and two of them train."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import published
import pytest
import yaml
from published import LAYOUTS, random_tensors, write_checkpoint
from support import records

from steprs import build
from steprs.build.memory import GIB, ModelSize, estimate
from steprs.config import RunConfig, load_config
from steprs.configs import shipped_configs
from steprs.policies.loading import FAMILIES
from steprs.tasks import get_task
from steprs.tasks.files.gsm8k import Gsm8kTask
from steprs.tasks.files.mathematics import MathTask
from steprs.types import Verdict

RECIPES = {name: path for name, path in shipped_configs().items() if name.startswith("recipes/")}
ROOTS = {"recipes/llada-gsm8k", "recipes/sdar-math"}
TREES = {name: yaml.safe_load(path.read_text()) for name, path in RECIPES.items()}


def family_of(name: str) -> str:
    """Without the model: a recipe of a family that is not there yet cannot be read whole."""
    tree = TREES[name]
    return tree.get("policy", {}).get("family") or family_of("recipes/" + tree["base"].removesuffix(".yaml"))


def there(name: str):  # type: ignore[no-untyped-def]
    missing = family_of(name) not in FAMILIES or family_of(name) not in LAYOUTS
    return pytest.param(name, marks=pytest.mark.skipif(missing, reason=f"no layout of {family_of(name)} yet"))


HERE = [there(name) for name in RECIPES]


def test_there_are_few_and_each_says_what_was_run() -> None:
    assert 8 <= len(RECIPES) <= 10
    for name, path in RECIPES.items():
        text = path.read_text()
        assert "Never run on the real weights" in text, name
        assert f"steprs train {name} policy.path=" in text, name
        assert re.search(r"^# memory: \d+ GiB a process$", text, re.M), name
        assert "ours" in text.lower() or name not in ROOTS, name


def test_recipes_are_differences() -> None:
    """Two roots; the others repeat nothing that their base says."""
    assert {name for name, tree in TREES.items() if "base" not in tree} == ROOTS
    for name, tree in TREES.items():
        if name not in ROOTS:
            base = TREES["recipes/" + tree["base"].removesuffix(".yaml")]
            assert leaves(tree) & leaves(base) == set(), name


def leaves(tree: dict, prefix: str = "") -> set[tuple[str, str]]:  # type: ignore[type-arg]
    found: set[tuple[str, str]] = set()
    for key, value in tree.items():
        found |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {(prefix + key, str(value))}
    return found


# Shapes of the published models: weights, hidden, layers, heads, vocabulary, cached numbers of a token and layer, and
# the (in, out) of the matrices of a layer that adapters sit on.
SHAPES = {
    "llada": (8.02e9, 4096, 32, 32, 126_464, 8192, [(4096, 4096)] * 4 + [(4096, 12_288)] * 3),
    "sdar": (
        4.41e9, 2560, 36, 32, 151_936, 2048,
        [(2560, 4096), (2560, 1024), (2560, 1024), (4096, 2560)] + [(2560, 9728)] * 3,
    ),
    "dream": (
        7.62e9, 3584, 28, 28, 152_064, 1024,
        [(3584, 3584), (3584, 512), (3584, 512), (3584, 3584)] + [(3584, 18_944)] * 3,
    ),
}  # fmt: skip
PROMPT = 300


@pytest.mark.parametrize("name", [name for name in RECIPES if family_of(name) in SHAPES])
def test_the_memory_it_states_is_the_estimate_for_the_published_shape(name: str) -> None:
    config = load_config(RECIPES[name], model=RunConfig)
    weights, hidden, layers, heads, vocabulary, cached, matrices = SHAPES[family_of(name)]
    lora = config.policy.lora
    trained = weights if lora is None else layers * sum(lora.rank * (a + b) for a, b in matrices)
    size = ModelSize(
        weights=int(weights), trained=int(trained),
        weight_bytes=4 * weights if lora is None else 2 * weights + 4 * trained,
        hidden=hidden, layers=layers, heads=heads, vocabulary=vocabulary, cached=cached,
        compute_bytes=2, scores_kept=False,
    )  # fmt: skip
    blocks = family_of(name) == "sdar"
    length = config.sampler.length
    assert length is not None
    memory = estimate(
        config,
        size,
        prompt=PROMPT,
        row=PROMPT + length * (1 + blocks),
        cached=blocks,
        reference=lora is None and config.loss.kl_coef > 0,
    )
    stated = re.search(r"^# memory: (\d+) GiB", RECIPES[name].read_text(), re.M)
    assert stated is not None
    assert int(stated[1]) == round(memory.peak / GIB)


def test_memory_by_hand() -> None:
    """10 weights, all trained, one layer of width 2, and a budget of 8 tokens in rows of 4."""
    config = load_config(
        {
            "sampler": {"length": 2, "steps": 2, "block_size": 2, "max_rows": 3},
            "train": {"token_budget": 8, "prompts_per_update": 2, "group_size": 2},
            "loss": {"kl_coef": 0.1},
        },
        model=RunConfig,
    )
    size = ModelSize(
        weights=10, trained=10, weight_bytes=40, hidden=2, layers=1, heads=1, vocabulary=5, cached=4, compute_bytes=4,
        scores_kept=True,
    )  # fmt: skip
    memory = estimate(config, size, prompt=2, row=4, cached=False, reference=True)
    assert (memory.weights, memory.optimiser, memory.reference) == (40, 120, 40)
    # 34 numbers a unit of width, scores and probabilities of 4 positions, all in 4 bytes; a byte a pair for the mask.
    assert memory.activations == 8 * (34 * 2 * 4 + 2 * 4 * 1 * 4) + 8 * 4
    assert memory.logits == 3 * 4 * 8 * 5
    # 3 rows of 4 positions, 12 numbers a unit of width; logits of 3 rows x 2 positions x 5 words, twice in 4 bytes.
    assert memory.rollout == 3 * 4 * 2 * 12 * 4 + 3 * 2 * 5 * 8
    assert memory.peak == 200 + max(memory.activations + memory.logits, memory.rollout)
    blocks = estimate(config, size, prompt=2, row=4, cached=True, reference=True)
    assert blocks.rollout == 3 * 4 * 4 * 4 + 3 * 2 * 2 * 12 * 4 + 3 * 2 * 5 * 8


# ---- on small random checkpoints ---------------------------------------------------------------------------------


def rows_of(task: str) -> list[dict]:  # type: ignore[type-arg]
    rng = random.Random(0)
    if task == "sudoku-file":
        found = get_task("sudoku4", size=200)
        problems = [p for split in ("train", "dev", "test") for p in found.problems(split)]  # type: ignore[arg-type]
        return [
            {"Puzzle": p.prompt.replace(" ", "").replace(".", "0"), "Solution": p.answer.replace(" ", "")}
            for p in problems
        ]
    if task == "countdown-file":
        return [{"nums": [a, a + 1, a + 3], "target": 3 * a + 4} for a in range(2, 80)]
    rows = []
    for _ in range(80):
        a, b = rng.randint(2, 20), rng.randint(2, 20)
        question = f"What is {a} plus {b} ?"
        answer = {"answer": f"{a} + {b} = {a + b}\n#### {a + b}"} if task == "gsm8k" else {"answer": str(a + b)}
        rows.append({"question": question, **answer})
    return rows


def prepared(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Rows of one's own and a random checkpoint whose tokenizer knows their words, as overrides."""
    task = load_config(RECIPES[name], model=RunConfig).task
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows_of(task.name)))
    given = {"hub": None, "hub_subset": None, "train_file": str(file), "test_file": None}
    words = ["<|im_start|>", "<|im_end|>", *get_task(task.name, **{**task.options, **given}).vocabulary()]
    monkeypatch.setattr(published, "words", lambda: words)
    layout = LAYOUTS[family_of(name)]
    write_checkpoint(folder / "policy", family_of(name), tensors=random_tensors(layout, rows=len(words) + 8))
    return [
        f"policy.path={folder / 'policy'}", f"task.options.train_file={file}", "task.options.test_file=null",
        f"task.max_prompt_tokens={2048}",
    ]  # fmt: skip


@pytest.mark.parametrize("name", HERE)
def test_a_recipe_plans(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = prepared(name, tmp_path, monkeypatch)
    config = load_config(RECIPES[name], mine, model=RunConfig)
    plan = build.plan_text(config)
    said = (config.sampler.steps or r"\d+", config.sampler.block_size or r"\d+")  # what is null is the checkpoint's
    assert re.search(rf"{config.sampler.length} tokens in {said[0]} steps, block {said[1]},", plan)
    assert f"rows        {tmp_path / 'rows.jsonl'} (" in plan
    assert "dev and test cut from train" in plan
    assert re.search(
        r"memory +about [\d.]+ [GM]iB a process at its peak\n +weights .*optimiser .*activations .*logits", plan
    )
    assert "loss ppo-clip, token-mean" in plan and f"{config.train.updates} updates" in plan


def parity(self, problem, completion):  # type: ignore[no-untyped-def]
    """Random text is right half of the time, so that random weights have something to learn from."""
    right = sum(map(ord, completion)) % 2 == 0
    return Verdict(reward=float(right), status="right" if right else "wrong", answer_key=completion)


SMALL = (
    "train.updates=2", "train.prompts_per_update=2", "train.group_size=4", "train.eval_every=0", "risk.scale=1.5",
    "sampler.length=16", "train.learning_rate=0.01", "policy.dtype=float32",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "task", "more"),
    [
        ("recipes/llada-gsm8k", Gsm8kTask, ["sampler.steps=8", "sampler.block_size=8", "loss.inner_updates=2"]),
        ("recipes/sdar-math", MathTask, ["sampler.steps=16"]),
    ],
)
def test_two_updates(name: str, task: type, more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = prepared(name, tmp_path, monkeypatch)
    monkeypatch.setattr(task, "score", parity)
    monkeypatch.setattr(task, "gold_fault", lambda self, item: None)
    config = load_config(RECIPES[name], [*mine, *SMALL, *more], model=RunConfig)
    run = build.train(config, output=tmp_path / "run")
    written = records(run)
    assert [record["skipped"] for record in written] == [0.0, 0.0]
    assert all(record["grad_norm"] > 0 for record in written)
    assert written[1]["kl/mean"] != 0.0, "the reference stayed where the run began"
    kept = json.loads((run / "rows.json").read_text())
    assert (
        kept["rows"] == {str(tmp_path / "rows.jsonl"): 80}
        and sum(kept["used"].values()) == 80 - kept["counts"]["duplicate"]
    )
