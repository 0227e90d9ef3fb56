"""What a change gives a recorded case's job: as it is and changed, timed in turn (A B A B …).

Settles by measurement what a diagnosis claims of a case beyond its fault, such as larger buckets
in a control.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.lab import case
from benchmarks.lab.measure import measure, round_medians_ns
from benchmarks.lab.record import import_once


def changes(texts: Iterable[str]) -> dict[str, Any]:
    """``["bucket_cap_mb=25", "reshard=false"]`` as fields; values are JSON.

    Raises ValueError for a text without ``=`` or with a value that is no JSON.
    """
    fields = dict(text.split("=", 1) for text in texts)
    return {name: json.loads(value) for name, value in fields.items()}


def settle(
    folder: Path, changed: dict[str, Any], *, rounds: int, say: Callable[[str], None]
) -> str:
    """One line: the steps of each round in ms, as it is and changed, and what the change gave.

    Raises TypeError for a field that a job does not have, PhaseError when a run fails twice.
    """
    job = case.read(folder).faulty
    configs = {"as it is": job, "changed": job.but(**changed)}
    import_once()
    with TemporaryDirectory() as scratch:
        measure(configs, (), Path(scratch) / folder.name, say=say, rounds=rounds)
        steps_ms = {
            name: [ns / 1e6 for ns in round_medians_ns(Path(scratch) / folder.name / name)]
            for name in configs
        }
    gain_ms = statistics.median(steps_ms["as it is"]) - statistics.median(steps_ms["changed"])
    shown = "; ".join(
        f"{name} {', '.join(f'{ms:.1f}' for ms in each)} ms" for name, each in steps_ms.items()
    )
    return f"{folder.name}: {shown}; gains {gain_ms:.1f} ms of every step"
