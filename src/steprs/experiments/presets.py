"""The studies that ship: one command each, each for one claim. `steprs study show NAME` prints one as YAML.

Seeds from 101 on are kept for final figures; tasks, rates and lengths were chosen on others.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import ConfigError, unknown_name
from ..estimators import ESTIMATORS
from .study import Arm, BasePolicy, Context, Measurement, Study

EIGHT_SEEDS = tuple(range(101, 109))
FOUR_SEEDS = EIGHT_SEEDS[:4]
LENGTH = {
    "policy.dtype": "float32",  # `auto` asks the machine, and the runs of a study must not differ in it
    "train.updates": 200,
    "train.eval_every": 40,
    "train.save_every": 40,
    "train.keep_last": 1,
}

CENTRED = Arm(label="centred GRPO", fields={"risk.scale": 0})
STANDARDISED = Arm(label="standardised GRPO", fields={"risk.scale": 0, "risk.base": "standardised"})
CONSTANT = Arm(label="constant RS-GRPO", fields={"risk.schedule.kind": "constant", "risk.schedule.start": 1})
DECREASING = Arm(label="StepRS decreasing", fields={"risk.schedule.start": 1, "risk.schedule.end": 0})
INCREASING = Arm(label="StepRS increasing", fields={"risk.schedule.start": 0, "risk.schedule.end": 1})
BY_PASS_RATE = Arm(
    label="StepRS by pass rate",
    fields={
        "risk.schedule": {
            "kind": "pass-rate",
            "below": {"kind": "linear", "start": 1, "end": 0},
            "above": {"kind": "linear", "start": 0, "end": 1},
        }
    },
)


def main() -> Study:
    """The published comparison."""
    return Study(
        name="main",
        title="StepRS-GRPO against GRPO",
        claim="Stepwise risk improves pass@1, pass@k and the diversity of answers over centred GRPO.",
        fields=LENGTH,
        seeds=EIGHT_SEEDS,
        arms=(CENTRED, STANDARDISED, CONSTANT, DECREASING, INCREASING),
    )


def endpoints() -> Study:
    """A grid of ends in multiples of the calibrated scale, both directions and changes of sign."""
    multiples = (-1, 0, 1, 2, 3)
    grid = [
        Arm(label=f"{start} -> {end}", fields={"risk.schedule.start": start, "risk.schedule.end": end})
        for start in multiples
        for end in multiples
        if (start, end) != (0, 0)
    ]
    return Study(
        name="endpoints",
        title="Which ends of the schedule",
        claim="The gain depends on where the coefficient starts and ends, not only on its mean.",
        fields=LENGTH,
        seeds=FOUR_SEEDS,
        arms=(CENTRED, *grid),
    )


def interpolation() -> Study:
    """Every family between the same two ends."""
    ends = {"risk.schedule.start": 1, "risk.schedule.end": 0}
    families: Mapping[str, Mapping[str, object]] = {
        "linear": {},
        "cosine": {},
        "power, gamma = 0.5": {"kind": "power", "gamma": 0.5},
        "power, gamma = 2": {"kind": "power", "gamma": 2.0},
        "sigmoid": {},
        "exponential": {},
        "geometric to 1/10": {"kind": "geometric", "end": 0.1},
        "step at 1/2": {"kind": "step"},
        "knots 1, 1, 0": {"kind": "knots", "knots": [[0.0, 1.0], [0.5, 1.0], [1.0, 0.0]]},
    }
    arms = [
        Arm(
            label=label,
            fields={**ends, **{f"risk.schedule.{name}": value for name, value in {"kind": label, **changes}.items()}},
        )
        for label, changes in families.items()
    ]
    return Study(
        name="interpolation",
        title="Which path between the ends",
        claim="The family of the schedule matters at fixed ends.",
        fields=LENGTH,
        seeds=FOUR_SEEDS,
        arms=(CENTRED, *arms),
    )


def mass_controls() -> Study:
    """The schedule against controls that keep the mass of its advantages and remove one thing each."""
    controls = ("flat", "constant", "reverse", "shuffle-token", "shuffle-state", "state-only")
    full = Arm(label=DECREASING.label, fields={**DECREASING.fields, "risk.control": "full"})
    arms = [
        Arm(label=f"control: {control}", fields={**DECREASING.fields, "risk.control": control}) for control in controls
    ]
    return Study(
        name="mass-controls",
        title="Matched mass: is it the order of states?",
        claim="What stepwise risk gains is due to which states get the mass, not to how much mass there is.",
        fields=LENGTH,
        seeds=FOUR_SEEDS,
        arms=(CENTRED, full, *arms),
    )


def rms_matched() -> Study:
    """`main` with every update's advantages scaled to the RMS of centred GRPO."""
    study = main()
    return study.model_copy(
        update={
            "name": "rms-matched",
            "title": "StepRS-GRPO against GRPO at equal RMS of the advantages",
            "claim": "The gain is not a change of the advantages' overall size.",
            "seeds": FOUR_SEEDS,
            "fields": {**study.fields, "risk.rms_match": "batch"},
        }
    )


def coordinates() -> Study:
    """What 'early' means: the coordinate of a state and its scope in block decoding."""
    cases = [("step", "sequence"), ("mask", "sequence"), ("rank", "sequence"), ("step", "block"), ("step", "within")]
    arms = [
        Arm(
            label=f"{coordinate}, {scope}",
            fields={**DECREASING.fields, "risk.coordinate": coordinate, "risk.scope": scope},
        )
        for coordinate, scope in cases
    ]
    return Study(
        name="coordinates",
        title="What denoising progress is measured by",
        claim="The result depends on the coordinate of a state.",
        fields=LENGTH,
        seeds=FOUR_SEEDS,
        arms=(CENTRED, *arms),
    )


def capability() -> Study:
    """Direction x capability of the base policy."""
    # The budget of pretraining makes the capability: pass@1 on dev problems .08, .16, and .32 of the shipped policy.
    budgets = {"weak base": 700, "middling base": 1000}
    contexts = [
        Context(name=name, pretrain=BasePolicy(fields={"updates": updates, "name": name.replace(" ", "-")}))
        for name, updates in budgets.items()
    ]
    return Study(
        name="capability",
        title="Direction and the base policy's capability",
        claim="The better direction depends on how often the base policy is right.",
        fields=LENGTH,
        seeds=FOUR_SEEDS,
        arms=(CENTRED, DECREASING, INCREASING, BY_PASS_RATE),
        contexts=(*contexts, Context(name="shipped base")),
    )


def group_size() -> Study:
    """Groups of 4 to 64 at the same number of rollouts."""
    rollouts = 256
    contexts = [
        Context(name=f"G = {size}", fields={"train.group_size": size, "train.prompts_per_update": rollouts // size})
        for size in (4, 8, 16, 32, 64)
    ]
    return Study(
        name="group-size",
        title="How large a group",
        claim="Amplification of hard prompts is limited by the group size.",
        fields=LENGTH,
        seeds=FOUR_SEEDS,
        arms=(CENTRED, DECREASING, INCREASING),
        contexts=tuple(contexts),
    )


def comparators() -> Study:
    """Every estimator that ships, with its defaults, on the rollouts, loss and seeds of the shipped run."""
    ours = ("steprs-grpo", "centred", "standardised", "rs-grpo")  # these are the arms of `main`
    arms = [Arm(label=name, fields={"advantage.estimator": name}) for name in ESTIMATORS if name not in ours]
    return Study(
        name="comparators",
        title="Estimators on the same rollouts",
        claim="It takes a risk coefficient, or one that depends on the state; another reweighting would not do.",
        fields={"policy.dtype": "float32", "train.eval_every": 30, "train.save_every": 30, "train.keep_last": 1},
        seeds=FOUR_SEEDS[:3],
        arms=(CENTRED, STANDARDISED, CONSTANT, DECREASING, INCREASING, *arms),
        measure=Measurement(problems=256, samples=32),
    )


PRESETS = {
    "main": main,
    "endpoints": endpoints,
    "interpolation": interpolation,
    "mass-controls": mass_controls,
    "rms-matched": rms_matched,
    "coordinates": coordinates,
    "capability": capability,
    "group-size": group_size,
    "comparators": comparators,
}


def preset(name: str) -> Study:
    """The shipped study of that name.

    Raises:
        ConfigError: there is none; names the nearest.
    """
    if name not in PRESETS:
        raise ConfigError(f"no file {name}, and {unknown_name('study', name, PRESETS)}")
    return PRESETS[name]()
