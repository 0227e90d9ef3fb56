"""Grids of cells: ranks over steps, and bandwidth missing between locations."""

import math

from advisor.report import numbers
from advisor.report.charts.scene import Rect, RowLabel, Scene, Text
from advisor.report.clean import shorten_middle
from advisor.report.figures import HeatMap, Matrix

# Four strengths; CSS gives 'late1'..'late4' their fills.
LEVELS = 4
# Pixels of a letter of a head, of the plot on a telephone, and where heads change to the wide ones.
_LETTER, _NARROW, _WIDE = 7.0, 224, 480
_ROW_LETTERS = 14
_LABEL = 13  # pixels that a row's name needs
_TOP = 6  # its upper half over the first row
# Pixels from row to row, and of all rows: findings stand below them on the first screen.
_PITCH, _LEAST_PITCH, _HEIGHT = 16, 4, 128


def heat_map(spec: HeatMap) -> Scene:
    """Rows with a cell per column; neighbours of one strength are drawn as one, zero not at all."""
    pitch = max(_LEAST_PITCH, min(_PITCH, _HEIGHT // len(spec.rows)))
    bottom = _TOP + len(spec.rows) * pitch
    scene = Scene(height=bottom + 18, margin=104)
    width = 100 / max(len(spec.columns), 1)
    scene.marks.append(Rect(0, _TOP, 100, bottom - _TOP, "cell-ground"))
    named = _named(spec, pitch)
    for index, (name, row) in enumerate(zip(spec.rows, spec.cells_ns, strict=True)):
        y = _TOP + index * pitch
        if index in named:
            kind = "label strong" if index in spec.strong else "label"
            scene.row_labels.append(RowLabel(y + pitch / 2 + 4, name, kind))
        levels = [late_level(value, spec.full_ns) for value in row]
        start = 0
        for column in range(1, len(levels) + 1):
            if column < len(levels) and levels[column] == levels[start]:
                continue
            if levels[start]:
                mean = sum(row[start:column]) / (column - start)
                which = spec.columns[start]
                if column - start > 1:
                    which += f" to {spec.columns[column - 1]}"
                title = f"{name}, {spec.axis} {which}: {numbers.duration(mean)}"
                x, wide = start * width, (column - start) * width
                scene.marks.append(Rect(x, y, wide, pitch - 1, levels[start], title))
            start = column
    scene.row_labels.append(RowLabel(bottom + 14, spec.axis, "tick"))
    longest = max(map(len, spec.columns), default=0)
    every = math.ceil(len(spec.columns) * (longest + 1) * _LETTER / _WIDE)
    for index, name in enumerate(spec.columns):
        if index % every == 0:
            # A telephone's plot is half as wide.
            kind = "tick" if index % (2 * every) == 0 else "tick wide-only"
            scene.marks.append(Text((index + 0.5) * width, bottom + 14, name, kind, "middle"))
    return scene


def _named(spec: HeatMap, pitch: int) -> set[int]:
    """Rows with room for their names: the strong ones first, then evenly."""
    room = -(-_LABEL // pitch)
    named: set[int] = set()
    every = max(room, -(-len(spec.rows) // 16))
    for index in [*sorted(spec.strong), *range(0, len(spec.rows), every)]:
        if all(abs(index - other) >= room for other in named):
            named.add(index)
    return named


def late_level(value_ns: float, full_ns: float) -> str:
    """The class of a cell: '' near zero, else 'late1'..'late4'."""
    if full_ns <= 0:
        return ""
    strength = min(LEVELS, int(abs(value_ns) / full_ns * LEVELS + 0.5))
    return f"late{strength}" if strength else ""


def shortfall_matrix(spec: Matrix) -> Scene:
    """Cells darker the less of the expected is measured; labels show both ends of long names."""
    pitch = 26
    columns = len(spec.names)
    width = 100 / columns
    scene = Scene(height=columns * pitch + 30, margin=104)
    scene.row_labels.append(RowLabel(12, "from \\ to", "tick"))
    for index, name in enumerate(spec.names):
        short = shorten_middle(name, _ROW_LETTERS)
        whole = name if short != name else ""
        scene.row_labels.append(RowLabel(20 + index * pitch + 17, short, "label", whole))
        middle = index * width + width / 2
        wide, narrow = (_head(short, plot / columns) for plot in (_WIDE, _NARROW))
        # Every second head goes when many are narrow.
        is_thin = columns > 8 and index % 2 == 1
        if wide == narrow and not is_thin:
            scene.marks.append(Text(middle, 12, wide, "tick", "middle"))
        else:
            scene.marks.append(Text(middle, 12, wide, "tick wide-only", "middle"))
            if not is_thin:
                scene.marks.append(Text(middle, 12, narrow, "tick narrow-only", "middle"))
        for column in range(columns):
            value, text = spec.ratio[index][column], spec.text[index][column]
            kind = "cell-ground" if value is None else shortfall_level(value)
            title = f"{name} to {spec.names[column]}: {text or 'not measured'}"
            y = 20 + index * pitch
            scene.marks.append(Rect(column * width, y, width * 0.97, pitch - 2, kind, title))
            if text and columns <= 12:
                words = text.split(" ")[0]
                scene.marks.append(
                    Text(column * width + width * 0.485, y + 16, words, f"in on-{kind}", "middle")
                )
    return scene


def _head(name: str, room: float) -> str:
    """A column's head in ``room`` pixels: rows give the names in full, and in the same order."""
    letters = max(int(room / _LETTER), 1)
    if len(name) <= letters:
        return name
    rank, between, _ = name.partition(" · ")
    # The end of a host's name tells it from the next one.
    return rank if between else name[-letters:]


def shortfall_level(ratio: float) -> str:
    """The class of a link at ``ratio`` of what is expected: 'cell-ok' or 'late1'..'late4'."""
    missing = 1 - ratio
    if missing < 0.05:
        return "cell-ok"
    return f"late{min(LEVELS, 1 + int(missing * LEVELS))}"
