"""What a study is: arms x seeds x contexts, each a few fields varied from one base configuration. Never imports torch.

The same records are written in Python and in YAML:

    name: mine
    run: train/countdown
    fields: {train.updates: 200}
    seeds: [101, 102, 103]
    baseline: centred GRPO
    arms:
      - {label: centred GRPO, fields: {risk.scale: 0}}
      - {label: decreasing, fields: {risk.schedule.start: 1, risk.schedule.end: 0}}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator, model_validator

from ..config import PretrainConfig, RunConfig, Section, load_config
from ..configs import find_config
from ..errors import ConfigError, unknown_name

Fields = dict[str, Any]

SMOKE: Fields = {"train.updates": 4, "train.eval_every": 2, "train.warmup_updates": 1, "eval.problems": 16}
"""What `--smoke` lays over every run: long enough to pass through all of it, far too short to learn anything."""


def _settings_of_runs(fields: Fields) -> Fields:
    """Refuse what a study decides itself: it would be overwritten in silence."""
    for name, instead in (("seed", "the study's `seeds`"), ("name", "the study's `name`"), ("output", "-o")):
        if name in fields:
            raise ValueError(f"{name} cannot be a field; give {instead}")
    return fields


RunFields = Annotated[Fields, AfterValidator(_settings_of_runs)]


class Arm(Section):
    """One way to train: a label for the tables, and dotted settings that make it differ from the base."""

    label: str = Field(min_length=1)
    fields: RunFields = Field(default_factory=dict)


class BasePolicy(Section):
    """A tiny policy made for a context by `steprs pretrain`, instead of one that exists."""

    recipe: str = "pretrain/tiny"
    fields: Fields = Field(default_factory=dict)


class Context(Section):
    """One comparison with its own baseline and base policy; most studies have a single one without a name."""

    name: str = ""
    fields: RunFields = Field(default_factory=dict)
    pretrain: BasePolicy | None = None


class Measurement(Section):
    """How final policies are measured, the same for every arm and for the base policy."""

    problems: int = Field(512, ge=1, description="held-out problems")
    samples: int = Field(32, ge=1)
    k: tuple[int, ...] = (1, 4, 16, 32)
    base_temperatures: dict[str, float | None] = Field(
        default_factory=lambda: {"base": None, "base, greedy": 0.0, "base, T = 0.7": 0.7},
        description="label -> temperature of the untrained policy; null is training's",
    )
    traces: int = Field(12, ge=0, description="problems whose rollouts the report can play")
    backslides: int = Field(32, ge=0, description="problems whose states are completed; 0: no denoising diagnostics")

    @model_validator(mode="after")
    def _k_within_samples(self) -> Measurement:
        if not self.k or min(self.k) < 1 or max(self.k) > self.samples or len(set(self.k)) < len(self.k):
            raise ValueError(f"k is {list(self.k)}; pass@k needs different 1 <= k <= samples, which is {self.samples}")
        cold = [label for label, heat in self.base_temperatures.items() if heat is not None and heat < 0]
        if cold:
            raise ValueError(f"base_temperatures of {cold[0]!r} is below 0; 0 is argmax, null is training's")
        return self


class Study(Section):
    """Many runs that answer one question.

    Attributes:
        name: of its folder.
        title, claim: what the report says it is, and which claim it can support or refute.
        run: the run configuration everything starts from, a file or a shipped name.
        fields: dotted settings of all runs.
        seeds: of the runs of each arm; the same for every arm, so that differences are paired.
        baseline: label of the arm that the others are compared with, within each context.
        arms, contexts: every arm runs in every context.
        measure: of what comes out.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][\w.-]*$")
    title: str = ""
    claim: str = ""
    run: str = "train/countdown"
    fields: RunFields = Field(default_factory=dict)
    seeds: tuple[int, ...] = Field((101, 102, 103, 104), min_length=1)
    baseline: str = "centred GRPO"
    arms: tuple[Arm, ...] = Field(min_length=1)
    contexts: tuple[Context, ...] = Field((Context(),), min_length=1)
    measure: Measurement = Measurement()

    @field_validator("arms", "contexts", "seeds")
    @classmethod
    def _told_apart(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        names = [getattr(item, "label", getattr(item, "name", item)) for item in value]
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ValueError(f"{twice[0]!r} stands twice; each needs a name of its own")
        return value

    @model_validator(mode="after")
    def _baseline_is_an_arm(self) -> Study:
        labels = [arm.label for arm in self.arms]
        if self.baseline not in labels:
            raise ValueError(unknown_name("baseline", self.baseline, labels))
        taken = set(labels) & set(self.measure.base_temperatures)
        if taken:
            raise ValueError(f"{sorted(taken)[0]!r} is the label of an arm and of the base policy; rename one")
        return self

    def planned(self) -> list[PlannedRun]:
        """Every run, seed by seed: stopped half-way, a study holds whole comparisons.

        Raises:
            ConfigError: names the field of an arm or context that is no setting.
        """
        return [
            PlannedRun(context=context, arm=arm, seed=seed, config=self.config(context, arm, seed))
            for seed in self.seeds
            for context in self.contexts
            for arm in self.arms
        ]

    def config(self, context: Context, arm: Arm, seed: int) -> RunConfig:
        """The run, then the study's fields, the context's, the arm's, and the seed."""
        layers = (self.fields, context.fields, arm.fields, {"seed": seed, "name": self.name})
        try:
            return load_config(find_config(self.run), overrides(layers), model=RunConfig)
        except ConfigError as error:
            raise ConfigError(f"study {self.name}, arm {arm.label!r}: {error}") from None

    def with_fields(self, fields: Mapping[str, Any]) -> Study:
        """The study with more settings for all its runs.

        Raises:
            ConfigError: an arm or context sets the same thing, so that the setting would not reach all runs.
        """
        parts = [(arm.label, arm.fields) for arm in self.arms]
        parts += [(context.name, context.fields) for context in self.contexts]
        for name, its_own in parts:
            for key in fields:
                if any(key == own or key.startswith(f"{own}.") or own.startswith(f"{key}.") for own in its_own):
                    raise ConfigError(
                        f"{key} is what {name!r} of study {self.name} sets itself, so it cannot be set for all runs; "
                        f"write a study of your own: steprs study show {self.name} --yaml"
                    )
        return self.model_validate({**self.model_dump(), "fields": {**self.fields, **fields}})

    def smoke(self) -> Study:
        """The same arms, two seeds, four updates each: whether it runs, not what comes out."""
        small = self.measure.model_copy(
            update={"problems": 32, "samples": 8, "k": (1, 4, 8), "traces": 4, "backslides": 4}
        )
        quick = {**SMOKE, "eval.samples": 4, "eval.k": [1, 4], "risk.calibration.prompts": 32}
        contexts = tuple(_brief(context, quick) for context in self.contexts)
        arms = tuple(arm.model_copy(update={"fields": _without(arm.fields, quick)}) for arm in self.arms)
        title = f"{self.title} (smoke test: too short to learn anything)"
        return self.model_copy(
            update={
                "name": f"{self.name}-smoke",
                "title": title,
                "seeds": self.seeds[:2],
                "measure": small,
                "contexts": contexts,
                "arms": arms,
                "fields": {**self.fields, **quick},
            }
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """One run of a study. `config.policy.path` is the base's own where the context makes a policy."""

    context: Context
    arm: Arm
    seed: int
    config: RunConfig


def pretrain_config(policy: BasePolicy) -> PretrainConfig:
    """The configuration that makes a context's base policy."""
    return load_config(find_config(policy.recipe), overrides([policy.fields]), model=PretrainConfig)


def overrides(layers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Dotted fields as the overrides that the command line takes; later layers win.

    >>> overrides([{"risk.scale": 0}, {"task.options": {"numbers": 3}}])
    ['risk.scale=0', 'task.options={"numbers": 3}']
    """
    return [f"{key}={json.dumps(value)}" for layer in layers for key, value in layer.items()]


def load_study(source: str | Path) -> Study:
    """The study in a YAML or JSON file.

    Raises:
        ConfigError: names the file, the key, what was given and what is allowed.
    """
    return load_config(Path(source), model=Study)


def _brief(context: Context, quick: Fields) -> Context:
    """A context whose base policy is made in seconds; it solves nothing, so no scale can be measured from it."""
    fields = _without(context.fields, quick)
    if context.pretrain is None:
        return context.model_copy(update={"fields": fields})
    made = {**context.pretrain.fields, "updates": 20, "warmup_updates": 2}
    return context.model_copy(
        update={
            "fields": {**fields, "risk.scale": 1.0},
            "pretrain": context.pretrain.model_copy(update={"fields": made}),
        }
    )


def _without(fields: Fields, quick: Fields) -> Fields:
    return {key: value for key, value in fields.items() if key not in quick}
