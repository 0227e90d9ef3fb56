"""What recordings suffer on their way: a host's clock is off, a rank is missing, a file is cut."""

from __future__ import annotations

import gzip
import random
import re
import shutil
from pathlib import Path

from benchmarks.lab.case import TRACES, TRUTH_FILE, Case, Edit

_QUICK = 1  # of zlib's levels
_BASE_TIME = re.compile(rb'("baseTimeNanoseconds":\s*)(-?\d+)')


def edit_recording(base: Path, folder: Path, case: Case) -> None:
    """Copy the recording of ``base`` to ``folder`` with the case's edit applied."""
    if case.edit is None:
        raise ValueError(f"{case.id} has no edit")
    traces = folder / TRACES
    shutil.copytree(base / TRACES, traces)
    shutil.copy(base / TRUTH_FILE, folder / TRUTH_FILE)
    for rank in edited_ranks(case):
        edit_trace(traces / f"rank{rank}.trace.json.gz", case.edit)
    case.write(folder)


def edited_ranks(case: Case) -> list[int]:
    """The ranks whose files change: a clock is the host's, so that all of its ranks shift."""
    if case.edit is None:
        return []
    if case.edit.kind != "shift-clock":
        return [case.edit.rank]
    host = case.faulty.host_of(case.edit.rank)
    return [rank for rank in range(case.faulty.ranks) if case.faulty.host_of(rank) == host]


def shift_all_clocks(traces: Path, target: Path, case: Case, most_ms: float) -> None:
    """Copy ``traces`` to ``target`` with each host's clock off by up to ``most_ms``, either way.

    The shifts are drawn from the case's id, so that every run has the same. Files of ranks that are
    missing stay missing; a file that was cut short raises EOFError.
    """
    shutil.copytree(traces, target)
    chance = random.Random(f"{case.id}: all clocks")
    shift = [chance.uniform(-most_ms, most_ms) for _ in range(case.faulty.hosts)]
    for rank in range(case.faulty.ranks):
        path = target / f"rank{rank}.trace.json.gz"
        if path.exists():
            edit_trace(path, Edit("shift-clock", rank, shift[case.faulty.host_of(rank)]))


def drawn_host(case: Case) -> int:
    """The host whose clock is off where only one's is: drawn from the case's id."""
    return random.Random(f"{case.id}: one clock").randrange(case.faulty.hosts)


def shift_one_clock(folder: Path, target: Path, case: Case, host: int, by_ms: float) -> None:
    """Copy the recording in ``folder`` to ``target`` with one host's clock off by ``by_ms``.

    Files of ranks that are missing stay missing; one that was cut short raises EOFError.
    """
    shutil.copytree(folder / TRACES, target / TRACES)
    shutil.copy(folder / TRUTH_FILE, target / TRUTH_FILE)
    case.write(target)
    for rank in range(case.faulty.ranks):
        path = target / TRACES / f"rank{rank}.trace.json.gz"
        if case.faulty.host_of(rank) == host and path.exists():
            edit_trace(path, Edit("shift-clock", rank, by_ms))


def edit_trace(path: Path, edit: Edit) -> None:
    """Apply one edit to one rank's file in place."""
    if edit.kind == "drop-rank":
        path.unlink()
    elif edit.kind == "truncate":
        # Cut the compressed file, as a full disk or a killed copy does.
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * edit.amount)])
    elif edit.kind == "shift-clock":
        shift_ns = round(edit.amount * 1e6)
        text, found = _BASE_TIME.subn(
            lambda match: match[1] + str(int(match[2]) + shift_ns).encode(),
            gzip.decompress(path.read_bytes()),
        )
        if found != 1:
            raise ValueError(f"{path}: {found} base times, expected one")
        path.write_bytes(gzip.compress(text, _QUICK))
    else:
        raise ValueError(f"edit {edit.kind!r} is not known")
