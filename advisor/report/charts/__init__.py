"""Pictures: each drawing of advisor/report/figures.py becomes a Scene, scene.svg.j2 writes it."""

from collections.abc import Callable
from typing import Any

from advisor.report import figures
from advisor.report.charts.busbw import busbw_plot
from advisor.report.charts.columns import step_columns
from advisor.report.charts.dots import step_times
from advisor.report.charts.heatmap import heat_map, shortfall_matrix
from advisor.report.charts.scene import Scene
from advisor.report.charts.stacked import gain_bar, stacked_bars, step_bar
from advisor.report.charts.timeline import timeline

_DRAW: dict[type, Callable[[Any], Scene]] = {
    figures.StackedBars: stacked_bars,
    figures.StepBar: step_bar,
    figures.StepColumns: step_columns,
    figures.GainBar: gain_bar,
    figures.Dots: step_times,
    figures.HeatMap: heat_map,
    figures.Matrix: shortfall_matrix,
    figures.BusBandwidth: busbw_plot,
    figures.Timeline: timeline,
}


def draw(drawing: figures.Drawing) -> Scene:
    """The picture of a drawing."""
    return _DRAW[type(drawing)](drawing)
