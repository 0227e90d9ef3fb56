"""Horizontal stacked bars on one scale: where the time of each row goes."""

from collections.abc import Mapping

from advisor.report import numbers
from advisor.report.charts.axis import AXIS_HEIGHT, Scale, bottom_axis
from advisor.report.charts.scene import Line, Rect, RowLabel, Scene, Text
from advisor.report.figures import KINDS, GainBar, StackedBars, StepBar

_BAR, _PITCH = 22, 28
_LABEL = 4.0  # half of a label's width, percent of a bar beside a heat map
_STEP, _MARK = 22, 24  # height of the average step's bar, and of the mark under it


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
        written = {kind: numbers.milliseconds(ns) for kind, ns in bar.parts_ns.items()}
        _stack(scene, scale, bar.parts_ns, written, y, _BAR, f"{bar.label}: ", " ms")
    return scene


def _stack(
    scene: Scene,
    scale: Scale,
    parts: Mapping[str, float],
    written: Mapping[str, str],
    y: float,
    height: float,
    of: str,
    unit: str,
) -> None:
    """Draw one bar."""
    position = 0.0
    for kind in KINDS:
        part = parts.get(kind, 0.0)
        if part <= 0:
            continue
        x, width, text = scale(position), scale(part), written[kind]
        scene.marks.append(Rect(x, y, width, height, kind, f"{of}{KINDS[kind]} {text}{unit}"))
        if width > 6:
            fits = "in" if width > 15 else "in wide-only"
            middle = y + height / 2 + 4
            scene.marks.append(Text(x + width / 2, middle, text, f"{fits} on-{kind}", "middle"))
        position += part


def step_bar(spec: StepBar) -> Scene:
    """One bar as wide as the page; under it what could go, whose interval the words give.

    The outline covers nothing but the kinds of time that would go.
    """
    total = sum(spec.shares.values()) or 1.0
    scale = Scale(0, total)
    scene = Scene(height=_STEP + (_MARK if spec.gain else 0) + 2, margin=0)
    written = {kind: numbers.share(share) for kind, share in spec.shares.items()}
    _stack(scene, scale, spec.shares, written, 1, _STEP, "", " of the step")
    if spec.gain is None:
        return scene
    known = min(spec.outlined(), total)
    start, end = spec.could_go() or (total - known, total)
    right = scale(end)
    if spec.kinds:
        left = scale(start)
        # A share inside the outline reads as the outline's, one under its edge cannot be read; the
        # legend has the number.
        crossed = [mark for mark in scene.marks if isinstance(mark, Text)
                   and left - _LABEL < mark.x < right + _LABEL]  # fmt: skip
        scene.marks = [mark for mark in scene.marks if mark not in crossed]
        scene.marks.append(Rect(left, 1, max(right - left, 0.3), _STEP, "could-go",
                                spec.rest or spec.mark))  # fmt: skip
    y, left = _STEP + 6, scale(max(end - known, 0))
    if spec.gain[1] is None:
        _, last = spec.could_go(spec.gain[2]) or (0.0, end)
        most = scale(max(last - spec.gain[2], 0))
        for x, until in ((most, left), (right, scale(last))):
            if until > x:
                scene.marks.append(Rect(x, y - 2, until - x, 5, "may-go-bar"))
    scene.marks.append(Rect(left, y - 2, max(right - left, 0.3), 5, "could-go-bar"))
    # On a narrow page the label takes three quarters of the width.
    x, anchor = (max(right, 75), "end") if right > 50 else (min(left, 25), "start")
    scene.marks.append(Text(x, y + 15, spec.mark, "label strong", anchor))  # type: ignore[arg-type]
    return scene


def gain_bar(spec: GainBar) -> Scene:
    """A bar from zero to the middle of a gain, and a whisker from its low to its high end.

    Where nothing inside the interval is known it is filled to the low end, and hatched beyond.
    """
    scale = Scale(0, spec.most_ns or 1.0, 0, 98)
    scene = Scene(height=14, margin=0)
    if spec.middle_ns is None:
        low, high = scale(spec.low_ns), scale(spec.high_ns)
        scene.marks.append(Rect(low, 2, max(high - low, 0.5), 10, f"{spec.kind} range", spec.words))
        bar = Rect(0, 2, max(low, 0.5), 10, spec.kind, spec.words)
    elif spec.low_ns > 0:
        bar = Rect(0, 2, max(scale(spec.middle_ns), 0.5), 10, spec.kind, spec.words)
    else:
        bar = Rect(0, 2, max(scale(spec.high_ns), 0.5), 10, f"{spec.kind} open", spec.words)
    scene.marks.append(bar)
    if spec.middle_ns is not None and spec.low_ns > 0 and spec.high_ns > spec.low_ns:
        low, high = scale(spec.low_ns), scale(spec.high_ns)
        for x1, x2, half in ((low, high, 0), (low, low, 4), (high, high, 4)):
            scene.marks.append(Line(x1, 7 - half, x2, 7 + half, "whisker"))
    return scene
