"""How many positions each denoising step reveals, and which decoding settings can be carried out exactly."""

from __future__ import annotations

from typing import Literal

from ..errors import SamplingError
from ..types import Decoding
from .unmasking import RULES, UnmaskingRule, get_rule


def spread(total: int, parts: int) -> tuple[int, ...]:
    """`total` things over `parts`, the first parts taking the remainder (LLaDA's convention).

    >>> spread(7, 3)
    (3, 2, 2)
    """
    base, rest = divmod(total, parts)
    return tuple(base + (part < rest) for part in range(parts))


def block_steps(decoding: Decoding) -> tuple[int, ...]:
    """Denoising steps of each block of `block_size` positions; they sum to `steps`.

    >>> block_steps(Decoding(kind="block", length=12, steps=8, block_size=4))
    (3, 3, 2)
    """
    return spread(decoding.steps, decoding.length // decoding.block_size)


def check_decoding(decoding: Decoding, kind: Literal["masked", "block", "revise"]) -> UnmaskingRule:
    """Refuse settings that cannot be carried out exactly; returns the unmasking rule.

    Every block needs at least one step and no step may reveal nothing, so `length / block_size <= steps <= length`.
    Canvases that are revised may take more steps than they have positions, each canvas as many as the others.

    Raises:
        SamplingError: names the setting, its value and what is allowed.
    """
    if decoding.kind != kind:
        raise SamplingError(f"this sampler decodes kind {kind!r}, the settings are for {decoding.kind!r}")
    if decoding.length < 1 or decoding.block_size < 1 or decoding.steps < 1:
        raise SamplingError(
            f"length {decoding.length}, block_size {decoding.block_size} and steps {decoding.steps} must be 1 or more"
        )
    if decoding.length % decoding.block_size:
        raise SamplingError(
            f"block_size {decoding.block_size} does not divide length {decoding.length}; "
            + (
                f"allowed for this length: {_divisors(decoding.length)}"
                if kind == "masked"
                else f"give a length that is a multiple of {decoding.block_size}, the policy's own block"
            )
        )
    blocks = decoding.length // decoding.block_size
    if kind == "revise":
        _check_revising(decoding, blocks)
    elif decoding.final_temperature is not None or decoding.stop_entropy is not None:
        raise SamplingError("final_temperature and stop_entropy are for canvases that are revised (kind 'revise')")
    elif not blocks <= decoding.steps <= decoding.length:
        raise SamplingError(
            f"steps {decoding.steps} cannot decode length {decoding.length} in {blocks} block(s): every block needs a "
            f"step and every step reveals a token; give {blocks} to {decoding.length}"
        )
    if decoding.temperature < 0:
        raise SamplingError(f"temperature is {decoding.temperature}; give 0 (argmax) or more")
    if not 0 < decoding.top_p <= 1:
        raise SamplingError(f"top_p is {decoding.top_p}; give a number in (0, 1], 1 keeps everything")
    if decoding.top_k < 0:
        raise SamplingError(f"top_k is {decoding.top_k}; give a count, 0 keeps everything")
    return get_rule(decoding.unmasking, decoding.threshold)


def _check_revising(decoding: Decoding, canvases: int) -> None:
    if decoding.steps % canvases:
        raise SamplingError(
            f"steps {decoding.steps} do not divide among {canvases} canvases of {decoding.block_size} positions; give "
            f"a multiple of {canvases}"
        )
    rule = get_rule(decoding.unmasking, decoding.threshold)
    if rule.looks_at != "logits":
        allowed = ", ".join(name for name, found in RULES.items() if found.looks_at == "logits")
        raise SamplingError(
            f"unmasking {decoding.unmasking!r} cannot say which tokens of a canvas to fix and which to draw again; "
            f"allowed: {allowed}"
        )
    final, stop = decoding.final_temperature, decoding.stop_entropy
    if final is not None and not 0 <= final <= decoding.temperature:
        raise SamplingError(
            f"final_temperature is {final} and temperature {decoding.temperature}; the temperature falls towards the "
            "final one, so give one from 0 to it"
        )
    if stop is not None and stop <= 0:
        raise SamplingError(f"stop_entropy is {stop}; give nats above 0, or null for no early stop")


def _divisors(length: int) -> str:
    return ", ".join(str(size) for size in range(1, length + 1) if length % size == 0)
