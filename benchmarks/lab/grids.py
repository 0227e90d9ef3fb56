"""Small grids of settings, measured whole, that a sweep's search is then tried on."""

from __future__ import annotations

from itertools import product

from benchmarks.lab.config import RunConfig
from benchmarks.lab.families import KIB, Family, Question

CAPS_MB = (0.5, 1.0, 3.0, 6.0, 25.0)
START = {"bucket_cap_mb": 25.0, "gradient_as_bucket_view": True, "static_graph": False}


def grids() -> list[Family]:
    """Bucket cap x bucket views x static graph: two links that matter, one job they do not."""
    job = RunConfig(ranks=4, layers=8, layer_bytes=768 * KIB, forward_ms=3.0, backward_ms=6.0)
    quiet = RunConfig(ranks=3, layers=8, layer_bytes=32 * KIB, forward_ms=4.0, backward_ms=8.0)
    return [
        _grid("grid-1gbit", job.but(link_mbit=1000.0)),
        _grid("grid-2gbit", job.but(link_mbit=2000.0)),
        _grid("grid-leave-it", quiet.but(link_mbit=2000.0)),
    ]


def _grid(name: str, job: RunConfig) -> Family:
    configs = {
        point_name(cap, view, static): job.but(
            bucket_cap_mb=cap, gradient_as_bucket_view=view, static_graph=static
        )
        for cap, view, static in product(CAPS_MB, (True, False), (False, True))
    }
    start = point_name(25.0, True, False)
    questions = tuple(
        Question(start, point_name(cap, True, False), "bucket_cap_mb", cap)
        for cap in CAPS_MB
        if cap != 25.0
    )
    return Family(name, configs, questions)


def point_name(cap: float, view: bool, static: bool) -> str:
    """Folder of a grid point."""
    return f"cap{cap:g}-{'view' if view else 'copy'}-{'static' if static else 'dynamic'}"
