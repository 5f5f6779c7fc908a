"""A schedule, or an arm of the laboratory, written as a few words: `linear 4 0`, `constant 4 control=flat`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from ..errors import ArgumentError, unknown_name
from ..schedules import (
    SCHEDULES,
    AbstractSchedule,
    ConstantSchedule,
    KnotSchedule,
    PassRateSchedule,
    ReversedSchedule,
)

LabControl = Literal["full", "flat", "constant", "reverse", "state-only", "centred"]
LAB_CONTROLS: tuple[LabControl, ...] = ("full", "flat", "constant", "reverse", "state-only", "centred")
_NAMED = {"centred": "constant 0", "standardised": "constant 0 base=standardised"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """What is followed: a schedule under a control, from centred or standardised scores."""

    label: str
    schedule: AbstractSchedule
    control: LabControl = "full"
    base: Literal["centred", "standardised"] = "centred"


def parse_arm(text: str) -> Arm:
    """An arm from a schedule's words, optionally with `control=...` and `base=...`; also `centred`, `standardised`.

    Raises:
        ArgumentError: a name that is not known, with the nearest one, or numbers that do not fit.

    >>> parse_arm("linear 4 0 control=flat")
    Arm(label='linear 4 0 control=flat', schedule=LinearSchedule(start=4.0, end=0.0), control='flat', base='centred')
    """
    options = {"control": "full", "base": "centred"}
    kept = []
    for word in _NAMED.get(text.strip(), text).split():
        name, equals, value = word.partition("=")
        if equals and name in options:
            options[name] = value
        else:
            kept.append(word)
    if options["control"] not in LAB_CONTROLS:
        raise ArgumentError(f"arm {text!r}: {unknown_name('control', options['control'], LAB_CONTROLS)}")
    if options["base"] not in ("centred", "standardised"):
        raise ArgumentError(f"arm {text!r}: {unknown_name('base', options['base'], ('centred', 'standardised'))}")
    schedule = parse_schedule(" ".join(kept))
    return Arm(label=text.strip(), schedule=schedule, **options)  # type: ignore[arg-type]


def parse_schedule(text: str) -> AbstractSchedule:
    """A schedule from its family's name and numbers, in the order of its fields or by name.

    | family | words |
    |---|---|
    | constant | `constant 4` |
    | two ends | `linear 4 0`, `cosine 4 0`, `power 4 0 gamma=2`, `sigmoid 4 0 10 0.5`, `step 4 0 midpoint=0.3`, ... |
    | `knots` | `knots 0:4 0.5:1 1:0`, pairs tau:risk_coef |
    | `pass-rate` | `pass-rate 0.2 linear 4 0 / linear 0 4`: threshold, below, above |
    | `reversed` | `reversed power 4 0 2`: any of these from the other end |

    Args:
        text: the words; numbers are coefficients, unit 1/reward, not multiples of a scale.

    Raises:
        ArgumentError: an unknown family, a word that is no number, too few or too many numbers.

    >>> parse_schedule("pass-rate 0.2 linear 4 0 / linear 0 4").describe()
    'pass-rate(threshold=0.2, below=linear(start=4, end=0), above=linear(start=0, end=4))'
    """
    kind, *words = text.split() or [""]
    if kind not in SCHEDULES:
        raise ArgumentError(unknown_name("schedule", kind, SCHEDULES))
    if kind == "reversed":
        return ReversedSchedule(parse_schedule(" ".join(words)))
    if kind == "pass-rate":
        below, slash, above = " ".join(words[1:]).partition(" / ")
        if not slash:
            raise ArgumentError(f"{text!r} is not read; write pass-rate THRESHOLD BELOW / ABOVE, each a schedule")
        return PassRateSchedule(_number(words[0], text), parse_schedule(below), parse_schedule(above))
    if kind == "knots":
        pairs = [word.partition(":") for word in words]
        return KnotSchedule(tuple((_number(tau, text), _number(coef, text)) for tau, _, coef in pairs))
    return _with_fields(SCHEDULES[kind], words, text)


def _with_fields(family: type[AbstractSchedule], words: list[str], text: str) -> AbstractSchedule:
    fields = dataclasses.fields(family)  # type: ignore[arg-type]
    names = [field.name for field in fields]
    given: dict[str, float] = {}
    for place, word in enumerate(words):
        name, equals, value = word.rpartition("=")
        if not equals and place >= len(names):
            raise ArgumentError(f"{text!r} has more numbers than {', '.join(names)}")
        name = name if equals else names[place]
        if name not in names:
            raise ArgumentError(f"{text!r}: {unknown_name('setting', name, names)}")
        given[name] = _number(value, text)
    missing = [f.name for f in fields if f.default is dataclasses.MISSING and f.name not in given]
    if missing:
        raise ArgumentError(f"{text!r} lacks {', '.join(missing)}; its numbers are {', '.join(names)}")
    return family(**given)


def _number(word: str, text: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise ArgumentError(f"{text!r}: {word!r} is not a number") from None


CENTRED = Arm(label="centred", schedule=ConstantSchedule(0.0))
