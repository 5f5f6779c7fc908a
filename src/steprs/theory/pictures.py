"""Pictures of the theory: weight curves, landmarks, heat maps, the laboratory. matplotlib, without a display."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..calibration import calibrate_risk
from ..drawing import COLOURS, DASHES, INK, MARKERS, MUTED, canvas
from ..errors import ArgumentError
from ..risk import crossover_pass_rate
from ..schedules import AbstractSchedule
from .lab import LabResult
from .scales import schedule_scales
from .weights import prompt_weights

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
FINE = torch.arange(1, 200, dtype=torch.float64) / 200
DRAWN_RULES = ("halve-failure", "odds", "log-inverse", "max-scale", "crossover")


def checked_path(path: Path) -> Path:
    """The path, if its ending names a picture.

    Raises:
        ArgumentError: another ending.

    >>> checked_path(Path("curve.svg")).name
    'curve.svg'
    """
    if path.suffix.lower() not in FORMATS:
        raise ArgumentError(f"{path} is no picture; end it with {' or '.join(FORMATS)} (tables: --format, and > FILE)")
    return path


def draw_curves(path: Path, risk_coefs: Sequence[float], *, group_sizes: Sequence[int], k: Sequence[int]) -> Path:
    """c at the left and sqrt(p (1 - p)) c at the right, over the pass rate, with c_G and the neighbours."""
    weights = prompt_weights(FINE.tolist(), risk_coefs, group_sizes=group_sizes, k=k)
    with _picture(path, 8.6, 4.0) as figure:
        left, right = figure.subplots(1, 2)
        _curves(left, weights)
        _curves(right, {name: (FINE * (1 - FINE)).sqrt() * w_N for name, w_N in weights.items()})
        left.set_title("weight of a prompt")
        _logarithmic(left)
        left.set_ylim(0.1, 40)
        right.set_title("RMS advantage in a group")
        right.set_ylim(0, 2)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return path


def draw_compare(path: Path, weights: Mapping[str, Tensor], pass_rates: Sequence[float], *, same_mean: bool) -> Path:
    """The weights at the given pass rates on a logarithmic axis."""
    with _picture(path, 5.6, 3.8) as figure:
        axes = figure.subplots()
        for number, (name, w_N) in enumerate(weights.items()):
            axes.plot(pass_rates, w_N.tolist(), **_look(number), label=name)
        _logarithmic(axes)
        axes.set_ylim(bottom=max(axes.get_ylim()[0], 0.01))
        axes.set_xlabel("pass rate of the prompt")
        axes.set_ylabel("weight over its mean" if same_mean else "weight")
        axes.legend(ncols=2)
    return path


def draw_landmarks(path: Path) -> Path:
    """Left: crossover and peaks by coefficient. Right: the coefficient of each rule by the measured pass rate."""
    coefs = torch.linspace(-8, 8, 321, dtype=torch.float64)
    marks = {
        "crossover p*, c = 1": crossover_pass_rate(coefs),
        "RMS peak, sigmoid(-b)": torch.sigmoid(-coefs),
        "mean |A| peak, sigmoid(-b/2)": torch.sigmoid(-coefs / 2),
    }
    rates = FINE[FINE.ne(0.5)].tolist()
    with _picture(path, 8.6, 3.6) as figure:
        left, right = figure.subplots(1, 2)
        for number, (name, values) in enumerate(marks.items()):
            left.plot(coefs.tolist(), values.tolist(), **_look(number) | {"marker": ""}, label=name)
        left.set_xlabel("risk coefficient b")
        left.set_ylabel("pass rate")
        for number, rule in enumerate(DRAWN_RULES):
            given = [calibrate_risk(p, rule) for p in rates]  # type: ignore[arg-type]
            right.plot(rates, given, **_look(number) | {"marker": ""}, label=rule)
        right.set_xlabel("measured pass rate p0")
        right.set_ylabel("risk coefficient")
        right.set_ylim(-6, 6)
        for axes in (left, right):
            axes.legend()
    return path


def draw_schedule(path: Path, schedule: AbstractSchedule, *, group_size: int | None) -> Path:
    """The heat map c(p, b(tau)): orange where a state of a prompt is amplified, purple where it is damped."""
    tau = torch.linspace(0, 1, 101, dtype=torch.float64).tolist()
    scales_NT = schedule_scales(schedule, FINE.tolist(), tau, group_size=group_size)
    logs_NT = scales_NT.log2()
    reach = max(0.25, float(logs_NT.abs().max()))
    with _picture(path, 5.4, 4.0) as figure:
        axes = figure.subplots()
        axes.grid(False)
        image = axes.imshow(
            logs_NT.numpy(), origin="lower", extent=(0.0, 1.0, 0.0, 1.0), aspect="auto", cmap="PuOr_r",
            vmin=-reach, vmax=reach,
        )  # fmt: skip
        low, high = float(scales_NT.min()), float(scales_NT.max())
        levels = [2.0**power for power in range(-int(reach), int(reach) + 1) if low < 2.0**power < high]
        if levels:
            contours = axes.contour(tau, FINE.tolist(), scales_NT.numpy(), levels=levels, colors=INK, linewidths=0.8)
            axes.clabel(contours, fmt=lambda value: f"{value:g}")
        axes.set_xlabel("denoising progress")
        axes.set_ylabel("pass rate of the prompt")
        axes.set_title(textwrap.fill(schedule.describe(), 48))
        name = "c" if group_size is None else f"c_{group_size}"
        figure.colorbar(image, label=f"log2 {name}(p, b(tau))")
    return path


def draw_finite_groups(
    path: Path, schedule: AbstractSchedule, group_sizes: Sequence[int], progress: Sequence[float]
) -> Path:
    """c and c_G over the pass rate, one panel a value of tau."""
    with _picture(path, 2.9 * len(progress) + 1.0, 3.6) as figure:
        panels = figure.subplots(1, len(progress), sharey=True, squeeze=False)[0]
        for axes, tau in zip(panels, progress, strict=True):
            found = {"c": schedule_scales(schedule, FINE.tolist(), [tau])[:, 0]}
            for size in group_sizes:
                found[f"c_{size}"] = schedule_scales(schedule, FINE.tolist(), [tau], group_size=size)[:, 0]
            _curves(axes, found)
            axes.set_title(f"tau = {tau:g}")
        panels[0].set_ylabel("factor on the gradient of p")
        panels[0].legend()
    return path


def draw_lab(path: Path, result: LabResult) -> Path:
    """Left: pass@k against pass@1 along the updates. Right: differences to centred after the last, +- one SE."""
    gap_EQ, error_EQ = (values.tolist() for values in result.differences())
    mean_EUQ = result.values_EUQI.mean(-1)
    with _picture(path, 9.0, 4.2) as figure:
        left, *panels = figure.subplots(1, 1 + len(result.measures), width_ratios=[2.2, 1, 1, 1])
        for e, label in enumerate(result.labels):
            along = mean_EUQ[e]
            last = [len(along) - 1]
            left.plot(along[:, 0].tolist(), along[:, 1].tolist(), markevery=last, **_look(e), label=label)
        left.set_xlabel("pass@1 on held-out prompts")
        left.set_ylabel(result.measures[1])
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        for q, axes in enumerate(panels):
            for e in range(1, len(result.labels)):
                axes.errorbar(gap_EQ[e][q], -e, xerr=error_EQ[e][q], **_look(e) | {"linestyle": "none"})
            axes.axvline(0, color=MUTED, linewidth=1)
            axes.set_yticks([])  # markers and colours are those of the legend
            axes.set_title(f"{result.measures[q]}\nminus centred")
    return path


def _curves(axes: Axes, curves: Mapping[str, Tensor]) -> None:
    for number, (name, values_N) in enumerate(curves.items()):
        axes.plot(FINE.tolist(), values_N.tolist(), **_look(number) | {"marker": ""}, label=name)
    axes.set_xlabel("pass rate of the prompt")


def _logarithmic(axes: Axes) -> None:
    """A logarithmic vertical axis whose labels are plain numbers; house style reads no mathematics."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


@contextmanager
def _picture(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure that is written to `path` at the end; the same numbers give the same bytes."""
    with canvas(width, height) as figure:
        yield figure
        path.parent.mkdir(parents=True, exist_ok=True)
        stamp = {"Date": None} if path.suffix.lower() == ".svg" else {}
        figure.savefig(path, dpi=180, metadata={"Title": "steprs theory", **stamp})


def _look(number: int) -> dict[str, Any]:
    """What is compared with in ink, the others in colour; the second round of colours has other dashes."""
    lap, place = divmod(number - 1, len(COLOURS))
    return {
        "color": COLOURS[place] if number else INK,
        "linestyle": DASHES[lap % len(DASHES)] if number else "-",
        "linewidth": 1.7 if number else 1.4,
        "marker": MARKERS[(place + lap) % len(MARKERS)] if number else "X",
        "markersize": 4.5,
    }
