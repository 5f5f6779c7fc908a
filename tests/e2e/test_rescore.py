"""Stored rollouts weighed again: with the run's settings what the run logged, with others what training would do."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support import records, small_config, without_seconds
from test_resume import stop_after
from typer.testing import CliRunner

from steprs import build
from steprs.advantages import stepwise_advantages
from steprs.cli import main
from steprs.cli.app import app
from steprs.errors import ConfigError, RunFolderError
from steprs.schedules import LinearSchedule
from steprs.training.interrupt import RunInterrupted
from steprs.training.stored import read_rollouts

LOGGED = (
    "advantage/abs_mean", "mass_grid", "scale_grid", "risk_coef_grid", "groups/dead", "risk/cap_share",
    "risk/rms_scale", "risk/tau_predictable", "risk/binary_exact", "rollout/selection_exact",
)  # fmt: skip
KEPT = "train.store_rollouts=2"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rescore") / "run"
    config = small_config(KEPT, "risk.scale=calibrated", "risk.calibration.prompts=8", "risk.calibration.samples=4")
    return build.train(config, output=folder)


def own(found: build.rescoring.Rescored, folder: Path) -> None:
    """What was rescored is what the run logged, to the last bit."""
    logged = {record["update"]: record for record in records(folder)}
    assert [update.update for update in found.updates] == [1, 2]
    for update in found.updates:
        assert {name: update.metrics[name] for name in LOGGED} == {
            name: logged[update.update][name] for name in LOGGED
        }  # fmt: skip
        assert update.metrics["relative_change"] == 0.0


def test_the_runs_own_settings_give_what_it_logged(run):
    own(build.rescore(run), run)


@pytest.mark.parametrize(
    "settings",
    [
        ("risk.control=shuffle-state", "loss.shrinkage=2"),
        ("risk.control=constant", "risk.reference_pass_rate=0.3"),
        ("risk.baseline=leave-one-out", "risk.cap=1.5", "risk.scale=4"),
        ("risk.rms_match=batch", "loss.aggregation=state-mean", "risk.base=standardised"),
        ("risk.scope=block", "loss.count_dead_groups=false", "sampler.top_k=8"),
    ],
    ids=lambda settings: settings[0],
)
def test_also_for_runs_with_other_settings(settings, tmp_path):
    folder = build.train(small_config(KEPT, "train.updates=2", *settings), output=tmp_path / "run")
    own(build.rescore(folder), folder)


@pytest.mark.parametrize(
    "settings",
    [
        ("risk.schedule.start=0", "risk.schedule.end=1"),
        ("risk.control=flat",),
        ("risk.scale=0",),
        ("risk.control=constant", "risk.reference_pass_rate=0.3"),
        ("risk.calibration.rule=odds",),
        ("loss.aggregation=sequence-mean", "risk.schedule.kind=cosine"),
    ],
    ids=lambda settings: settings[0],
)
def test_other_settings_give_what_a_run_with_them_logs_at_first(settings, run, tmp_path):
    """The first update's rollouts are the base policy's, whatever the settings: training is the reference."""
    frozen = run / "calibration.json"
    trained = tmp_path / "trained"
    config = json.loads((run / "config.json").read_text())
    if "risk.calibration.rule=odds" in settings:
        config["risk"]["calibration"]["rule"] = "odds"
    else:
        trained.mkdir()
        (trained / "calibration.json").write_bytes(frozen.read_bytes())
    from steprs.config import RunConfig, load_config

    changed = load_config(config, ["train.updates=1", *settings], model=RunConfig)
    wanted = records(build.train(changed, output=trained))[0]
    found = build.rescore(run, settings).updates[0].metrics
    assert {name: found[name] for name in LOGGED} == {name: wanted[name] for name in LOGGED}


def test_ratio_correlation_and_change_by_hand(run):
    found = build.rescore(run, ["risk.scale=3", "risk.schedule.start=-1", "risk.schedule.end=1"]).updates[0]
    tensors = {name: tensor.double() for name, tensor in found.tensors.items()}
    made, before, weight = tensors["advantages_BL"], tensors["own_advantages_BL"], tensors["weights_BL"]
    rewards_PG = tensors["rewards_B"].view(-1, 8)
    centred = (rewards_PG - rewards_PG.mean(1, keepdim=True)).flatten()
    squares = {"made": 0.0, "before": 0.0, "change": 0.0, "centred": 0.0}
    a, b = [], []
    for row in range(made.shape[0]):
        for place in range(made.shape[1]):
            v, x, y = float(weight[row, place]), float(made[row, place]), float(before[row, place])
            squares["made"] += v * x * x
            squares["before"] += v * y * y
            squares["change"] += v * (x - y) ** 2
            squares["centred"] += v * float(centred[row]) ** 2
            if v > 0:
                a.append(x)
                b.append(y)
    assert found.metrics["rms_ratio"] == pytest.approx(math.sqrt(squares["made"] / squares["centred"]), rel=1e-9)
    assert found.metrics["relative_change"] == pytest.approx(math.sqrt(squares["change"] / squares["before"]), rel=1e-9)
    wanted = float(torch.corrcoef(torch.tensor([a, b], dtype=torch.float64))[0, 1])
    assert found.metrics["correlation"] == pytest.approx(wanted, rel=1e-9)
    assert 0.3 < found.metrics["correlation"] < 0.9999


def test_a_schedule_takes_the_place_of_the_settings(run):
    schedule = LinearSchedule(4.0, -1.0)
    found = build.rescore(run, schedule=schedule)
    assert (found.schedule, found.control) == ("linear(start=4, end=-1)", "full")
    stored = next(read_rollouts(run))
    shape = (*stored.rewards.rewards_PG.shape, -1)
    tensors = found.updates[0].tensors
    wanted = stepwise_advantages(
        stored.rewards.rewards_PG, tensors["progress_BL"].view(shape), schedule,
        mask_PGL=stored.trajectory.completion_mask_BL.view(shape),
    )  # fmt: skip
    assert tensors["advantages_BL"].view(shape).equal(wanted.values_PGL)


def test_means_leave_out_what_is_missing(run):
    found = build.rescore(run)
    grids = [update.metrics["scale_grid"] for update in found.updates]
    mean = found.mean()
    for row in range(5):
        for column in range(5):
            known = [grid[row][column] for grid in grids if grid[row][column] is not None]
            wanted = sum(known) / len(known) if known else None
            assert mean["scale_grid"][row][column] == (None if wanted is None else pytest.approx(wanted))
    assert sum(sum(row) for row in mean["mass_grid"]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train.group_size=4"], "rescore changes risk"),
        (["sampler.temperature=0.5"], "sampler.temperature belongs to how the rollouts were made"),
        (["risk.calibration.samples=16"], "another measurement"),
        (["risk.control=flatt"], "Did you mean 'flat'"),
        (["risk.cap=2"], "risk.cap is for"),
    ],
)
def test_what_rollouts_cannot_tell_is_refused(words, says, run):
    with pytest.raises(ConfigError, match=says):
        build.rescore(run, words)


def test_runs_that_kept_nothing_or_measured_nothing_are_refused(tmp_path):
    folder = build.train(small_config("train.updates=1"), output=tmp_path / "run")
    with pytest.raises(RunFolderError, match="train.store_rollouts"):
        build.rescore(folder)
    with pytest.raises(RunFolderError, match="is no run"):
        build.rescore(tmp_path)
    other = build.train(small_config("train.updates=1", KEPT), output=tmp_path / "other")
    with pytest.raises(ConfigError, match="measured nothing"):
        build.rescore(other, ["risk.scale=calibrated"])


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a_stopped_run_keeps_the_rollouts_of_an_undisturbed_one(looks, tmp_path, monkeypatch):
    config = small_config("train.store_rollouts=1", "train.updates=2", "loss.inner_updates=2", "train.eval_every=0")
    straight = build.train(config, output=tmp_path / "straight")
    stop_after(monkeypatch, looks)
    stopped = tmp_path / "stopped"
    with pytest.raises(RunInterrupted):
        build.train(config, output=stopped)
    # What a kill would have left beside the checkpoint: half a file, and an update that is made again.
    (stopped / "rollouts/update-000002.safetensors.part").write_bytes(b"torn")
    (stopped / "rollouts/update-000009.safetensors").write_bytes(b"stale")
    monkeypatch.undo()
    build.train(None, resume=True, output=stopped)
    kept = {file.name: file.read_bytes() for file in (straight / "rollouts").iterdir()}
    assert sorted(kept) == ["update-000001.safetensors", "update-000002.safetensors"]
    assert {file.name: file.read_bytes() for file in (stopped / "rollouts").iterdir()} == kept


def test_keeping_rollouts_changes_nothing_else(tmp_path):
    one = build.train(small_config("train.updates=2"), output=tmp_path / "one")
    two = build.train(small_config("train.updates=2", "train.store_rollouts=1"), output=tmp_path / "two")
    assert without_seconds(records(one)) == without_seconds(records(two))
    assert not (one / "rollouts").exists()


class TestCommand:
    def output(self, *words: str) -> str:
        result = CliRunner().invoke(app, ["rescore", *words])
        assert result.exit_code == 0, result.output
        return result.stdout

    def test_tables_and_json_agree(self, run, tmp_path):
        words = [str(run), "risk.schedule.start=0", "risk.schedule.end=1", "--control", "flat"]
        plain = json.loads(self.output(*words, "--format", "json", "-o", str(tmp_path / "out")))
        assert (plain["control"], plain["own_control"]) == ("flat", "full")
        assert plain["mean"] == build.rescore(run, [*words[1:3], "risk.control=flat"]).mean()
        text = self.output(*words)
        assert f"{plain['mean']['rms_ratio']:.3f}" in text
        assert text.count("\n0.8-1 ") == 2, "a row of both grids"
        assert self.output(*words, "--format", "csv").splitlines()[0].startswith("update,mean |A|,RMS / centred")
        assert json.loads((tmp_path / "out/rescore.json").read_text()) == plain
        tensors = load_file(tmp_path / "out/advantages.safetensors")
        again = build.rescore(run, [*words[1:3], "risk.control=flat"]).updates[1].tensors
        assert all(tensors[f"update-000002.{name}"].equal(tensor) for name, tensor in again.items())

    def test_a_schedule_in_words(self, run):
        plain = json.loads(self.output(str(run), "--schedule", "linear 4 -1", "--format", "json"))
        assert plain["schedule"] == "linear(start=4, end=-1)"

    def test_mistakes_are_one_line(self, tmp_path, capsys):
        with pytest.raises(SystemExit) as stop:
            main(["rescore", str(tmp_path / "nowhere")])
        assert stop.value.code == 2
        assert "holds no config.json" in capsys.readouterr().err


def test_other_estimators_weigh_the_same_rollouts(run: Path) -> None:
    found = build.rescore(run, ["advantage.estimator=maxrl"])
    stored = next(read_rollouts(run))
    rewards_PG = stored.rewards.rewards_PG
    wanted_PG = (rewards_PG - rewards_PG.mean(1, keepdim=True)) / (rewards_PG.mean(1, keepdim=True) + 1e-6)
    values_BL = found.updates[0].tensors["advantages_BL"]
    assert torch.allclose(values_BL[:, 0].view_as(wanted_PG), wanted_PG * (wanted_PG != 0), atol=1e-9)
    assert found.schedule.startswith("maxrl(") and found.own_schedule.startswith("linear(")
    anchored = build.rescore(run, ["advantage.estimator=state-anchor"]).updates[0].metrics
    assert 0 < anchored["estimator/shared_fraction"] <= 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("advantage.estimator=egspo-sa", "state_rewards_PGS, which is not kept"),
        ("advantage.steps_used={kind: step-pruner}", "belongs to how the rollouts were made"),
        ("advantage.components={right: 1, ended: 1}", "belongs to how the rollouts were made"),
        ("advantage.reference_samples=9", "belongs to how the rollouts were made"),
    ],
)
def test_what_stored_rollouts_cannot_give_is_refused(run: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build.rescore(run, [override])


def test_a_run_of_an_estimator_that_collects_is_rescored_beside_centred_grpo(tmp_path: Path) -> None:
    folder = build.train(small_config(KEPT, "advantage.estimator=egspo-sa", "train.updates=1"), output=tmp_path / "run")
    found = build.rescore(folder, ["advantage.estimator=centred"])
    assert found.own_schedule.startswith("centred GRPO in place of egspo-sa")
    assert found.updates[0].metrics["relative_change"] == 0.0


def test_idle_risk_settings_are_refused_and_options_of_another_estimator_can_be_dropped(tmp_path: Path) -> None:
    config = small_config(KEPT, "advantage.estimator=pkpo", "advantage.options={k: 3}", "train.updates=1")
    folder = build.train(config, output=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"risk\.schedule\.end=1 changes nothing: estimator 'pkpo'"):
        build.rescore(folder, ["risk.schedule.end=1"])
    with pytest.raises(ConfigError, match="advantage.options=null"):
        build.rescore(folder, ["advantage.estimator=maxrl"])
    found = build.rescore(folder, ["advantage.estimator=maxrl", "advantage.options=null"])
    assert found.schedule.startswith("maxrl(")
