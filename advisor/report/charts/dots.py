"""Step times on one axis: trials or predictions as dots against the baseline's noise."""

from typing import Literal

from advisor.report import numbers
from advisor.report.charts.axis import AXIS_HEIGHT, Scale, bottom_axis
from advisor.report.charts.scene import Dot, Line, Rect, Scene, Text
from advisor.report.figures import Dots, StepTime
from advisor.vocabulary.words import span

_PITCH = 30
# The picture where that is narrowest, px, and widths of characters in it (12 px DejaVu Sans, which
# is wider than the sans-serif fonts that the page asks for first): narrow, wide, capitals, others.
_NARROWEST = 328.0
_NARROW, _WIDE = frozenset(" !'()*,-./:;I[]fijlrt|"), frozenset("%=@MWmw…")
_NARROW_PX, _WIDE_PX, _CAPITAL_PX, _OTHER_PX = 4.8, 11.0, 9.0, 7.6
_BOLD = 1.12

Anchor = Literal["start", "middle", "end"]


def _width(text: str, *, strong: bool) -> float:
    """About how wide a text is in the narrowest picture, % of that."""
    pixels = sum(
        _NARROW_PX
        if character in _NARROW
        else _WIDE_PX
        if character in _WIDE
        else _CAPITAL_PX
        if character.isupper()
        else _OTHER_PX
        for character in text
    )
    return pixels * (_BOLD if strong else 1.0) * 100 / _NARROWEST


def _shortened(label: str, figure: str, *, strong: bool) -> str:
    """The label with its figure, as long as the narrowest picture has room for."""
    shown, kept = f"{label}: {figure}", len(label)
    while _width(shown, strong=strong) > 100 and kept > 0:
        kept -= 1
        shown = f"{label[:kept]}…: {figure}"
    return shown


def _place(x: float, width: float) -> tuple[float, Anchor]:
    """Where a text over the dot at ``x`` starts, ends or has its middle, whole in the picture.

    A wide picture leaves most of ``width`` (of the narrowest) free: the anchor stays near the dot.
    """
    if x < 30:
        return min(x, 100 - width), "start"
    if x > 70:
        return max(x, width), "end"
    return min(max(x, width / 2), 100 - width / 2), "middle"


def step_times(spec: Dots) -> Scene:
    """One row per setting; the shaded band is the noise within which nothing has changed."""
    times, band_ns, baseline_ns = spec.times, spec.band_ns, spec.baseline_ns
    ends = [value for time in times for value in (time.step_ns, time.low_ns, time.high_ns) if value]
    ends += [*(band_ns or ()), *([baseline_ns] if baseline_ns else [])]
    low, high = min(ends), max(ends)
    room = (high - low) * 0.06 or high * 0.05
    # Dots, not bars: the axis need not start at zero, and says so where it does not.
    start = max(low - room, 0.0)
    scale = Scale(start, high + room)
    bottom = len(times) * _PITCH + 4
    scene = Scene(height=bottom + AXIS_HEIGHT, margin=0)
    if band_ns is not None:
        left, right = scale(band_ns[0]), scale(band_ns[1])
        scene.marks.append(Rect(left, 0, right - left, bottom, "band", "baseline ± 2 σ"))
    title = f"{spec.what}, ms" + (" (axis does not start at zero)" if start > 0 else "")
    scene.marks += bottom_axis(scale, top=0, bottom=bottom, title=title, divisor=1e6)
    if baseline_ns is not None:
        scene.marks.append(Line(scale(baseline_ns), 0, scale(baseline_ns), bottom, "star"))
    for index, time in enumerate(times):
        # The label stands over its dot, in the row's upper half.
        y = index * _PITCH + 21
        x = scale(time.step_ns)
        if time.low_ns is not None and time.high_ns is not None:
            scene.marks.append(Line(scale(time.low_ns), y, scale(time.high_ns), y, "whisker"))
        kind = "dot chosen" if time.chosen else "dot open" if time.guess else "dot"
        figure = _figure(time)
        if not time.only_between:
            scene.marks.append(Dot(x, y, 5, kind, f"{time.label}: {figure}"))
        strong = "label strong" if time.chosen else "label"
        shown = _shortened(time.label, figure, strong=time.chosen)
        place, anchor = _place(x, _width(shown, strong=time.chosen))
        scene.marks.append(Text(place, y - 9, shown, strong, anchor))
    return scene


def _figure(time: StepTime) -> str:
    if time.only_between and time.low_ns is not None and time.high_ns is not None:
        return span(time.low_ns, time.high_ns)
    return numbers.duration(time.step_ns)
