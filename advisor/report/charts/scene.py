"""What a picture is made of, before it is SVG.

Horizontal positions are percent of the plot's width and vertical ones pixels: the plot stretches
with the page while its text keeps its size, from a telephone to a wide screen and on paper, without
script. Colours and patterns come from CSS classes named after what is drawn ('compute', 'wait' …),
so that one kind has one colour everywhere and both colour schemes work.
"""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Rect:
    """A box from ``x`` to ``x + width`` percent and ``y`` to ``y + height`` pixels."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str = ""
    shape: Literal["rect"] = "rect"


@dataclass(frozen=True)
class Line:
    """A line between two points (x percent, y pixels)."""

    x1: float
    y1: float
    x2: float
    y2: float
    kind: str
    shape: Literal["line"] = "line"


@dataclass(frozen=True)
class Dot:
    """A mark at (x percent, y pixels) with a radius in pixels."""

    x: float
    y: float
    radius: float
    kind: str
    title: str = ""
    shape: Literal["dot"] = "dot"


@dataclass(frozen=True)
class Text:
    """A label at (x percent + dx pixels, y pixels); ``kind`` may name several CSS classes.

    ``title`` is what pointing at it shows: the whole name where ``text`` is a short one.
    """

    x: float
    y: float
    text: str
    kind: str = "label"
    anchor: Literal["start", "middle", "end"] = "start"
    dx: float = 0
    title: str = ""
    shape: Literal["text"] = "text"


@dataclass(frozen=True)
class RowLabel:
    """A label left of the plot, at ``y`` pixels; ``title`` as that of :class:`Text`."""

    y: float
    text: str
    kind: str = "label"
    title: str = ""


Mark = Rect | Line | Dot | Text


@dataclass
class Scene:
    """One plot: its height in pixels, the width of its left margin, and its marks."""

    height: float
    margin: Literal[0, 48, 72, 104] = 72
    marks: list[Mark] = field(default_factory=list)
    row_labels: list[RowLabel] = field(default_factory=list)
