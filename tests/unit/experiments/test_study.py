"""A study is a product of fields; what its runs are called by decides what is shared and what is run again."""

from __future__ import annotations

import json

import pytest

from steprs.cli.study import _seeds
from steprs.config import flat_overrides, load_config
from steprs.errors import ConfigError, RunFolderError
from steprs.experiments import runner
from steprs.experiments.pieces import MEASURED, measurement
from steprs.experiments.presets import PRESETS, preset
from steprs.experiments.runner import lay_out, run_study
from steprs.experiments.store import Store, weights_digest
from steprs.experiments.study import Arm, Context, Study, load_study

ARMS = (Arm(label="a", fields={"risk.scale": 0}), Arm(label="b", fields={"risk.scale": 2, "train.updates": 7}))


def study(**changes):
    return Study(**{"name": "mine", "baseline": "a", "arms": ARMS, "seeds": (1, 2), **changes})


def test_every_arm_runs_in_every_context_seed_by_seed():
    planned = study(contexts=(Context(name="x", fields={"train.group_size": 4}), Context(name="y"))).planned()
    assert [(run.seed, run.context.name, run.arm.label) for run in planned] == [
        (seed, context, arm) for seed in (1, 2) for context in "xy" for arm in "ab"
    ]
    assert {run.config.seed for run in planned if run.seed == 2} == {2}
    assert [run.config.train.group_size for run in planned[:4]] == [4, 4, 16, 16]


def test_an_arm_wins_over_its_context_and_the_context_over_the_study():
    made = study(fields={"train.updates": 3}, contexts=(Context(name="x", fields={"train.updates": 5}),))
    assert [run.config.train.updates for run in made.planned()[:2]] == [5, 7]


def test_a_wrong_field_is_named_before_anything_runs(tmp_path):
    wrong = study(arms=(*ARMS, Arm(label="c", fields={"risk.scales": 1})))
    with pytest.raises(ConfigError, match=r"risk\.scales: unknown setting.*Did you mean 'scale'"):
        run_study(wrong, tmp_path / "study")
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"baseline": "aa"}, "unknown baseline 'aa'"),
        ({"arms": (*ARMS, ARMS[0])}, "'a' stands twice"),
        ({"seeds": (1, 1)}, "1 stands twice"),
        ({"seeds": ()}, "at least 1 item"),
        ({"arms": (Arm(label="base"), *ARMS)}, "'base' is the label of an arm and of the base policy"),
        ({"measure": {"samples": 8, "k": [16]}}, r"k is \[16\]"),
    ],
)
def test_contradictions_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        load_config({**study().model_dump(mode="json"), **_plain(changes)}, model=Study)


def _plain(changes):
    dump = lambda value: [arm.model_dump() for arm in value]  # noqa: E731
    return {key: dump(value) if key == "arms" else value for key, value in changes.items()}


def test_a_study_file_is_the_study(tmp_path):
    from yaml import safe_dump

    original = preset("capability")
    (tmp_path / "mine.yaml").write_text(safe_dump(original.model_dump(mode="json")))
    assert load_study(tmp_path / "mine.yaml") == original


def test_the_hash_is_of_what_changes_numbers(tmp_path):
    store, config = Store(tmp_path), study().planned()[1].config
    place = store.run(config, {})
    train = config.train
    assert store.run(config.model_copy(update={"name": "other", "output": "elsewhere"}), {}) == place
    assert (
        store.run(config.model_copy(update={"train": train.model_copy(update={"trackers": ("wandb",)})}), {}) == place
    )
    for section, change in (("train", {"updates": 8}), ("risk", {"scale": 3.0}), ("sampler", {"temperature": 0.9})):
        changed = getattr(config, section).model_copy(update=change)
        assert store.run(config.model_copy(update={section: changed}), {}) != place
    assert store.run(config.model_copy(update={"seed": 9}), {}) != place
    assert store.run(config, {"problems": 64}) != place, "two measurements in one folder would replace each other"


def test_other_weights_under_the_same_path_are_another_run(tmp_path):
    policy = tmp_path / "policy"
    policy.mkdir()
    (policy / "model.safetensors").write_bytes(b"one")
    first = weights_digest(str(policy))
    weights_digest.cache_clear()
    (policy / "model.safetensors").write_bytes(b"two")
    assert weights_digest(str(policy)) != first
    assert weights_digest("tiny") != "" and weights_digest("tiny") != weights_digest("tiny-full")


def test_studies_share_runs_and_measurements(tmp_path):
    main, controls = (lay_out(preset(name), Store(tmp_path)) for name in ("main", "mass-controls"))
    of = lambda layout, label: [r.folder for r in layout.runs if r.planned.arm.label == label]  # noqa: E731
    for label in ("centred GRPO", "StepRS decreasing"):
        assert of(main, label)[:4] == of(controls, label)
    assert main.bases[""] == controls.bases[""]
    assert {run.calibration for run in main.runs} - {None} == {run.calibration for run in controls.runs} - {None}


@pytest.mark.parametrize("name", PRESETS)
def test_the_arms_of_a_preset_are_different_runs(name, tmp_path):
    made = preset(name)
    assert made.name == name and made.claim.endswith(".")
    planned = made.planned()
    folders = {Store(tmp_path).run(run.config, {}) for run in planned if run.context == made.contexts[0]}
    assert len(folders) == len(made.arms) * len(made.seeds)
    assert {run.config.policy.dtype for run in planned} == {"float32"}


def test_unknown_preset_says_which_there_are():
    with pytest.raises(ConfigError, match="no file mian, and unknown study 'mian'; allowed: .*Did you mean 'main'"):
        preset("mian")


def test_the_weights_count_and_not_the_spelling_of_their_path(tmp_path, monkeypatch):
    policy = tmp_path / "policy"
    policy.mkdir()
    (policy / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "model.safetensors").write_bytes(b"weights")
    monkeypatch.chdir(tmp_path)
    places = {
        Store("s").run(study(fields={"policy.path": spelt}).planned()[0].config, {})
        for spelt in (str(policy), "policy", "./policy/", str(tmp_path / "moved"))
    }
    assert len(places) == 1


def test_a_setting_for_all_runs_must_reach_all_of_them():
    assert preset("main").with_fields({"train.updates": 5}).planned()[-1].config.train.updates == 5
    with pytest.raises(
        ConfigError, match=r"risk\.schedule\.start is what 'constant RS-GRPO' of study main sets itself"
    ):
        preset("main").with_fields({"risk.schedule.start": 2})
    with pytest.raises(ConfigError, match="train.group_size is what 'G = 4' of study group-size sets itself"):
        preset("group-size").with_fields({"train.group_size": 2})
    for name in ("seed", "name", "output"):
        with pytest.raises(ValueError, match=f"{name} cannot be a field"):
            preset("main").with_fields({name: 3})


def test_a_smoke_test_is_short_whatever_an_arm_sets():
    long = study(
        arms=(*ARMS, Arm(label="long", fields={"train.updates": 300})),
        contexts=(Context(name="x", fields={"train.updates": 400}),),
    ).smoke()
    assert long.name == "mine-smoke" and {run.config.train.updates for run in long.planned()} == {4}


def test_an_arm_that_cannot_be_is_named():
    wrong = study(arms=(*ARMS, Arm(label="mine", fields={"risk.scale": "large"})))
    with pytest.raises(ConfigError, match=r"study mine, arm 'mine': .*risk\.scale"):
        wrong.planned()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["policy.path=2026-01-01"], "a date is no setting"),
        (["risk.scale=[1"], "the value is not YAML"),
        (["train.updates=.inf"], "is no setting"),
    ],
)
def test_overrides_that_are_no_settings(words, message):
    with pytest.raises(ConfigError, match=message):
        flat_overrides(words)


@pytest.fixture
def no_processes(monkeypatch):
    """Stages replaced by notes of what was asked."""
    asked = []
    monkeypatch.setattr(runner, "run_jobs", lambda jobs, folder, **_: asked.append([job.name for job in jobs]))
    monkeypatch.setattr(runner, "report", lambda folder: asked.append("report"))
    return asked


def test_the_same_folder_takes_the_same_study_or_more_seeds(no_processes, tmp_path):
    folder = tmp_path / "study"
    run_study(study(), folder)
    run_study(study(), folder)
    run_study(study(seeds=(1, 2, 3)), folder)
    assert json.loads((folder / "study.json").read_text())["seeds"] == [1, 2, 3]
    with pytest.raises(ConfigError, match=r"holds another study \(differs in seeds\)"):
        run_study(study(seeds=(4,)), folder)
    with pytest.raises(ConfigError, match=r"holds another study \(differs in fields\)"):
        run_study(study(seeds=(1, 2, 3), fields={"train.updates": 9}), folder)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    with pytest.raises(RunFolderError, match="holds other files"):
        run_study(study(), tmp_path / "thesis")


def test_policies_then_calibrations_then_runs(no_processes, tmp_path):
    run_study(study(contexts=(Context(name="weak", pretrain={"fields": {"updates": 5}}),)), tmp_path / "study")
    policies, calibrations, runs, last = no_processes
    assert policies == ["policy-weak"] and calibrations == [], "an absolute scale needs none"
    assert [name.split("-")[0] for name in runs] == ["base", "run", "run", "run", "run"] and last == "report"


def test_the_manifest_lists_what_is_finished(no_processes, tmp_path):
    folder = tmp_path / "study"
    run_study(study(), folder)
    layout = lay_out(study(), Store(tmp_path / "store"))
    empty = json.loads((folder / "manifest.json").read_text())
    assert empty["coverage"] == {"runs_planned": 4, "runs_finished": 0} and empty["contexts"][0]["arms"] == []
    first = layout.runs[1]
    first.folder.mkdir(parents=True)
    way = {"temperature": None, "samples": 32, "k": [1, 4, 16, 32], "traces": 12, "backslides": 32}
    (first.folder / MEASURED).write_text(json.dumps(measurement(512, way)))
    run_study(study(), folder)
    lost = json.loads((folder / "manifest.json").read_text())
    assert lost["coverage"]["runs_finished"] == 0, "a measurement whose evaluation is gone is made again"
    for name in ("eval.json", "traces.json"):
        (first.folder / name).write_text("{}")
    run_study(study(), folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["coverage"]["runs_finished"] == 1
    assert manifest["contexts"] == [
        {
            "name": "",
            "baseline": "a",
            "arms": [
                {
                    "label": "b",
                    "kind": "trained",
                    "folders": [f"../store/{first.folder.name}"],
                    "seeds": [1],
                    "fields": ARMS[1].fields,
                }
            ],
        }
    ]


@pytest.mark.parametrize(("text", "seeds"), [("2", (7, 8)), ("1,5", (1, 5)), ("4,", (4,))])
def test_seeds_by_number_or_by_name(text, seeds):
    assert _seeds(text, (7, 8, 9)) == seeds


@pytest.mark.parametrize("text", ["0", "4", "x", "1,1", "", "²"])
def test_seeds_that_cannot_be(text):
    with pytest.raises(ConfigError, match="--seeds"):
        _seeds(text, (7, 8, 9))
