"""Bus bandwidth against message size, log-log: measured calls, the fitted curve, the hardware."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.report import numbers
from advisor.report.charts.axis import AXIS_HEIGHT, bottom_axis, left_axis
from advisor.report.charts.scale import Scale
from advisor.report.charts.scene import Dot, Line, Rect, RowLabel, Scene, Text

_TOP, _BOTTOM = 24, 204
_HISTOGRAM = 56
_CURVE_SEGMENTS = 48
# What fits into the narrowest plot, 248 px at about 6.2 px a letter.
_MOST_LETTERS = 38


@dataclass(frozen=True)
class CallGroup:
    """Calls of one size: bytes, median busbw in GB/s, how many, and their transfer time in ns.

    ``calls`` is 0 where a benchmark does not say how often it called.
    """

    size_bytes: float
    busbw_gbps: float
    calls: int
    time_ns: float
    upper_bound: bool = False


@dataclass(frozen=True)
class Fit:
    """t = k*alpha + m*S*beta in ns (METRICS section 7); ``factor`` turns algbw into busbw."""

    alpha_ns: float
    beta_ns_per_byte: float
    k: float
    m: float
    factor: float
    n_star_bytes: float | None
    largest_bytes: float

    def busbw_gbps(self, size_bytes: float) -> float:
        """Bytes per ns are GB/s."""
        time_ns = self.k * self.alpha_ns + self.m * size_bytes * self.beta_ns_per_byte
        return self.factor * size_bytes / time_ns if time_ns > 0 else 0.0


def busbw_plot(
    groups: Sequence[CallGroup], fit: Fit | None, ceiling_gbps: float | None, *, ceiling: str = ""
) -> list[Scene]:
    """The scatter and, on the same size axis, how many calls and how much time each size takes."""
    sizes = [group.size_bytes for group in groups]
    if fit is not None and fit.n_star_bytes:
        sizes.append(fit.n_star_bytes)
    # A decade at least: a single size must not fill the whole axis.
    spread = max(1.6, (10 * min(sizes) / max(sizes)) ** 0.5)
    x = Scale(min(sizes) / spread, max(sizes) * spread, log=True)
    return [_scatter(groups, fit, ceiling_gbps, ceiling, x), _histogram(groups, fit, x)]


def bench_plot(
    groups: Sequence[CallGroup],
    fit: Fit | None,
    ceiling_gbps: float | None = None,
    *,
    ceiling: str = "",
) -> Scene:
    """Bandwidth against size of a benchmark, which has no mix of sizes to show below."""
    sizes = [group.size_bytes for group in groups]
    x = Scale(min(sizes) / 1.6, max(sizes) * 1.6, log=True)
    scene = _scatter(groups, fit, ceiling_gbps, ceiling, x)
    scene.height = _BOTTOM + AXIS_HEIGHT
    scene.marks += bottom_axis(
        x, top=_TOP, bottom=_BOTTOM, title="message size (log)", label=numbers.traffic
    )
    return scene


def _scatter(
    groups: Sequence[CallGroup],
    fit: Fit | None,
    ceiling_gbps: float | None,
    ceiling: str,
    x: Scale,
) -> Scene:
    values = [group.busbw_gbps for group in groups]
    highest = max([*values, *([ceiling_gbps] if ceiling_gbps else [])])
    # At least one decade, so that ordinary scatter does not look like a landslide.
    lowest = min(min(values) / 1.3, highest / 10)
    y = Scale(lowest, highest * 1.3, _BOTTOM, _TOP, log=True)
    scene = Scene(height=_BOTTOM + 4, margin=72)
    left_axis(scene, y, title="busbw, GB/s (log)")
    for tick in x.ticks(6):
        scene.marks.append(Line(x(tick), _TOP, x(tick), _BOTTOM, "grid"))
    scene.marks.append(Line(0, _BOTTOM, 100, _BOTTOM, "axis"))
    if ceiling_gbps:
        level = y(ceiling_gbps)
        scene.marks.append(Line(0, level, 100, level, "ceiling"))
        limit = numbers.bandwidth(ceiling_gbps)
        words = f"{ceiling} {limit}".strip()
        # The note under the picture says whose limit it is where there is no room for it.
        is_long = len(words) > _MOST_LETTERS
        kind = "label wide-only" if is_long else "label"
        scene.marks.append(Text(99, level - 4, words, kind, "end"))
        if is_long:
            scene.marks.append(Text(99, level - 4, limit, "label narrow-only", "end"))
    if fit is not None:
        _curve(scene, fit, x, y)
        if fit.n_star_bytes:
            scene.marks.append(
                Line(x(fit.n_star_bytes), _TOP, x(fit.n_star_bytes), _BOTTOM, "star")
            )
            text = f"n* {numbers.traffic(fit.n_star_bytes)}"
            left = x(fit.n_star_bytes) > 70
            scene.marks.append(
                Text(x(fit.n_star_bytes), _BOTTOM - 6, text, "label", "end" if left else "start",
                     -5 if left else 5)
            )  # fmt: skip
    for group in groups:
        radius = 3 + min(4.0, math.log10(max(group.calls, 1)) * 1.5)
        kind = "dot open" if group.upper_bound else "dot"
        title = f"{numbers.traffic(group.size_bytes)}: {numbers.bandwidth(group.busbw_gbps)}"
        if group.calls:
            title += f", {numbers.plural(group.calls, 'call')}"
        scene.marks.append(Dot(x(group.size_bytes), y(group.busbw_gbps), radius, kind, title))
    return scene


def _curve(scene: Scene, fit: Fit, x: Scale, y: Scale) -> None:
    ratio = x.high / x.low
    points = []
    for index in range(_CURVE_SEGMENTS + 1):
        size = x.low * ratio ** (index / _CURVE_SEGMENTS)
        value = fit.busbw_gbps(size)
        if value > 0:
            points.append((size, x(size), y(value)))
    for (size, x1, y1), (_, x2, y2) in itertools.pairwise(points):
        if max(y1, y2) <= _BOTTOM and min(y1, y2) >= _TOP - 12:
            # Beyond twice the largest size seen the curve is a guess (METRICS section 7).
            kind = "curve" if size <= 2 * fit.largest_bytes else "curve guess"
            scene.marks.append(Line(x1, y1, x2, y2, kind))


def _histogram(groups: Sequence[CallGroup], fit: Fit | None, x: Scale) -> Scene:
    """Two rows of bars over half-decades of size: share of calls, share of time."""
    edges = _half_decades(x)
    scene = Scene(height=2 * _HISTOGRAM + AXIS_HEIGHT + 8, margin=72)
    bottom = 2 * _HISTOGRAM + 4
    scene.marks += bottom_axis(
        x, top=0, bottom=bottom, title="message size (log)", label=numbers.traffic
    )
    rows = (("calls", [float(g.calls) for g in groups]), ("time", [g.time_ns for g in groups]))
    for index, (name, weights) in enumerate(rows):
        base = (index + 1) * _HISTOGRAM + 2 * index
        scene.row_labels.append(RowLabel(base - _HISTOGRAM / 2 + 4, f"% of {name}", "tick"))
        scene.marks.append(Line(0, base, 100, base, "grid"))
        total = sum(weights) or 1.0
        for low, high in itertools.pairwise(edges):
            part = sum(
                weight
                for group, weight in zip(groups, weights, strict=True)
                if low <= group.size_bytes < high
            )
            if part <= 0:
                continue
            height = max((_HISTOGRAM - 18) * part / total, 1)
            left, right = max(x(low), 0.0), min(x(high), 100.0)
            words = numbers.share(part / total)
            title = f"{numbers.traffic(low)} to {numbers.traffic(high)}: {words} of {name}"
            width = (right - left) * 0.92
            scene.marks.append(Rect(left, base - height, width, height, "bar", title))
            if part / total >= 0.1:
                middle = left + width / 2
                scene.marks.append(
                    Text(middle, base - height - 3, words, "tick wide-only", "middle")
                )
    if fit is not None and fit.n_star_bytes:
        scene.marks.append(Line(x(fit.n_star_bytes), 0, x(fit.n_star_bytes), bottom, "star"))
    return scene


def _half_decades(x: Scale) -> list[float]:
    first = math.floor(2 * math.log10(x.low))
    last = math.ceil(2 * math.log10(x.high))
    return [10 ** (power / 2) for power in range(first, last + 1)]
