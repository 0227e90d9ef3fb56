"""Small grids of settings, measured whole, that a sweep's search is then tried on.

Three jobs at two link speeds under two strategies. The settings have the names that a workload
file gives them, so that the search and its predictions see what they see in a real sweep.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from advisor.config.sweep import Axis, Configuration, Value
from benchmarks.lab.config import RunConfig
from benchmarks.lab.families import KIB, Family, Question

CAPS_MB = (0.25, 0.5, 1.0, 2.0, 25.0)
DDP_AXES = (
    Axis(setting="bucket_cap_mb", values=list(CAPS_MB)),
    Axis(setting="gradient_as_bucket_view", values=[True, False]),
    Axis(setting="static_graph", values=[False, True]),
)
FSDP2_AXES = (
    Axis(setting="wrap_layers", values=[1, 2, 4, 8]),
    Axis(setting="strategy", values=["fsdp2", "fsdp2-zero2"]),
    Axis(setting="prefetch_forward", values=[0, 1, 2]),
)
DDP_START: Configuration = {
    "bucket_cap_mb": 25.0, "gradient_as_bucket_view": True, "static_graph": False,
}  # fmt: skip
FSDP2_START: Configuration = {"wrap_layers": 1, "strategy": "fsdp2", "prefetch_forward": 0}
# Nothing is left to gain here: one unit, kept after the forward pass.
FSDP2_SETTLED: Configuration = {"wrap_layers": 8, "strategy": "fsdp2-zero2", "prefetch_forward": 0}

JOBS = {
    "4x8": RunConfig(ranks=4, layers=8, layer_bytes=384 * KIB, forward_ms=2.0, backward_ms=4.0),
    "2x8": RunConfig(ranks=2, layers=8, layer_bytes=768 * KIB, forward_ms=2.0, backward_ms=4.0),
    # Next to nothing is sent.
    "3x8-quiet": RunConfig(
        ranks=3, layers=8, layer_bytes=16 * KIB, forward_ms=3.0, backward_ms=6.0
    ),
}
LINKS_MBIT = (1000.0, 2000.0)


@dataclass(frozen=True)
class Grid:
    """Every combination of ``axes`` as a family; ``start`` are the present settings (traced)."""

    family: Family
    axes: tuple[Axis, ...]
    start: Configuration

    @property
    def points(self) -> dict[str, Configuration]:
        """Configurations by the name of their folder."""
        return {point_name(point): point for point in _points(self.axes)}


def grids() -> list[Grid]:
    """All twelve."""
    found = []
    for (name, job), link in product(JOBS.items(), LINKS_MBIT):
        linked = job.but(link_mbit=link)
        settled = FSDP2_SETTLED if name.endswith("quiet") else FSDP2_START
        found += [
            _grid(f"ddp-{name}-{link:g}mbit", linked, DDP_AXES, DDP_START),
            _grid(f"fsdp2-{name}-{link:g}mbit", linked, FSDP2_AXES, settled),
        ]
    return found


def point_name(point: Configuration) -> str:
    """Folder of a grid point: its values, in the order of the axes."""
    return "-".join(_text(value) for value in point.values())


def _grid(name: str, job: RunConfig, axes: tuple[Axis, ...], start: Configuration) -> Grid:
    configs = {point_name(point): job.but(**point) for point in _points(axes)}
    # The one question makes the start's recording traced.
    question = Question(point_name(start), point_name(start), "", 0)
    return Grid(Family(name, configs, (question,)), axes, start)


def _points(axes: tuple[Axis, ...]) -> list[Configuration]:
    return [
        {axis.setting: value for axis, value in zip(axes, values, strict=True)}
        for values in product(*(axis.values for axis in axes))
    ]


def _text(value: Value) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
