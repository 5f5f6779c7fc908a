"""Checks that every policy passes, shipped or yours."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from ..policies.attention import block_causal_mask
from ..policies.base import Policy
from ..policies.canvas_states import canvas_behind


def check_policy(policy: Policy, *, context: int = 5, length: int = 8, tolerance: float = 1e-5) -> None:
    """Check what samplers, scoring and training rely on, on random ids.

    - special tokens exist and are distinct from one another where they must be (the mask is no other token);
    - logits are finite, float32, one row a position, and selected rows are rows of the whole;
    - left padding changes no log-probability;
    - a block-causal policy leaks nothing backwards, and its prefix cache equals no cache;
    - so does a canvas policy, each of whose canvases reads the same alone behind the encoded text before it;
    - a bidirectional policy sees behind and before.

    Args:
        policy: is left in evaluation mode.
        context: prompt tokens of the inputs made up here.
        length: completion tokens; more are taken where the last block would not be whole.
        tolerance: of log-probabilities computed in two ways, in nats (relative where they are beyond one nat).

    Raises:
        AssertionError: says which promise is broken and by how much.
    """
    policy.train(False)
    end = context + length if policy.prompt_block == "aligned" else length
    length += -end % (policy.block_size or 1)
    with torch.no_grad():
        _check_tokens(policy)
        ids_BT, valid_BT, block_BT = _random_rows(policy, context, length)
        logps_BTV = policy.logits(ids_BT, block_BT=block_BT).log_softmax(-1)
        _check_rows(policy, ids_BT, block_BT, logps_BTV, tolerance)
        _check_padding(policy, ids_BT, valid_BT, context, length, logps_BTV, tolerance)
        if policy.attention != "bidirectional":
            _check_blocks(policy, ids_BT, block_BT, context, logps_BTV, tolerance)
        else:
            changed = policy.logits(_change(policy, ids_BT, -1), block_BT=block_BT).log_softmax(-1)
            _require(_gap(changed[:, 0], logps_BTV[:, 0]) > 0, "a bidirectional policy's first row sees the last token")


def _check_tokens(policy: Policy) -> None:
    special = {"mask": policy.mask_token_id, "eos": policy.eos_token_id, "pad": policy.pad_token_id}
    for name, token in special.items():
        _require(0 <= token < policy.vocab_size, f"{name}_token_id {token} lies in the vocabulary")
    _require(policy.mask_token_id not in (policy.eos_token_id, policy.pad_token_id), "the mask is a token of its own")
    _require(policy.tokenizer.padding_side == "left", "the tokenizer pads on the left")


def _check_rows(policy: Policy, ids_BT: Tensor, block_BT: Tensor, logps_BTV: Tensor, tolerance: float) -> None:
    _require(logps_BTV.dtype == torch.float32, "logits are float32")
    _require(bool(torch.isfinite(logps_BTV).all()), "logits are finite")
    _require(tuple(logps_BTV.shape) == (*ids_BT.shape, policy.vocab_size), "logits have one row a position")
    select_BT = torch.arange(ids_BT.shape[1], device=ids_BT.device).expand_as(ids_BT) % 3 == 1
    picked_NV = policy.logits(ids_BT, block_BT=block_BT, select_BT=select_BT).log_softmax(-1)
    gap = _gap(picked_NV, logps_BTV[select_BT])
    _require(gap <= tolerance, f"selected rows are rows of the whole (gap {gap:.2e})")


def _check_padding(
    policy: Policy, ids_BT: Tensor, valid_BT: Tensor, context: int, length: int, logps_BTV: Tensor, tolerance: float
) -> None:
    padding = (ids_BT.shape[0], 3)
    padded_BT = torch.cat((ids_BT.new_full(padding, policy.pad_token_id), ids_BT), dim=1)
    padded_valid_BT = torch.cat((valid_BT.new_zeros(padding), valid_BT), dim=1)
    layout_BT = policy.block_layout(padded_valid_BT[:, : context + padding[1]], length)
    logps = policy.logits(padded_BT, attention_mask=padded_valid_BT, block_BT=layout_BT).log_softmax(-1)
    gap = _gap(logps[:, padding[1] :], logps_BTV)
    _require(gap <= tolerance, f"left padding changes no log-probability (gap {gap:.2e})")


def _check_blocks(
    policy: Policy, ids_BT: Tensor, block_BT: Tensor, context: int, logps_BTV: Tensor, tolerance: float
) -> None:
    first = int((block_BT[0] < block_BT[0, -1]).sum())
    changed = policy.logits(_change(policy, ids_BT, -1), block_BT=block_BT).log_softmax(-1)
    gap = _gap(changed[:, :first], logps_BTV[:, :first])
    _require(gap <= tolerance, f"a later block never changes an earlier one (gap {gap:.2e})")
    _require(_gap(changed[:, first:], logps_BTV[:, first:]) > 0, "a block sees all of itself")
    if policy.attention == "canvas":
        gap = _gap(_canvas_by_canvas(policy, ids_BT, block_BT).log_softmax(-1), logps_BTV[:, context:])
    else:
        gap = _gap(_block_by_block(policy, ids_BT, block_BT).log_softmax(-1), logps_BTV)
    _require(gap <= tolerance, f"the prefix cache equals no cache (gap {gap:.2e})")


def _block_by_block(policy: Policy, ids_BT: Tensor, block_BT: Tensor) -> Tensor:
    """Logits of every block given the cache of those before it; a shifted head reads the token before a block again."""
    cache = policy.new_cache()
    edges = [0, *(block_BT[0].diff().nonzero().flatten() + 1).tolist(), ids_BT.shape[1]]
    parts = []
    for start, stop in itertools.pairwise(edges):
        first = max(start - int(policy.shifted), 0)
        if first < start:
            cache.crop(first - start)
        new_BT = torch.ones_like(block_BT[:, first:stop], dtype=torch.bool)
        new_B1TT = block_causal_mask(block_BT[:, first:stop], new_BT)
        cached_B1TS = new_B1TT.new_ones((*new_B1TT.shape[:3], first))
        mask_B1TS = torch.cat((cached_B1TS, new_B1TT), dim=-1)
        select_BT = torch.arange(first, stop, device=ids_BT.device).expand_as(new_BT) >= start
        logits_NV = policy.logits(
            ids_BT[:, first:stop], attention_mask=mask_B1TS, select_BT=select_BT, cache=cache
        )  # fmt: skip
        parts.append(logits_NV.view(ids_BT.shape[0], stop - start, -1))
    return torch.cat(parts, dim=1)


def _canvas_by_canvas(policy: Policy, ids_BT: Tensor, block_BT: Tensor) -> Tensor:
    """Logits of every canvas in a row of its own, behind what comes before it."""
    edges = [*(block_BT[0].diff().nonzero().flatten() + 1).tolist(), ids_BT.shape[1]]
    parts = []
    for start, stop in itertools.pairwise(edges):
        canvas_B1W = ids_BT[:, None, start:stop]
        states = canvas_behind(
            ids_BT[:, :start],
            torch.ones_like(ids_BT[:, :start], dtype=torch.bool),
            canvas_B1W,
            select_RSW=torch.ones_like(canvas_B1W, dtype=torch.bool),
        )
        parts.append(policy.read_canvas(states).unflatten(0, (ids_BT.shape[0], stop - start)))
    return torch.cat(parts, dim=1)


def _random_rows(policy: Policy, context: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ids without special tokens, all valid, and their blocks."""
    special = {policy.mask_token_id, policy.eos_token_id, policy.pad_token_id}
    words = torch.tensor([token for token in range(policy.vocab_size) if token not in special])
    generator = torch.Generator().manual_seed(0)
    index_BT = torch.randint(len(words), (2, context + length), generator=generator)
    ids_BT = words[index_BT].to(policy.device)
    valid_BT = torch.ones_like(ids_BT, dtype=torch.bool)
    return ids_BT, valid_BT, policy.block_layout(valid_BT[:, :context], length)


def _change(policy: Policy, ids_BT: Tensor, position: int) -> Tensor:
    changed_BT = ids_BT.clone()
    changed_BT[:, position] = policy.mask_token_id
    return changed_BT


def _gap(left: Tensor, right: Tensor) -> float:
    """Largest difference, relative beyond one nat: float32 resolves no more of a log-probability of -20."""
    return float(((left - right).abs() / right.abs().clamp_min(1.0)).max())


def _require(holds: bool, promise: str) -> None:
    if not holds:
        raise AssertionError(f"policy check failed: {promise}")
