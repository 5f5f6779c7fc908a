"""Rollouts for the page's viewer: read from `traces.json`, made safe to show, and capped in size."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import RunFolderError
from .document import Viewer
from .escape import escape_terminal
from .study import Arm, Context

LARGEST_BYTES = 4_000_000
MOST_ROLLOUTS = 16
MOST_TOKENS = 1024
LONGEST_TOKEN, LONGEST_PROMPT, LONGEST_KEY = 120, 4000, 160
NUMBERS = ("unmask_step", "progress", "advantage", "entropy")


def viewer(contexts: Sequence[Context]) -> Viewer | None:
    """The rollouts of each arm's first seed that has some; None if no folder holds any.

    Problems are kept in their order, for all arms of a context alike, until the size is reached.

    Raises:
        RunFolderError: a traces.json that is not what it should be.
    """
    found = [(context, traced) for context in contexts if (traced := _traced_arms(context))]
    if not found:
        return None
    share, plain, notes = LARGEST_BYTES // len(found), [], []
    for context, traced in found:
        problems, offered = _problems(traced, share)
        heads = [_head(arm, traces) for arm, traces in traced]
        plain.append({"name": escape_terminal(context.name), "arms": heads, "problems": problems})
        if len(problems) < offered:
            where = f"{context.name}: " if context.name else ""
            notes.append(f"{where}{len(problems)} of {offered} problems are kept, to hold the page below a size.")
    notes.append(f"First training seed of each arm; at most {MOST_ROLLOUTS} rollouts a problem.")
    return Viewer(data={"contexts": plain}, notes=tuple(notes))


def embedded(data: Mapping[str, Any]) -> str:
    r"""JSON that can stand in a script element: ASCII, and no character that HTML gives a meaning to.

    >>> embedded({"text": "</script>"})
    '{"text":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _traced_arms(context: Context) -> list[tuple[Arm, Mapping[str, Any]]]:
    found = []
    for arm in context.arms:
        traces = next((each for run in arm.runs if (each := run.traces())), None)
        if traces is not None:
            found.append((arm, traces))
    return found


def _head(arm: Arm, traces: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "label": escape_terminal(arm.label),
        "schedule": escape_terminal(str(traces.get("schedule") or ""), LONGEST_KEY) if arm.trained else "",
        "coordinate": escape_terminal(str(traces.get("coordinate") or ""), LONGEST_KEY),
    }


def _problems(traced: Sequence[tuple[Arm, Mapping[str, Any]]], size: int) -> tuple[list[dict[str, Any]], int]:
    """Problems with each arm's rollouts, as many as fit; and how many there are."""
    each = [_by_id(arm, traces) for arm, traces in traced]
    ids = list(dict.fromkeys(name for problems in each for name in problems))
    kept: list[dict[str, Any]] = []
    used = 0
    for name in ids:
        first = next(problems[name] for problems in each if name in problems)
        problem = {
            "id": escape_terminal(name, LONGEST_KEY),
            "prompt": escape_terminal(str(first.get("prompt", "")), LONGEST_PROMPT),
            "answer": escape_terminal(str(first.get("answer", "")), LONGEST_KEY),
            "arms": [_rollouts(problems.get(name), arm) for problems, (arm, _) in zip(each, traced, strict=True)],
        }
        used += len(embedded(problem))
        if used > size:
            break
        kept.append(problem)
    return kept, len(ids)


def _by_id(arm: Arm, traces: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    try:
        return {str(problem["id"]): problem for problem in traces["problems"]}
    except (KeyError, TypeError) as error:
        raise RunFolderError(
            f"traces.json of {arm.label} lacks {error}; write it again by evaluating the run"
        ) from None


def _rollouts(problem: Mapping[str, Any] | None, arm: Arm) -> dict[str, Any] | None:
    if problem is None:
        return None
    try:
        rollouts = [_rollout(rollout) for rollout in problem["rollouts"][:MOST_ROLLOUTS]]
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(
            f"traces.json of {arm.label}, problem {problem['id']!r}: a rollout is not as it should be ({error})"
        ) from None
    return {"pass_rate": _number(problem.get("pass_rate")), "rollouts": rollouts}


def _rollout(plain: Mapping[str, Any]) -> dict[str, Any]:
    tokens = [escape_terminal(str(token), LONGEST_TOKEN) for token in plain["tokens"][:MOST_TOKENS]]
    numbers = {name: _numbers(plain.get(name), len(plain["tokens"]), name) for name in NUMBERS}
    return {
        "tokens": tokens,
        **numbers,
        "left_out": len(plain["tokens"]) - len(tokens),
        "status": plain["status"] if plain["status"] in {"right", "wrong", "unparsed"} else "unparsed",
        "answer": _key(plain.get("answer_key")),
        "solution": _key(plain.get("solution_key")),
    }


def _numbers(values: Any, length: int, name: str) -> list[float | int | None] | None:
    if values is None:
        return None
    if len(values) != length:
        raise ValueError(f"{length} tokens and {len(values)} values of {name}")
    return [_number(value) for value in _first(values)]


def _first(values: Iterable[Any]) -> list[Any]:
    return list(values)[:MOST_TOKENS]


def _number(value: Any) -> float | int | None:
    # Beyond 2^53 a page would show another whole number, and a still larger one is no float at all.
    return value if isinstance(value, int | float) and abs(value) < 2**53 else None


def _key(value: Any) -> str | None:
    return None if value is None else escape_terminal(str(value), LONGEST_KEY)
