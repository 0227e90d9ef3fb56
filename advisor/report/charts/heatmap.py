"""Grids of cells: lateness of ranks over calls, and bandwidth missing between places."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.report import numbers
from advisor.report.charts.scene import Rect, RowLabel, Scene, Text
from advisor.report.clean import shorten_middle

# Four strengths each way of zero; CSS gives 'late1'..'late4' and 'early1'..'early4' their fills.
LEVELS = 4
# Pixels of a letter of a head, of the plot on a telephone, and where heads change to the wide ones.
_LETTER, _NARROW, _WIDE = 7.0, 224, 480
_ROW_LETTERS = 14


def lateness_map(
    ranks: Sequence[int],
    cells_ns: Sequence[Sequence[float | None]],
    *,
    full_ns: float,
    first_label: str,
    last_label: str,
) -> Scene:
    """Rows are ranks, columns calls in time order; None leaves a cell empty.

    ``full_ns`` is the lateness of the strongest colour. Neighbouring cells of one strength are
    drawn as one, and cells near zero not at all, which keeps 64 ranks small.
    """
    pitch = 18 if len(ranks) <= 24 else 10
    scene = Scene(height=len(ranks) * pitch + 40, margin=72)
    columns = max((len(row) for row in cells_ns), default=1) or 1
    width = 100 / columns
    scene.marks.append(Rect(0, 0, 100, len(ranks) * pitch, "cell-ground"))
    for index, (rank, row) in enumerate(zip(ranks, cells_ns, strict=True)):
        y = index * pitch
        if pitch >= 18 or index % 2 == 0:
            scene.row_labels.append(RowLabel(y + pitch - 4, f"rank {rank}", "label"))
        start = 0
        levels = [lateness_level(value, full_ns) for value in row]
        for column in range(1, len(levels) + 1):
            if column < len(levels) and levels[column] == levels[start]:
                continue
            if levels[start]:
                known = [value for value in row[start:column] if value is not None]
                mean = sum(known) / len(known)
                words = "after" if mean > 0 else "before"
                title = f"rank {rank}: {numbers.duration(abs(mean))} {words} the median"
                scene.marks.append(
                    Rect(
                        start * width, y, (column - start) * width, pitch - 1, levels[start], title
                    )
                )
            start = column
    bottom = len(ranks) * pitch + 14
    scene.marks.append(Text(0, bottom, first_label, "tick", "start"))
    scene.marks.append(Text(100, bottom, last_label, "tick", "end"))
    scene.marks.append(
        Text(50, bottom + 18, "collective calls in time order", "axis-title", "middle")
    )
    return scene


def lateness_level(value_ns: float | None, full_ns: float) -> str:
    """The class of a cell: '' near zero or unknown, else 'late1'..'late4' or 'early1'..'early4'."""
    if value_ns is None or full_ns <= 0:
        return ""
    strength = min(LEVELS, int(abs(value_ns) / full_ns * LEVELS + 0.5))
    if strength == 0:
        return ""
    return f"{'late' if value_ns > 0 else 'early'}{strength}"


def shortfall_matrix(
    places: Sequence[str], ratio: Sequence[Sequence[float | None]], text: Sequence[Sequence[str]]
) -> Scene:
    """From rows to columns: the measured share of the expected bandwidth, darker when less.

    ``places`` are whole names: labels show both ends of long ones, and the whole when pointed at.
    """
    pitch = 26
    columns = len(places)
    width = 100 / columns
    scene = Scene(height=columns * pitch + 56, margin=104)
    scene.row_labels.append(RowLabel(12, "from \\ to", "tick"))
    for index, place in enumerate(places):
        short = shorten_middle(place, _ROW_LETTERS)
        whole = place if short != place else ""
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
            value = ratio[index][column]
            kind = "cell-ground" if value is None else shortfall_level(value)
            title = f"{place} to {places[column]}: {text[index][column] or 'not measured'}"
            y = 20 + index * pitch
            scene.marks.append(Rect(column * width, y, width * 0.97, pitch - 2, kind, title))
            if text[index][column] and columns <= 12:
                words = text[index][column].split(" ")[0]
                scene.marks.append(
                    Text(column * width + width * 0.485, y + 16, words, f"in on-{kind}", "middle")
                )
    return scene


def _head(place: str, room: float) -> str:
    """A column's head in ``room`` pixels: rows name places in full, and in the same order."""
    letters = max(int(room / _LETTER), 1)
    if len(place) <= letters:
        return place
    rank, between, _ = place.partition(" · ")
    # The end of a host's name tells it from the next one.
    return rank if between else place[-letters:]


def shortfall_level(ratio: float) -> str:
    """The class of a link at ``ratio`` of what is expected: 'cell-ok' or 'late1'..'late4'."""
    missing = 1 - ratio
    if missing < 0.05:
        return "cell-ok"
    return f"late{min(LEVELS, 1 + int(missing * LEVELS))}"
