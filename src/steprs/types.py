"""The records that flow between the layers. Nothing here computes anything.

Axis letters, used in every tensor name of the project:

| letter | axis |
|---|---|
| `P` | prompts of an update |
| `G` | rollouts of one prompt (the group) |
| `B` | rollouts, `B = P * G`; row `p * G + g` is rollout `g` of prompt `p` |
| `C` | prompt (context) positions, left-padded |
| `L` | completion positions |
| `S` | denoising states of a rollout |
| `K` | entries of a stored support |
| `N` | scored tokens, flat |
| `R`, `T` | rows and positions of a packed model input |
| `V` | vocabulary |

"Step" is a denoising step; the optimiser makes "updates".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

Status = Literal["right", "wrong", "unparsed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One task instance.

    Attributes:
        id: Canonical and unique over all splits: two problems are the same iff their ids are.
        prompt: The text the model sees, before any chat template.
        answer: The gold answer in the task's own form.
        metadata: What the task's verifier needs besides the answer (plain JSON values).
    """

    id: str
    prompt: str
    answer: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a verifier says about one completion.

    Attributes:
        reward: The number the trainer sees. NaN or None is refused downstream, with the problem's id.
        status: "unparsed" is a kind of its own, never one of the distinct answers.
        answer_key: Canonical final answer (the value reached), None when unparsed.
        solution_key: Canonical derivation, for tasks with several right solutions.
    """

    reward: float
    status: Status
    answer_key: str | None = None
    solution_key: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rewards:
    """Verdicts of P groups of G rollouts.

    Attributes:
        rewards_PG: float64 [P, G]; 0 where `valid_PG` is false.
        valid_PG: bool [P, G]; false for a sample masked because its verifier gave no finite number.
        verdicts: B verdicts in row order.
        binary: the task declares two-valued rewards (the exact rescaling theorem then holds).
    """

    rewards_PG: Tensor
    valid_PG: Tensor
    verdicts: tuple[Verdict, ...]
    binary: bool

    def to(self, device: torch.device | str) -> Rewards:
        """The same rewards on another device: verifiers run on the CPU, advantages where the rollouts are."""
        return dataclasses.replace(self, rewards_PG=self.rewards_PG.to(device), valid_PG=self.valid_PG.to(device))


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoding:
    """How a rollout was decoded; the part of a sampler that scoring and evaluation must know.

    Attributes:
        kind: "masked" (full attention), "block" (block-causal with prefix cache) or "revise" (random canvases whose
            tokens are drawn again and again).
        length: L, completion positions.
        steps: denoising steps over the whole completion; an upper bound for dynamic rules.
        block_size: positions decoded together; `length` for whole-sequence decoding.
        temperature: 0 is argmax; scoring then uses temperature 1.
        top_p, top_k: truncation; 1.0 and 0 switch it off.
        unmasking: the rule that chooses which positions to reveal.
        threshold: the number that `confidence_threshold` and `entropy_bound` need.
        final_temperature: "revise" only: the temperature falls in a straight line from `temperature` towards it,
            canvas by canvas (`step_temperatures`); None = it stays.
        stop_entropy: "revise" only: a canvas is finished as soon as its likeliest tokens are those of the step before
            and its mean entropy (nats) is below this; None = every canvas takes all its steps.
    """

    kind: Literal["masked", "block", "revise"]
    length: int
    steps: int
    block_size: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    unmasking: str = "low_confidence"
    threshold: float | None = None
    final_temperature: float | None = None
    stop_entropy: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Revisions:
    """The events of rollouts that fixed tokens and revised them, B rollouts of at most S steps on canvases of W.

    In a step some positions of the canvas are fixed, with a token drawn in that step; the others become noise again,
    also those that an earlier step had fixed. Which tokens were drawn says the canvas of the next step, and of a
    canvas's last step, which fixes everything, the completion.

    A state is what was shown and what it was conditioned on. The canvases are kept of all steps, the conditioning (W
    mean embeddings, large) of the K steps of a row that last fixed some token of it: those are scored.

    Attributes:
        canvas_BSW: int32, what the policy was shown in each step, noise included; -1 in steps a row did not take.
        fixed_BSW: bool, the positions that the step fixed.
        first_step_BN: int64, the step with which the row's n-th canvas began; -1 if it did not.
        kept_step_BK: int64, the steps whose conditioning is kept, ascending; -1 where a row has fewer.
        conditioning_BKWH: mean embeddings, in the format of the weights; H is the width of the model.
    """

    canvas_BSW: Tensor
    fixed_BSW: Tensor
    first_step_BN: Tensor
    kept_step_BK: Tensor
    conditioning_BKWH: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectory:
    """B rollouts, recorded so that every denoising state can be rebuilt.

    Position l is masked in state s iff `unmask_step_BL[b, l] == -1` or `unmask_step_BL[b, l] >= s`; of rollouts with
    `revisions`, that record says what state s showed.

    Attributes:
        prompt_ids_BC: int64, left-padded.
        prompt_mask_BC: bool, true on real tokens.
        completion_ids_BL: int64 final ids; never the mask token (unrevealed positions hold the pad token).
        unmask_step_BL: int64, 0-based step that revealed the position, numbered over the whole completion
            (the field's `step_map`); -1 = never revealed. With `revisions`, the step that last fixed it: the first of
            those in a row, up to its canvas's last, that all fixed this token here.
        block_index_BL: int64, decoding block of the position (0 when the whole sequence is one block).
        completion_mask_BL: bool, revealed and up to and including the first end token.
        sampling_logprobs_BL: float32 log-probability of the token under the distribution it was sampled
            from, 0 where never revealed.
        entropies_BL: float32 entropy (nats) of that distribution, 0 where never revealed.
        num_steps_B: int64, denoising steps the row took.
        support_ids_BLK: int64 ids the truncated distribution could give, padded with -1; None when
            nothing is truncated. Always holds the sampled token.
        predictions_BSL: int32 greedy completion of each state: what was revealed, and the likeliest token
            everywhere else; -1 in states that the row did not have. None unless the sampler was asked for it.
        group_size: G; rows p*G .. p*G+G-1 share a prompt.
        selection_exact: the unmasking rule looks at logits only, so E[grad log pi(revealed)] = 0.
        steps_fixed: the number of states is known before the rollout.
        revisions: what else is needed to rebuild the states of rollouts that revise tokens; None for all others.
    """

    prompt_ids_BC: Tensor
    prompt_mask_BC: Tensor
    completion_ids_BL: Tensor
    unmask_step_BL: Tensor
    block_index_BL: Tensor
    completion_mask_BL: Tensor
    sampling_logprobs_BL: Tensor
    entropies_BL: Tensor
    num_steps_B: Tensor
    mask_token_id: int
    decoding: Decoding
    group_size: int
    selection_exact: bool
    steps_fixed: bool
    support_ids_BLK: Tensor | None = None
    predictions_BSL: Tensor | None = None
    revisions: Revisions | None = None

    def rows(self, index: Tensor) -> Trajectory:
        """The rollouts at `index` (int64 or bool); `group_size` is kept only if the caller keeps groups whole."""
        return self._map(lambda tensor: tensor[index])

    def to(self, device: torch.device | str) -> Trajectory:
        """The same rollouts on another device."""
        return self._map(lambda tensor: tensor.to(device))

    def _map(self, function: Any) -> Trajectory:
        changed = _mapped(self, function)
        if self.revisions is not None:
            changed["revisions"] = dataclasses.replace(self.revisions, **_mapped(self.revisions, function))
        return dataclasses.replace(self, **changed)


def _mapped(record: Trajectory | Revisions, function: Any) -> dict[str, Any]:
    """The record's tensors, each through the function."""
    values = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    return {name: function(value) for name, value in values.items() if isinstance(value, Tensor)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Advantages:
    """What the trainer gets; it never learns which schedule made it.

    Attributes:
        values_PGL: [P, G, L] (or [B, L] from the flat form), detached, 0 outside the mask.
        risk_coef_PGL: the coefficient each token was treated with, same shape.
        metrics: plain floats (`rms_scale`, `cap_hits`, `binary_exact`, ...).
    """

    values_PGL: Tensor
    risk_coef_PGL: Tensor
    metrics: Mapping[str, float]
