"""A sweep as a chart: memory across, the hall's first goal up.

A ring marks the builds on the front over all its axes; the line is the front of the two that are
drawn.

matplotlib (extra `report`) is imported when a chart is drawn and never before: it brings numpy,
which the interface does without. Equal sweeps give equal files: no date and no chance in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.clean import clean
from engine.metrics import METRICS
from game import theme
from game.proof import show_build
from game.rules.pareto import AXES
from game.sweep import Row, axes_of, front_of
from story.schema import Stage

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Say = Callable[..., str]

MARKS: Mapping[str, tuple[str, str]] = {
    "pass": ("o", theme.CYAN_BRIGHT),
    "fail": ("X", theme.VIOLET),
    "inconclusive": ("D", theme.BRONZE),
}
"""A verdict's shape and colour; the shape alone tells it."""

SIZE_INCHES = (8.0, 5.0)
FONTS = ("Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", "DejaVu Sans")
"""Tried in this order, those that are installed: Chinese names, then matplotlib's own."""


def plotted(stage: Stage, rows: Sequence[Row]) -> tuple[str, list[tuple[int, float, float]]]:
    """The metric that goes up, and (row, megabytes, figure) of every row that has both."""
    up = stage.goals[0].metric if stage.goals else AXES[0]
    points = []
    for number, row in enumerate(rows):
        memory, height = row.figure("memory_bytes"), row.figure(up)
        if row.believed and memory is not None and height is not None:
            points.append((number, memory / 1e6, height))
    return up, points


def draw(path: Path, stage: Stage, rows: Sequence[Row], say: Say, name: str = "") -> None:
    """Write the chart to `path` as SVG; `name` is the hall's, its id unless said.

    Raises:
        OSError: that file cannot be written.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.font_manager import fontManager

    up, points = plotted(stage, rows)
    installed = {font.name for font in fontManager.ttflist}
    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "latency-wall",
        "font.family": [font for font in FONTS if font in installed] or ["sans-serif"],
        "axes.unicode_minus": False,
        "text.parse_math": False,
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=SIZE_INCHES, facecolor=theme.INK, layout="constrained")
        axes = figure.add_subplot(facecolor=theme.INK)
        _frame(axes, stage, up, say, name or stage.id)
        _front(axes, points, front_of(rows, (up, "memory_bytes")))
        _points(axes, points, rows, say)
        _rings(axes, points, front_of(rows, axes_of(stage, rows)), say)
        if points:
            axes.legend(frameon=False, labelcolor=theme.MIST, loc="best").set_zorder(5)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": "Latency Wall"})


def _frame(axes: Axes, stage: Stage, up: str, say: Say, name: str) -> None:
    # A ratio's name says already what it is a multiple of.
    unit = METRICS[up].unit if METRICS[up].kind == "absolute" else ""
    axes.set_title(clean(say("sweep.plot.title", hall=name), one_line=True), loc="left",
                   color=theme.BRONZE_BRIGHT, fontsize=13, pad=14)  # fmt: skip
    axes.set_xlabel(say("sweep.plot.memory"), color=theme.MIST)
    axes.set_ylabel(say(f"metric.{up}") + (f" ({unit})" if unit else ""), color=theme.MIST)
    axes.tick_params(colors=theme.MIST, which="both", length=3)
    axes.grid(color=theme.CYAN_DIM, linewidth=0.6, alpha=0.6)
    axes.set_axisbelow(True)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(theme.FAINT)
    if stage.goals and stage.goals[0].metric == up:
        axes.axhline(
            stage.goals[0].bound, color=theme.BRONZE_DIM, linewidth=1, linestyle=(0, (6, 4))
        )
        axes.annotate(
            say("sweep.plot.goal", bound=f"{stage.goals[0].op} {stage.goals[0].bound:g}"),
            (1.0, stage.goals[0].bound),
            xycoords=("axes fraction", "data"),
            xytext=(0, 4),
            textcoords="offset points",
            ha="right",
            color=theme.BRONZE,
            fontsize=9,
        )


def _front(axes: Axes, points: Sequence[tuple[int, float, float]], best: frozenset[int]) -> None:
    """The front's builds joined from the smallest memory to the largest."""
    line = sorted((memory, height) for number, memory, height in points if number in best)
    if len(line) > 1:
        axes.plot(*zip(*line, strict=True), color=theme.SILVER, linewidth=1.2, alpha=0.7, zorder=2)


def _points(
    axes: Axes, points: Sequence[tuple[int, float, float]], rows: Sequence[Row], say: Say
) -> None:
    for word, (shape, colour) in MARKS.items():
        mine = [point for point in points if rows[point[0]].word == word]
        if not mine:
            continue
        axes.scatter(
            [memory for _, memory, _ in mine],
            [height for _, _, height in mine],
            marker=shape,
            s=70,
            color=colour,
            edgecolors=theme.INK,
            linewidths=0.8,
            label=say(f"sweep.word.{word}"),
            gid=f"points-{word}",
            zorder=3,
        )
    for number, memory, height in points:
        axes.annotate(
            clean(show_build(rows[number].build), one_line=True),
            (memory, height),
            xytext=(7, 5),
            textcoords="offset points",
            color=theme.MIST,
            fontsize=8,
        )
    if not points:
        axes.text(0.5, 0.5, say("sweep.plot.nothing"), transform=axes.transAxes, ha="center",
                  color=theme.MIST)  # fmt: skip
    axes.margins(0.12)


def _rings(
    axes: Axes, points: Sequence[tuple[int, float, float]], best: frozenset[int], say: Say
) -> None:
    ringed = [(memory, height) for number, memory, height in points if number in best]
    if ringed:
        axes.scatter(
            [memory for memory, _ in ringed],
            [height for _, height in ringed],
            s=190,
            facecolors="none",
            edgecolors=theme.SILVER,
            linewidths=1.1,
            label=say("sweep.plot.front"),
            gid="rings-front",
            zorder=3,
        )
