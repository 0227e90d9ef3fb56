"""Bus bandwidth against message size, log-log: measured calls, the fitted curve, the hardware."""

import itertools
import math

from advisor.report import numbers
from advisor.report.charts.axis import AXIS_HEIGHT, Scale, bottom_axis, left_axis
from advisor.report.charts.scene import Dot, Line, Scene, Text
from advisor.report.figures import BusBandwidth, Fit
from advisor.vocabulary.words import plural

_TOP, _BOTTOM = 24, 204
_CURVE_SEGMENTS = 48
# What fits into the narrowest plot, 248 px at about 6.2 px a letter.
_MOST_LETTERS = 38


def busbw_plot(spec: BusBandwidth) -> Scene:
    """The scatter, log-log; open dots are lower bounds."""
    groups, fit, ceiling_gbps = spec.groups, spec.fit, spec.ceiling_gbps
    sizes = [group.size_bytes for group in groups]
    if fit is not None and fit.n_star_bytes:
        sizes.append(fit.n_star_bytes)
    # A decade at least: a single size must not fill the whole axis.
    spread = max(1.6, (10 * min(sizes) / max(sizes)) ** 0.5)
    x = Scale(min(sizes) / spread, max(sizes) * spread, log=True)
    values = [group.busbw_gbps for group in groups]
    highest = max([*values, *([ceiling_gbps] if ceiling_gbps else [])])
    # At least one decade, so that ordinary scatter does not look like a landslide.
    lowest = min(min(values) / 1.3, highest / 10)
    y = Scale(lowest, highest * 1.3, _BOTTOM, _TOP, log=True)
    scene = Scene(height=_BOTTOM + AXIS_HEIGHT, margin=72)
    left_axis(scene, y, title="busbw, GB/s (log)")
    scene.marks += bottom_axis(
        x, top=_TOP, bottom=_BOTTOM, title="message size (log)", label=numbers.traffic
    )
    if ceiling_gbps:
        level = y(ceiling_gbps)
        scene.marks.append(Line(0, level, 100, level, "ceiling"))
        limit = numbers.bandwidth(ceiling_gbps)
        words = f"{spec.ceiling} {limit}".strip()
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
            title += f", {plural(group.calls, 'call')}"
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
