"""A crop of the timeline: one lane of compute and one of communication for each rank."""

from collections.abc import Sequence

from advisor.report import numbers
from advisor.report.charts.axis import AXIS_HEIGHT, Scale, bottom_axis
from advisor.report.charts.scene import Line, Mark, Rect, RowLabel, Scene, Text
from advisor.report.figures import KINDS, Timeline

MAX_MARKS = 300
_LANE = 16
_GAP = 2
_RANK_GAP = 10
# Drawn in the communication lane; every other kind goes into the lane above it.
_COMM_KINDS = ("comm", "transfer", "wait", "hidden-comm")


def timeline(spec: Timeline) -> Scene:
    """Lanes on one axis; of labels that would run into one another the upper one stays."""
    lanes, length_ns, from_ns = spec.lanes, spec.length_ns, spec.from_ns
    scale = Scale(0, length_ns)
    pitch = 2 * _LANE + _GAP + _RANK_GAP
    bottom = len(lanes) * pitch
    scene = Scene(height=bottom + AXIS_HEIGHT, margin=72)
    shown = Scale(from_ns, from_ns + length_ns)
    scene.marks += bottom_axis(
        shown, top=0, bottom=bottom, title=f"ms from {spec.since}", divisor=1e6
    )
    for index, lane in enumerate(lanes):
        top = index * pitch + 2
        strong = " strong" if lane.culprit else ""
        scene.row_labels.append(RowLabel(top + 12, f"rank {lane.rank}", "lane" + strong))
        scene.row_labels.append(RowLabel(top + _LANE + _GAP + 12, "comm", "lane"))
        scene.marks.append(
            Line(0, top + 2 * _LANE + _GAP + 3, 100, top + 2 * _LANE + _GAP + 3, "grid")
        )
        written: list[Text] = []
        first = len(scene.marks)
        # What the finding is about lies over what happens at the same time on other streams.
        for span in sorted(lane.spans, key=lambda span: span.culprit):
            x = max(scale(span.start_ns), 0.0)
            width = min(scale(span.end_ns), 100.0) - x
            if width <= 0:
                continue
            y = top + (_LANE + _GAP if span.kind in _COMM_KINDS else 0)
            words = KINDS.get(span.kind, span.kind)
            title = f"rank {lane.rank}: {words}, {numbers.duration(span.end_ns - span.start_ns)}"
            if span.label:
                title += f", {span.label}"
            kind = f"{span.kind} culprit" if span.culprit else span.kind
            if span.is_low:
                title += f", busy {numbers.share(span.filled)} of it"
            height = max(_LANE * span.filled, 2.0) if span.is_low else _LANE
            # From above, so that it does not lie under what is exposed in the same stretch.
            y_bar = y if span.kind == "hidden-comm" else y + _LANE - height
            scene.marks.append(Rect(x, y_bar, max(width, 0.1), height, kind, title))
            label = span.label or numbers.duration(span.end_ns - span.start_ns)
            # About 0.75 % of a wide plot per letter, three times that on a telephone.
            mixed = span.folded and (span.kind in _COMM_KINDS or span.is_low)
            if width > 0.85 * len(label) + 1 and not mixed:
                fits = "in" if width > 2.6 * len(label) + 3 else "in wide-only"
                kind = f"{fits} on-{span.kind}"
                written.append(Text(x + width / 2, y + 12, label, kind, "middle"))
                scene.marks.append(written[-1])
        for text in set(written) - set(_apart(written)):
            scene.marks.remove(text)
        scene.marks[first:] = _uncovered(scene.marks[first:])
    return scene


def _uncovered(marks: Sequence[Mark]) -> list[Mark]:
    """Without the labels that a span drawn later lies over."""
    kept: list[Mark] = []
    for index, mark in enumerate(marks):
        if isinstance(mark, Text):
            half = len(mark.text) * 0.85 / 2
            over = (
                other
                for other in marks[index + 1 :]
                if isinstance(other, Rect) and other.y < mark.y < other.y + other.height
            )
            if any(o.x < mark.x + half and o.x + o.width > mark.x - half for o in over):
                continue
        kept.append(mark)
    return kept


def _apart(texts: Sequence[Text]) -> list[Text]:
    """Those that do not run into one another; of two, the one drawn later, which lies on top."""
    kept: list[Text] = []
    for text in reversed(texts):
        reach = _reach(text)
        if all(
            text.y != other.y or abs(text.x - other.x) > reach + _reach(other) for other in kept
        ):
            kept.append(text)
    return kept[::-1]


def _reach(text: Text) -> float:
    """Half of a label's width in percent of the narrowest plot that shows it."""
    return len(text.text) * (0.85 if "wide-only" in text.kind else 2.6) / 2
