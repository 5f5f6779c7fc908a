"""Every setting of a run file as plain records, for `steprs settings` and the documentation's page."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, Union

import annotated_types
from pydantic.fields import FieldInfo

from ..config import PretrainConfig, RunConfig, Section
from ..errors import ConfigError, did_you_mean

KINDS: dict[str, type[Section]] = {"run": RunConfig, "pretrain": PretrainConfig}
_WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false", type(None): "null"}
_BOUNDS = {annotated_types.Ge: ("ge", ">="), annotated_types.Gt: ("gt", ">")} | {
    annotated_types.Le: ("le", "<="),
    annotated_types.Lt: ("lt", "<"),
}


def list_settings(kind: str = "run") -> list[dict[str, Any]]:
    """One record a setting, in the order of the file: `key`, `section`, `allowed`, `default` and `meaning`.

    Args:
        kind: "run" (`steprs train`, `steprs eval`) or "pretrain".

    >>> [record["key"] for record in list_settings()][:4]
    ['name', 'seed', 'output', 'policy.path']
    >>> next(record for record in list_settings() if record["key"] == "train.group_size")["allowed"]
    'whole number >= 1'
    """
    return list(_walk(KINDS[kind], ""))


def matching_settings(words: str, kind: str = "run") -> list[dict[str, Any]]:
    """The records of a section, of one key, or with the words somewhere in key or meaning, whichever comes first.

    Raises:
        ConfigError: there is none; names the nearest section or key.

    >>> [record["key"] for record in matching_settings("risk.calibration.prompts")]
    ['risk.calibration.prompts']
    """
    records = list_settings(kind)
    inside = [record for record in records if f"{record['key']}.".startswith(f"{words}.")]
    found = inside or [record for record in records if words.lower() in f"{record['key']} {record['meaning']}".lower()]
    if not found:
        known = [record["key"] for record in records] + sorted({record["section"] for record in records})
        raise ConfigError(f"no setting has {words!r}{did_you_mean(words, known)}; `steprs settings` lists all")
    return found


def by_section(records: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The records under their sections, in the order in which sections first appear; the file's own, "", first."""
    sections: dict[str, list[dict[str, Any]]] = {"": []}
    for record in records:
        sections.setdefault(record["section"], []).append(record)
    return {section: found for section, found in sections.items() if found}


def describe_section(name: str, kind: str = "run") -> str:
    """The documentation of a section by its dotted name; "" is the file itself.

    >>> describe_section("loss").splitlines()[0][:33]
    'From advantages to a scalar. Ever'
    """
    model = KINDS[kind]
    for part in name.split(".") if name else ():
        inner = _section_of(model.model_fields[part].annotation)
        assert inner is not None
        model = inner
    return inspect.cleandoc(model.__doc__ or "")


def _walk(model: type[Section], before: str, *, seen: tuple[type[Section], ...] = ()) -> Iterator[dict[str, Any]]:
    for name, field in model.model_fields.items():
        inner = _section_of(field.annotation)
        # A section that may be null has a meaning of its own; one inside itself (schedules) is described once.
        if inner is None or field.default is None:
            yield {
                "key": before + name,
                "section": before.rstrip("."),
                "allowed": _allowed(field.annotation, field.metadata) if inner is None else "null or its own settings",
                "default": _plain(field),
                "meaning": field.description or "",
            }
        if inner is not None and inner not in (*seen, model):
            yield from _walk(inner, f"{before}{name}.", seen=(*seen, model))


def _section_of(annotation: Any) -> type[Section] | None:
    for part in (annotation, *typing.get_args(annotation)):
        if isinstance(part, type) and issubclass(part, Section):
            return part
    return None


def _allowed(annotation: Any, metadata: list[Any]) -> str:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _allowed(parts[0], [one for given in parts[1:] for one in getattr(given, "metadata", [given])])
    if origin in (Union, types.UnionType):
        # Bounds are on the number among them; null comes last.
        return " or ".join(_allowed(part, metadata) for part in sorted(parts, key=lambda part: part is type(None)))
    if origin is Literal:
        return ", ".join(str(value) for value in parts)
    if origin is tuple:
        if parts[-1] is Ellipsis:
            return f"list of {_allowed(parts[0], [])}"
        return "[" + ", ".join(_allowed(part, []) for part in parts) + "]"
    if origin is dict:
        return f"mapping from {_allowed(parts[0], [])} to {_allowed(parts[1], [])}"
    words = _WORDS.get(annotation, "any value")
    bounds = " and ".join(_bounds(metadata))
    return f"{words} {bounds}" if bounds and annotation in (int, float) else words


def _bounds(metadata: list[Any]) -> Iterator[str]:
    for bound in metadata:
        if type(bound) in _BOUNDS:
            name, sign = _BOUNDS[type(bound)]
            yield f"{sign} {getattr(bound, name):g}"


def _plain(field: FieldInfo) -> Any:
    value = field.get_default(call_default_factory=True)
    return list(value) if isinstance(value, tuple) else value
