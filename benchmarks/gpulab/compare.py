"""What a simulated file has that a real one lacks, and the other way round: fields, argument keys
and their types by category, names of operators and calls, and the order of the kinds of events.

    python -m benchmarks.gpulab compare REAL.json.gz SIMULATED.json.gz
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

_HOST = {"X/cpu_op", "X/user_annotation", "X/python_function", "s/fwdbwd", "f/fwdbwd",
         "i/cpu_instant_event"}  # fmt: skip
_DEVICE = {"X/kernel", "X/cuda_runtime", "X/cuda_driver", "X/gpu_memcpy", "X/gpu_memset",
           "s/ac2g", "f/ac2g", "X/overhead", "X/cuda_sync"}  # fmt: skip
_LEAST_NAMES = 2


def read(path: Path) -> dict[str, Any]:
    """A trace, gzipped or not."""
    data = path.read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return found


def differences(real: dict[str, Any], made: dict[str, Any]) -> list[str]:
    """One line for each thing that only one of two traces has."""
    lines = [
        *_only("top-level key", set(real), set(made)),
        *_only("distributedInfo", set(real.get("distributedInfo", {})),
               set(made.get("distributedInfo", {}))),
    ]  # fmt: skip
    shapes = [_shapes(trace["traceEvents"]) for trace in (real, made)]
    lines += _only("kind of event", set(shapes[0]), set(shapes[1]))
    for kind in sorted(set(shapes[0]) & set(shapes[1])):
        lines += _only(f"{kind}:", shapes[0][kind], shapes[1][kind])
    orders = [list(_order(trace["traceEvents"])) for trace in (real, made)]
    if orders[0] != orders[1]:
        lines.append(f"order: real {orders[0]}, simulated {orders[1]}")
    return lines


def _only(what: str, real: set[str], made: set[str]) -> list[str]:
    return [
        *(f"{what} only real: {name}" for name in sorted(real - made)),
        *(f"{what} only simulated: {name}" for name in sorted(made - real)),
    ]


def _shapes(events: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Kind of event (phase/category) to its fields and arguments with their JSON types."""
    found: dict[str, set[str]] = {}
    for event in events:
        kind = f"{event['ph']}/{event.get('cat', event['name'])}"
        own = found.setdefault(kind, set())
        for key, value in event.items():
            if key != "args":
                own.add(f"{key} ({type(value).__name__})")
        args = event.get("args", {})
        if isinstance(args, dict):
            own.update(f"args.{key} ({_type(value)})" for key, value in args.items())
    return found


def _type(value: Any) -> str:
    return "number" if isinstance(value, int | float) else type(value).__name__


def _order(events: list[dict[str, Any]]) -> Iterator[str]:
    """Host, device, projected, names: the blocks in which a file lists its events."""

    def block(event: dict[str, Any]) -> str:
        kind = f"{event['ph']}/{event.get('cat', '')}"
        if kind in _HOST:
            return "host"
        if kind in _DEVICE:
            return "device"
        return kind

    return (name for name, _ in groupby(events, block))
