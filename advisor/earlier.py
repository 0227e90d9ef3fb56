"""Settings that a job was given since the recording before, and what its steps gained by them.

`advisor record` writes FOLDER, FOLDER-2, FOLDER-3 ...: most often one job, and what was changed.
The earlier recording is read only where its settings, which stand at its beginning, are others.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.ingest.readers.kineto.metadata_fields import allowed_fields
from advisor.metrics.compare.tried import Tried

if TYPE_CHECKING:
    from advisor.api import Run

_NUMBERED = re.compile(r"(.+)-([1-9]\d*)")
_SAID = re.compile(rb'"advisor"\s*:\s*(?=\{)')
_HEAD_BYTES = 1 << 20
# The library that builds a wrapper, and what a scheduler gives anew each time.
_NO_SETTINGS = {"made_by", "CUDA_VISIBLE_DEVICES"}


def tried(run: Run, folder: Path, load: Callable[[Path], Run]) -> Tried | None:
    """What changed since the recording before the one in ``folder``, and what it gave.

    None where there is none, nothing changed, or the two are not surely of one job: alike in ranks,
    devices and gradients, and in FLOPs per step, for which both need shapes.
    """
    earlier = before(folder)
    names = [name for (name,) in run.store.con.execute("SELECT run FROM run").fetchall()]
    if earlier is None or len(names) != 1:
        return None
    changed = _changed(run, earlier)
    if not changed:
        return None
    from advisor.metrics.compare.figures import figures
    from advisor.metrics.compare.jobs import SAME, unlike
    from advisor.metrics.compare.runs import step_difference
    from advisor.metrics.models.roofline import arithmetic

    with load(earlier) as other:
        base, own = (figures(one.store.con, "run") for one in (other, run))
        flops = [arithmetic(one.store.con, "run").flops for one in (other, run)]
        if base is None or own is None or unlike(base, own) or not all(flops):
            return None
        if max(flops) > (1 + SAME) * min(flops):
            return None
        said = other.report.findings
    return Tried(earlier.name, changed, base.step_ns, step_difference(base, own), said)


def before(folder: Path) -> Path | None:
    """The recording before the one in ``folder`` in a row of them; None without one."""
    found = _NUMBERED.fullmatch(folder.name)
    if found is None:
        return None
    number = int(found[2]) - 1
    earlier = folder.with_name(found[1] if number == 1 else f"{found[1]}-{number}")
    return earlier if number and any(earlier.glob("rank*.json.gz")) else None


def _changed(run: Run, earlier: Path) -> dict[str, tuple[Any, Any]]:
    """Settings whose values differ, the earlier one first, of this recording's first rank."""
    first = run.store.con.execute("SELECT rank, metadata FROM rank ORDER BY rank").fetchone()
    trace = earlier / f"rank{first[0]}.json.gz" if first else None
    if first is None or trace is None or not trace.is_file():
        return {}
    from advisor.metrics.models.workload import said_of_itself

    old, new = _settings(_head(trace)), _settings(said_of_itself(first[1]))
    pairs = {name: (old.get(name), new.get(name)) for name in sorted(old.keys() | new.keys())}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]} if old and new else {}


def _settings(said: dict[str, Any]) -> dict[str, Any]:
    """Of the wrappers and the environment; empty where a recording does not say both."""
    if not said.get("built") or "environment" not in said:
        return {}
    parts = (*said["built"].values(), said["environment"])
    found = {name: value for part in parts for name, value in part.items()}
    return {name: value for name, value in found.items() if name not in _NO_SETTINGS}


def _head(trace: Path) -> dict[str, Any]:
    """What a recording of ours says of itself before its events; empty where it says nothing."""
    try:
        with gzip.open(trace) as file:
            head = file.read(_HEAD_BYTES)
        found = _SAID.search(head)
        text = head[found.end() :].decode(errors="replace") if found else "{}"
        said = json.JSONDecoder().raw_decode(text)[0]
    except (OSError, EOFError, ValueError, RecursionError):  # damaged: nothing is known of it
        return {}
    kept: dict[str, Any] = allowed_fields({"advisor": said})[0].get("advisor", {})
    return kept
