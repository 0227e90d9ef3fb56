"""Horizontal stacked bars on one scale: where the time of each row goes."""

from __future__ import annotations

from advisor.report import numbers
from advisor.report.charts.axis import AXIS_HEIGHT, bottom_axis
from advisor.report.charts.scale import Scale
from advisor.report.charts.scene import Line, Rect, RowLabel, Scene, Text
from advisor.report.figures import KINDS, GainBar, StackedBars, StepBar

_BAR, _PITCH = 22, 28
_STEP, _MARK = 34, 30  # height of the average step's bar, and of the mark under it


def stacked_bars(spec: StackedBars) -> Scene:
    """Bars from zero on a common scale; a part is labelled where its text fits."""
    longest = max([spec.longest_ns, *(sum(bar.parts_ns.values()) for bar in spec.bars)]) or 1.0
    scale = Scale(0, longest)
    bottom = len(spec.bars) * _PITCH + 4
    wide = any(len(bar.label) > 9 for bar in spec.bars)
    scene = Scene(height=bottom + AXIS_HEIGHT, margin=104 if wide else 72)
    scene.marks += bottom_axis(scale, top=0, bottom=bottom, title=spec.axis, divisor=1e6)
    for index, bar in enumerate(spec.bars):
        y = index * _PITCH + 2
        emphasis = "label strong" if bar.emphasis else "label"
        scene.row_labels.append(RowLabel(y + _BAR - 5, bar.label, emphasis))
        _stack(scene, scale, bar.parts_ns, y, _BAR, f"{bar.label}: ")
    return scene


def _stack(
    scene: Scene, scale: Scale, parts_ns: object, y: float, height: float, of: str
) -> dict[str, float]:
    """Draw one bar; where each kind ends, in ns."""
    assert hasattr(parts_ns, "get")
    ends: dict[str, float] = {}
    position = 0.0
    for kind in KINDS:
        part = parts_ns.get(kind, 0.0)
        if part <= 0:
            continue
        x, width = scale(position), scale(part)
        title = f"{of}{KINDS[kind]} {numbers.duration(part)}"
        scene.marks.append(Rect(x, y, width, height, kind, title))
        text = numbers.milliseconds(part)
        if width > 6:
            fits = "in" if width > 15 else "in wide-only"
            middle = y + height / 2 + 4
            scene.marks.append(Text(x + width / 2, middle, text, f"{fits} on-{kind}", "middle"))
        position += part
        ends[kind] = position
    return ends


def step_bar(spec: StepBar) -> Scene:
    """One bar as wide as the page; under it what could go, with the interval as a whisker."""
    total = sum(spec.parts_ns.values()) or 1.0
    scale = Scale(0, total)
    scene = Scene(height=_STEP + (_MARK if spec.gain_ns else 0) + 2, margin=0)
    ends = _stack(scene, scale, spec.parts_ns, 1, _STEP, "")
    if spec.gain_ns is None:
        return scene
    low, middle, high = (min(ns, total) for ns in spec.gain_ns)
    end = _end(spec, ends, middle, total)
    left, right = scale(end - middle), scale(end)
    scene.marks.append(Rect(left, 1, max(right - left, 0.3), _STEP, "could-go", spec.mark))
    y = _STEP + 8
    first, last = scale(max(end - high, 0)), scale(max(end - low, 0))
    scene.marks.append(Rect(left, y - 3, max(right - left, 0.3), 6, "could-go-bar"))
    for x1, x2, half in ((first, last, 0), (first, first, 4), (last, last, 4)):
        scene.marks.append(Line(x1, y - half, x2, y + half, "whisker"))
    x, anchor = (right, "end") if right > 50 else (min(left, first), "start")
    scene.marks.append(Text(x, y + 18, spec.mark, "label strong", anchor))  # type: ignore[arg-type]
    return scene


def _end(spec: StepBar, ends: dict[str, float], gain_ns: float, total_ns: float) -> float:
    """Where the mark ends: with its kind of time if that holds it, else with the bar."""
    own = [kind for kind in ends if kind == spec.kind or kind.startswith(f"{spec.kind}-")]
    holds = sum(spec.parts_ns[kind] for kind in own) >= gain_ns
    return ends[own[-1]] if spec.kind and own and holds else total_ns


def gain_bar(spec: GainBar) -> Scene:
    """A bar from zero to the middle of a gain, and a whisker from its low to its high end."""
    scale = Scale(0, spec.most_ns or 1.0, 0, 98)
    scene = Scene(height=14, margin=0)
    if spec.low_ns > 0:
        bar = Rect(0, 2, max(scale(spec.middle_ns), 0.5), 10, spec.kind, spec.words)
    else:
        # It may be nothing: the bar is the interval, and not filled.
        bar = Rect(0, 2, max(scale(spec.high_ns), 0.5), 10, f"{spec.kind} open", spec.words)
    scene.marks.append(bar)
    if spec.low_ns > 0 and spec.high_ns > spec.low_ns:
        low, high = scale(spec.low_ns), scale(spec.high_ns)
        for x1, x2, half in ((low, high, 0), (low, low, 4), (high, high, 4)):
            scene.marks.append(Line(x1, 7 - half, x2, 7 + half, "whisker"))
    return scene
