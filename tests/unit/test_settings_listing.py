"""What `steprs settings` says about a setting is what the configuration accepts."""

from __future__ import annotations

import json

import pytest

from steprs.cli.app import main
from steprs.config import RunConfig, load_config
from steprs.configs.listing import by_section, list_settings, matching_settings
from steprs.errors import ConfigError


def record(key: str, kind: str = "run") -> dict[str, object]:
    return next(found for found in list_settings(kind) if found["key"] == key)


@pytest.mark.parametrize(
    ("key", "allowed", "default"),
    [
        ("loss.clip_low", "number > 0 and < 1", 0.2),
        ("sampler.length", "whole number >= 1 or null", None),
        ("risk.rms_match", "batch, group, state, group-state or null", None),
        ("risk.scale", "number or calibrated", "calibrated"),
        ("train.token_budget", "whole number >= 1 or auto", "auto"),
        ("train.betas", "[number, number]", [0.9, 0.95]),
        ("eval.k", "list of whole number", [1, 4, 16]),
        ("policy.lora", "null or its own settings", None),
        ("policy.trust_remote_code", "true or false", False),
        ("advantage.components", "mapping from right, parsed, ended to number", {"right": 1.0, "parsed": 0.5}),
    ],
)
def test_types_bounds_and_defaults_in_words(key: str, allowed: str, default: object) -> None:
    assert (record(key)["allowed"], record(key)["default"]) == (allowed, default)


def test_every_listed_default_is_accepted_back() -> None:
    settings = [
        found for found in list_settings() if not found["key"].startswith(("policy.lora.", "advantage.steps_used."))
    ]
    overrides = [f"{found['key']}={json.dumps(found['default'])}" for found in settings]
    assert load_config({}, overrides, model=RunConfig) == RunConfig()


def test_no_setting_is_left_out() -> None:
    def leaves(values: dict[str, object], before: str = "") -> set[str]:
        keys = set()
        for name, value in values.items():
            whole = isinstance(value, dict) and before + name not in (
                "task.options",
                "advantage.options",
                "advantage.components",
            )
            keys |= leaves(value, f"{before}{name}.") if whole else {before + name}  # type: ignore[arg-type]
        return keys

    listed = {found["key"] for found in list_settings()}
    assert leaves(RunConfig().model_dump()) <= listed


class TestMatching:
    def test_a_section_comes_with_what_is_inside(self) -> None:
        keys = [found["key"] for found in matching_settings("risk.calibration")]
        assert keys[0] == "risk.calibration.rule" and len(keys) == 6

    def test_a_section_is_not_what_begins_alike(self) -> None:
        assert {found["section"] for found in matching_settings("train")} == {"train"}

    def test_words_are_looked_for_in_keys_and_meanings(self) -> None:
        keys = {found["key"] for found in matching_settings("Adapters")}
        assert {"policy.lora", "policy.lora.alpha"} <= keys

    def test_nothing_found_names_the_nearest(self) -> None:
        with pytest.raises(ConfigError, match=r"train\.group_size"):
            matching_settings("train.groupsize")


def test_a_section_is_shown_once_though_another_stands_inside_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(by_section(matching_settings("risk"))) == ["risk", "risk.schedule", "risk.calibration"]
    with pytest.raises(SystemExit):
        main(["settings", "risk"])
    shown = capsys.readouterr().out
    assert shown.count("\nrisk: ") == 1
    assert '  risk.scale="calibrated"\n      number or calibrated; ' in shown
    assert shown.index("risk.scope=") < shown.index("risk.schedule.kind=")


def test_pretraining_has_settings_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["settings", "layers", "--pretrain", "--json"])
    assert json.loads(capsys.readouterr().out)[0] == {
        "key": "layers", "section": "", "allowed": "whole number >= 1", "default": 3, "meaning": "number of them",
    }  # fmt: skip
