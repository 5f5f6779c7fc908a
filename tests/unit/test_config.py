"""Files, inheritance, overrides, and what a wrong setting is answered with."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from steprs.config import EvalConfig, PretrainConfig, RunConfig, ScheduleConfig, load_config
from steprs.configs import find_config
from steprs.errors import ConfigError


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


class TestFiles:
    def test_yaml_and_its_json_dump_are_the_same_run(self, tmp_path: Path) -> None:
        file = write(tmp_path, "run.yaml", "train: {updates: 7}\nrisk: {scale: 2.5}\neval: {k: [1, 2], samples: 4}\n")
        run = load_config(file, model=RunConfig)
        dump = write(tmp_path, "config.json", run.model_dump_json())
        assert load_config(dump, model=RunConfig) == run
        assert json.loads(dump.read_text())["train"]["updates"] == 7

    def test_an_empty_file_is_the_defaults(self, tmp_path: Path) -> None:
        assert load_config(write(tmp_path, "run.yaml", ""), model=RunConfig) == RunConfig()

    def test_exponents_without_a_point_are_numbers(self, tmp_path: Path) -> None:
        # YAML 1.1 reads 1e-6 as text; a learning rate that is text must not get through, nor be refused.
        file = write(tmp_path, "run.yaml", "train: {learning_rate: 1e-6}\n")
        assert load_config(file, model=RunConfig).train.learning_rate == 1e-6
        assert load_config({}, ["train.learning_rate=3e-4"], model=RunConfig).train.learning_rate == 3e-4

    @pytest.mark.parametrize(
        ("text", "says"),
        [("- 1\n- 2\n", "holds a list"), ("a: [1\n", "is not YAML"), ("a: !!python/name:os.system\n", "is not YAML")],
    )
    def test_what_is_no_mapping_is_refused(self, tmp_path: Path, text: str, says: str) -> None:
        with pytest.raises(ConfigError, match=says):
            load_config(write(tmp_path, "run.yaml", text), model=RunConfig)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
            load_config(tmp_path / "nowhere.yaml", model=RunConfig)


class TestBase:
    def test_sections_are_laid_over_each_other(self, tmp_path: Path) -> None:
        write(tmp_path, "base.yaml", "seed: 1\ntrain: {updates: 5, group_size: 8}\n")
        child = write(tmp_path, "deeper/child.yaml", "base: ../base.yaml\ntrain: {updates: 9}\n")
        run = load_config(child, model=RunConfig)
        assert (run.seed, run.train.updates, run.train.group_size) == (1, 9, 8)

    def test_lists_are_replaced_not_joined(self, tmp_path: Path) -> None:
        write(tmp_path, "base.yaml", "eval: {k: [1, 4, 16]}\n")
        child = write(tmp_path, "child.yaml", "base: base.yaml\neval: {k: [2]}\n")
        assert load_config(child, model=RunConfig).eval.k == (2,)

    def test_a_circle_is_named(self, tmp_path: Path) -> None:
        write(tmp_path, "a.yaml", "base: b.yaml\n")
        file = write(tmp_path, "b.yaml", "base: a.yaml\n")
        with pytest.raises(ConfigError, match=r"circle.*a\.yaml"):
            load_config(file, model=RunConfig)

    def test_a_base_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"gone\.yaml"):
            load_config(write(tmp_path, "a.yaml", "base: gone.yaml\n"), model=RunConfig)


class TestOverrides:
    @pytest.mark.parametrize(
        ("override", "read"),
        [
            ("train.updates=3", lambda run: run.train.updates == 3),
            ("eval.k=[1, 2]", lambda run: run.eval.k == (1, 2)),
            ("sampler.steps=null", lambda run: run.sampler.steps is None),
            ("policy.gradient_checkpointing=true", lambda run: run.policy.gradient_checkpointing is True),
            ("risk.schedule.kind=cosine", lambda run: run.risk.schedule.kind == "cosine"),
            ("task.options={numbers: 3}", lambda run: run.task.options == {"numbers": 3}),
            ("task.options.numbers=3", lambda run: run.task.options == {"numbers": 3}),
            ("policy.path=a=b", lambda run: run.policy.path == "a=b"),
        ],
    )
    def test_values_mean_what_they_say(self, override: str, read) -> None:  # type: ignore[no-untyped-def]
        assert read(load_config({}, [override], model=RunConfig))

    def test_the_last_one_wins(self) -> None:
        assert load_config({"seed": 1}, ["seed=2", "seed=3"], model=RunConfig).seed == 3

    def test_null_clears_what_the_file_set(self) -> None:
        run = load_config({"sampler": {"steps": 6}}, ["sampler.steps=null"], model=RunConfig)
        assert run.sampler.steps is None

    def test_null_where_a_number_is_needed_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"train\.updates"):
            load_config({}, ["train.updates=null"], model=RunConfig)

    @pytest.mark.parametrize("word", ["train.updates", "=3", ""])
    def test_a_word_without_a_value_is_refused(self, word: str) -> None:
        with pytest.raises(ConfigError, match=r"section\.key=value"):
            load_config({}, [word], model=RunConfig)


class TestMistakes:
    def test_the_nearest_key_is_suggested_with_its_path(self) -> None:
        with pytest.raises(ConfigError, match=r"train\.update.*unknown setting.*Did you mean 'updates'"):
            load_config({}, ["train.update=3"], model=RunConfig)

    def test_the_nearest_section_is_suggested(self) -> None:
        with pytest.raises(ConfigError, match="Did you mean 'sampler'"):
            load_config({"samplr": {}}, model=RunConfig)

    def test_the_nearest_value_is_suggested(self) -> None:
        with pytest.raises(ConfigError, match=r"risk\.schedule\.kind.*given: 'liner'.*Did you mean 'linear'"):
            load_config({}, ["risk.schedule.kind=liner"], model=RunConfig)

    def test_nested_schedules_are_checked_too(self) -> None:
        wrong = {"risk": {"schedule": {"kind": "pass-rate", "below": {"knd": "linear"}}}}
        with pytest.raises(ConfigError, match="knd"):
            load_config(wrong, model=RunConfig)

    def test_every_mistake_is_told_at_once(self) -> None:
        with pytest.raises(ConfigError) as caught:
            load_config({}, ["seed=-1", "train.group_size=0"], model=RunConfig)
        assert "seed" in str(caught.value)
        assert "train.group_size" in str(caught.value)

    def test_the_file_is_named(self, tmp_path: Path) -> None:
        file = write(tmp_path, "mine.yaml", "sede: 1\n")
        with pytest.raises(ConfigError, match=r"mine\.yaml"):
            load_config(file, model=RunConfig)

    def test_k_beyond_the_samples_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="32"):
            load_config({}, ["eval.k=[1, 32]", "eval.samples=16"], model=RunConfig)

    def test_it_is_a_value_error(self) -> None:
        with pytest.raises(ValueError):
            load_config({"nonsense": 1}, model=RunConfig)

    def test_kv_heads_divide_heads(self) -> None:
        with pytest.raises(ConfigError, match="kv_heads 3 must divide heads 2"):
            load_config({}, ["kv_heads=3"], model=PretrainConfig)


def test_records_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        RunConfig().seed = 5  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        ScheduleConfig().start = 2.0  # type: ignore[misc]


def test_lengths_come_from_one_place() -> None:
    """No setting but the sampler's says how long a completion is, and it has no number of its own."""
    assert RunConfig().sampler.length is None
    assert not [name for name in EvalConfig.model_fields if "length" in name or "tokens" in name]


class TestFilesThatWouldBeMisread:
    def test_a_key_that_stands_twice(self, tmp_path: Path) -> None:
        (tmp_path / "run.yaml").write_text("train:\n  updates: 3\ntrain:\n  group_size: 4\n")
        with pytest.raises(ConfigError, match="key 'train' stands twice in one section, the second time in line 3"):
            load_config(tmp_path / "run.yaml", model=RunConfig)

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "run.yaml").write_bytes(b"\xff\xfe\x81")
        with pytest.raises(ConfigError, match="not UTF-8"):
            load_config(tmp_path / "run.yaml", model=RunConfig)

    def test_base_may_be_a_shipped_name(self, tmp_path: Path) -> None:
        (tmp_path / "run.yaml").write_text("base: train/countdown\nseed: 7\n")
        shipped = load_config(find_config("train/countdown"), model=RunConfig)
        assert load_config(tmp_path / "run.yaml", model=RunConfig) == shipped.model_copy(update={"seed": 7})

    def test_base_that_is_neither(self, tmp_path: Path) -> None:
        (tmp_path / "run.yaml").write_text("base: [1]\n")
        with pytest.raises(ConfigError, match=r"base is \[1\]"):
            load_config(tmp_path / "run.yaml", model=RunConfig)

    @pytest.mark.parametrize(
        ("override", "said"),
        [
            ("train.learning_rate=.inf", "finite"),
            ("train.updates=true", "no true or false"),
            ("risk.schedule={kind: linear, gamma: 2}", "gamma means nothing for kind 'linear'"),
            ("risk.calibration.rule=target", "rule 'target' and target go together"),
            ("eval.k=[]", "numbers of tries from 1 on"),
        ],
    )
    def test_values_that_mean_nothing(self, override: str, said: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(said)):
            load_config(None, [override], model=RunConfig)
