"""Masked-diffusion cross-entropy on a task's written solutions: a tiny policy from nothing, or another one adapted.

Every block of a solution is seen through noise: a uniform number of its positions is masked, and the masked tokens
are predicted. Block-causal copies share a row with the clean sequence they are conditioned on, so that one row
teaches every block; a bidirectional policy has one block, the completion.
"""

from __future__ import annotations

import dataclasses
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..errors import ConfigError, NonFiniteError, TaskError
from ..policies.attention import full_mask, packed_mask
from ..policies.base import Policy, count_before
from ..policies.tiny import create_tiny, initialise_numbers
from ..progress import track
from ..rollout.collect import encode_prompts
from ..tasks import AbstractTask
from ..types import Problem
from .muon import Float32Muon

LOG = "pretrain_log.jsonl"
RECIPE = "pretrain.yaml"


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainSettings:
    """Architecture and optimisation: everything besides the task that decides the weights.

    Attributes:
        seed: of weights, problems, solutions and noise.
        attention, hidden_size, intermediate_size, layers, heads, kv_heads: see `create_tiny`.
        block_size: None is the task's written step, or the whole completion when the policy is bidirectional.
        batch_size: solutions an update.
        copies: noisy copies of every block of a solution.
        updates: optimiser steps; the rate is constant and falls to 0 over the last half.
        max_minutes: stop there, wherever the rate stands (the log says so).
        learning_rate: AdamW, for embeddings, head and norms.
        muon_learning_rate: Muon, for the matrices between them; None leaves these to AdamW, too.
        weight_decay: of both.
        warmup_updates: linear rise of both rates.
        length: completion tokens; None is the task's number of words, which is enough where a word is a token.
    """

    seed: int
    attention: Literal["block_causal", "bidirectional"]
    block_size: int | None
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int | None
    batch_size: int
    copies: int
    updates: int
    max_minutes: float
    learning_rate: float
    muon_learning_rate: float | None
    weight_decay: float
    warmup_updates: int
    length: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Solutions:
    """A batch of solved problems as ids.

    Attributes:
        prompt_ids_BC: int64, left-padded.
        prompt_mask_BC: bool, true on real tokens.
        completion_ids_BL: int64, filled up with end tokens.
    """

    prompt_ids_BC: Tensor
    prompt_mask_BC: Tensor
    completion_ids_BL: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class NoisyRows:
    """A model input and what it should say at the masked positions (in row-major order)."""

    ids_RT: Tensor
    mask_R1TT: Tensor
    position_ids_RT: Tensor
    select_RT: Tensor
    targets_N: Tensor

    def to(self, device: torch.device) -> NoisyRows:
        """The same rows on another device."""
        return NoisyRows(**{field.name: getattr(self, field.name).to(device) for field in dataclasses.fields(self)})


def pretrain(
    settings: PretrainSettings, task: AbstractTask, folder: str | Path, *, recipe: str, policy: Policy | None = None
) -> Path:
    """Train a policy on the task's training problems and save it.

    Args:
        settings: see `PretrainSettings`.
        task: problems of its "train" split only are seen.
        folder: becomes a checkpoint folder, with the log of the training in `pretrain_log.jsonl`.
        recipe: the configuration as text, kept in `pretrain.yaml` so that the folder says how to make it again.
        policy: adapted in place; None makes a tiny one from nothing.

    Returns:
        The folder.

    Raises:
        ConfigError: blocks do not divide the completion, or are counted from the first token of the prompt.
        TaskError: a written solution is longer than the task's completions.
        NonFiniteError: the loss is not a number; names the update.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    policy = new_policy(settings, task) if policy is None else _for_task(policy, settings, task)
    records = list(train(policy, settings, task, show=True))
    policy.save(path)
    (path / RECIPE).write_text(recipe, encoding="utf-8")
    text = "".join(json.dumps(record) + "\n" for record in records)
    (path / LOG).write_text(text, encoding="utf-8")
    return path


def new_policy(settings: PretrainSettings, task: AbstractTask) -> Policy:
    """Random weights, number words at their Fourier features, and the decoding that the training is for."""
    length = task.completion_length
    if settings.length not in (None, length):
        raise ConfigError(
            f"length is {settings.length}, but a new policy's tokens are the task's words, {length} for {task.name}; "
            "leave it out (it is for policies that are adapted)"
        )
    block_size = settings.block_size or (length if settings.attention == "bidirectional" else task.block_size)
    if length % block_size:
        raise ConfigError(
            f"block_size {block_size} does not divide the {length} tokens of {task.name}; allowed: "
            f"{', '.join(str(size) for size in range(1, length + 1) if length % size == 0)}"
        )
    decoding = {"length": length, "steps": length, "block_size": block_size, "task": task.name}
    policy = create_tiny(
        task.vocabulary(),
        seed=settings.seed,
        attention=settings.attention,
        block_size=block_size,
        hidden_size=settings.hidden_size,
        intermediate_size=settings.intermediate_size,
        layers=settings.layers,
        heads=settings.heads,
        kv_heads=settings.kv_heads,
        decoding_defaults=decoding,
    )
    numbers = {word: int(word) for word in task.vocabulary() if word.isascii() and word.isdigit()}
    if len(numbers) > 1:
        initialise_numbers(policy, values=numbers)
    return policy


def train(
    policy: Policy, settings: PretrainSettings, task: AbstractTask, *, show: bool = False
) -> Iterator[dict[str, Any]]:
    """Train in place; yields a log record now and then and one at the end."""
    optimisers = _optimisers(policy, settings)
    generator = torch.Generator().manual_seed(settings.seed)
    started, seen, since = time.monotonic(), 0, 0.0
    every = max(1, min(100, settings.updates // 10))
    policy.train(True)
    with track("pretraining", settings.updates, show=show) as bar:
        for update, batch in enumerate(draw_solutions(policy, settings, task), start=1):
            factor = rate_factor(update, settings.updates, settings.warmup_updates)
            for optimiser, rate in optimisers:
                for group in optimiser.param_groups:
                    group["lr"] = rate * factor
            loss = masked_cross_entropy(policy, noisy_rows(policy, batch, settings.copies, generator))
            if not torch.isfinite(loss):
                raise NonFiniteError(
                    f"pretraining update {update}: the loss is {loss.item()}; lower the learning rates"
                )
            loss.backward()
            for optimiser, _ in optimisers:
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
            since, seen = since + loss.item(), seen + 1
            minutes = (time.monotonic() - started) / 60.0
            last = update == settings.updates or minutes >= settings.max_minutes
            bar.advance(1, f"loss {loss.item():.3f}")
            if last or update % every == 0:
                yield {"update": update, "loss": since / seen, "minutes": round(minutes, 3), "of": settings.updates}
                since, seen = 0.0, 0
            if last:
                break
    policy.train(False)


def masked_cross_entropy(policy: Policy, rows: NoisyRows) -> Tensor:
    """Mean of -log p(token) over the masked positions."""
    rows = rows.to(policy.device)
    logits_NV = policy.logits(
        rows.ids_RT, attention_mask=rows.mask_R1TT, position_ids=rows.position_ids_RT, select_BT=rows.select_RT
    )
    return nn.functional.cross_entropy(logits_NV, rows.targets_N)


def noisy_rows(policy: Policy, batch: Solutions, copies: int, generator: torch.Generator) -> NoisyRows:
    """Put every block behind noise, `copies` times.

    Block-causal: one row [prompt | clean blocks but the last | noisy completion, ...] a solution. Bidirectional:
    one row [prompt | noisy completion] a copy.
    """
    if policy.attention == "bidirectional":
        batch = Solutions(**{f.name: getattr(batch, f.name).repeat(copies, 1) for f in dataclasses.fields(batch)})
        copies = 1
    clean_BL = batch.completion_ids_BL
    rows, length = clean_BL.shape
    context = batch.prompt_ids_BC.shape[1]
    targets_BM = clean_BL.repeat(1, copies)
    masked_BM = mask_positions(rows, targets_BM.shape[1], policy.block_size or length, generator)
    noisy_BM = targets_BM.masked_fill(masked_BM, policy.mask_token_id)

    block_BT = policy.block_layout(batch.prompt_mask_BC, length)
    valid_BT = torch.cat((batch.prompt_mask_BC, torch.ones_like(clean_BL, dtype=torch.bool)), dim=1)
    position_BT = count_before(valid_BT)
    front_ids_BF, front = batch.prompt_ids_BC, context
    if policy.attention == "block_causal":
        front = context + length - (policy.block_size or length)
        front_ids_BF = torch.cat((batch.prompt_ids_BC, clean_BL), dim=1)[:, :front]

    def beside(front_BT: Tensor) -> Tensor:
        """Values of the front, then the completion's, once a copy."""
        return torch.cat((front_BT[:, :front], *[front_BT[:, context:]] * copies), dim=1)

    mask_B1TT = full_mask(beside(valid_BT))
    if policy.attention == "block_causal":
        copy_M = 1 + torch.arange(copies).repeat_interleave(length)
        stream_BT = torch.cat((torch.zeros(rows, front, dtype=torch.int64), copy_M.expand(rows, -1)), dim=1)
        mask_B1TT = packed_mask(beside(block_BT), stream_BT, beside(valid_BT))
    return NoisyRows(
        ids_RT=torch.cat((front_ids_BF, noisy_BM), dim=1),
        mask_R1TT=mask_B1TT,
        position_ids_RT=beside(position_BT),
        select_RT=torch.cat((torch.zeros(rows, front, dtype=torch.bool), masked_BM), dim=1),
        targets_N=targets_BM[masked_BM],
    )


def mask_positions(rows: int, length: int, block_size: int, generator: torch.Generator) -> Tensor:
    """Bool [rows, length]: in every block, a uniform number (at least one) of uniformly chosen positions."""
    blocks = length // block_size
    count_RK1 = torch.randint(1, block_size + 1, (rows, blocks, 1), generator=generator)
    order_RKS = torch.rand(rows, blocks, block_size, generator=generator).argsort(dim=-1).argsort(dim=-1)
    return (order_RKS < count_RK1).reshape(rows, length)


def draw_solutions(policy: Policy, settings: PretrainSettings, task: AbstractTask) -> Iterator[Solutions]:
    """Endless batches: problems in a new random order every pass, each with a random solution."""
    problems = task.problems("train")
    rng = random.Random(settings.seed)
    order: list[int] = []
    while True:
        while len(order) < settings.batch_size:
            order += rng.sample(range(len(problems)), len(problems))
        chosen, order = order[: settings.batch_size], order[settings.batch_size :]
        batch = [problems[index] for index in chosen]
        texts = [task.solution(problem, rng) for problem in batch]
        length = settings.length or task.completion_length
        completion_BL = _encode_completions(policy, task, length, texts, batch)
        # As wide as the batch's own longest prompt: one long prompt of a file must not widen every batch.
        prompts = encode_prompts(policy, batch, max_prompt_tokens=sys.maxsize)
        yield Solutions(
            prompt_ids_BC=prompts.ids_PC.cpu(),
            prompt_mask_BC=prompts.mask_PC.cpu(),
            completion_ids_BL=completion_BL,
        )


def _encode_completions(
    policy: Policy, task: AbstractTask, length: int, texts: list[str], problems: Sequence[Problem]
) -> Tensor:
    """Ids [B, L], filled up with end tokens where the text ends early."""
    rows = policy.tokenizer(texts, add_special_tokens=False)["input_ids"]
    # Words are tokens for the embedded policies alone; with others only the length asked for is known.
    may_end = task.ends_with_eos or length != task.completion_length
    for ids, text, problem in zip(rows, texts, problems, strict=True):
        if len(ids) > length or (len(ids) < length and not may_end):
            raise TaskError(
                f"{problem.id}: the solution {text!r} has {len(ids)} tokens, completions have {length}; set `length`"
            )
    return torch.tensor([ids + [policy.eos_token_id] * (length - len(ids)) for ids in rows])


def _for_task(policy: Policy, settings: PretrainSettings, task: AbstractTask) -> Policy:
    """An existing policy that remembers the decoding it is adapted for."""
    length = settings.length or task.completion_length
    size = policy.block_size or length
    if length % size:
        raise ConfigError(f"the policy's block size {size} does not divide length {length}; set `length`")
    if policy.attention == "block_causal" and policy.prompt_block == "aligned":
        raise ConfigError(
            f"family {policy.family!r} counts blocks from the first token of the prompt; pretraining makes noise in "
            "blocks that begin after it"
        )
    decoding = {"length": length, "steps": length, "block_size": size, "task": task.name}
    return dataclasses.replace(policy, decoding_defaults=decoding)


def _optimisers(policy: Policy, settings: PretrainSettings) -> list[tuple[torch.optim.AdamW | Float32Muon, float]]:
    """With their rates: AdamW for what is looked up, read out or scaled; Muon, if wanted, for the matrices between."""
    if settings.muon_learning_rate is None:
        adamw = torch.optim.AdamW(policy.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=settings.weight_decay)
        return [(adamw, settings.learning_rate)]
    matrices = [weight for name, weight in policy.named_parameters() if weight.ndim == 2 and ".layers." in name]
    taken = {id(weight) for weight in matrices}
    others = [weight for weight in policy.parameters() if id(weight) not in taken]
    adamw = torch.optim.AdamW(others, lr=0.0, betas=(0.9, 0.95), weight_decay=settings.weight_decay)
    muon = Float32Muon(matrices, lr=0.0, weight_decay=settings.weight_decay)
    return [(adamw, settings.learning_rate), (muon, settings.muon_learning_rate)]


def rate_factor(update: int, updates: int, warmup: int) -> float:
    """Linear rise, constant, and linear fall to 0 over the last half.

    >>> [rate_factor(u, 8, 2) for u in (1, 2, 4, 6, 8)]
    [0.5, 1.0, 1.0, 0.75, 0.25]
    """
    rise = update / max(warmup, 1)
    fall = 2.0 * (updates - update + 1) / (updates + (updates % 2))
    return min(1.0, rise, fall)
