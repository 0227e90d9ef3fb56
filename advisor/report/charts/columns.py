"""One stacked column per step: a bad step stands out from its neighbours."""

from advisor.report import numbers
from advisor.report.charts.axis import Scale, left_axis
from advisor.report.charts.scene import Line, Rect, Scene, Text
from advisor.report.figures import KINDS, StepColumns

MAX_COLUMNS = 60
_TOP, _BOTTOM = 20, 110


def step_columns(spec: StepColumns) -> Scene:
    """Columns from zero in ms; at most :data:`MAX_COLUMNS`, so fold longer runs before."""
    columns = spec.bars
    highest = max([spec.longest_ns, *(sum(column.parts_ns.values()) for column in columns)]) or 1.0
    height = Scale(0, highest, _BOTTOM, _TOP)
    scene = Scene(height=_BOTTOM + 36, margin=48)
    left_axis(scene, height, title="ms", divisor=1e6)
    pitch = 100 / max(len(columns), 5)
    every = max(1, len(columns) // 10)
    for index, column in enumerate(columns):
        x = index * pitch
        y = float(_BOTTOM)
        for kind in KINDS:
            part = column.parts_ns.get(kind, 0.0)
            if part <= 0:
                continue
            top = y - (_BOTTOM - height(part))
            title = f"step {column.label}: {KINDS[kind]} {numbers.duration(part)}"
            scene.marks.append(Rect(x + pitch * 0.1, top, pitch * 0.8, y - top, kind, title))
            y = top
        if index % every == 0:
            middle = x + pitch / 2
            kind = "tick" if index % (2 * every) == 0 else "tick wide-only"
            scene.marks.append(Text(middle, _BOTTOM + 14, column.label, kind, "middle"))
        if column.emphasis:
            scene.marks.append(Text(x + pitch / 2, y - 4, "worst", "tick strong", "middle"))
    scene.marks.append(Line(0, _BOTTOM, 100, _BOTTOM, "axis"))
    scene.marks.append(Text(50, _BOTTOM + 30, "step", "axis-title", "middle"))
    return scene
