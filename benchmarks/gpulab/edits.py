"""What recordings suffer from before they reach the tool: made to the files after they are written.

Old kernel names and missing metadata are no edits but jobs (``nccl``, ``torch``, ``metadata``).
"""

from __future__ import annotations

import gzip
import random
import re
from itertools import pairwise
from pathlib import Path

from benchmarks.gpulab.job import Job

KINDS = ("missing-ranks", "cut-file", "one-step-files", "no-device-events")
_KEPT_OF_CUT = 0.7


def apply(kind: str, folder: Path, job: Job, culprits: tuple[int, ...], draw: str) -> None:
    """Change the files of a recording; they are in the order of ranks by name or number."""
    rng = random.Random(draw)
    files = _by_rank(folder)
    spared = [rank for rank in files if rank not in culprits] or list(files)
    if kind == "missing-ranks":
        for rank in rng.sample(spared, max(1, min(len(spared) - 1, job.ranks // 4))):
            files[rank].unlink()
    elif kind == "cut-file":
        _cut(files[rng.choice(spared)])
    elif kind == "one-step-files":
        for path in files.values():
            _per_step(path)
    elif kind == "no-device-events":
        _host_only(files[rng.choice(spared)])
    else:
        raise ValueError(f"no edit is called {kind}")


def _by_rank(folder: Path) -> dict[int, Path]:
    found = {}
    for path in folder.iterdir():
        with gzip.open(path, "rt") as file:
            head = file.read(4_000_000)
        match = re.search(r'"backend": "nccl", "rank": (\d+)', head)
        assert match, path
        found[int(match[1])] = path
    return dict(sorted(found.items()))


def _text(path: Path) -> str:
    with gzip.open(path, "rt") as file:
        return file.read()


def _store(path: Path, text: str) -> None:
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(text)


def _cut(path: Path) -> None:
    """The disk was full: the end of the file is missing."""
    text = _text(path)
    _store(path, text[: int(len(text) * _KEPT_OF_CUT)])


def _host_only(path: Path) -> None:
    """Recorded without the CUDA activity."""
    lines = _text(path).split("\n")
    device = ('"cat": "kernel"', '"cat": "gpu_', '"cat": "cuda_', '"cat": "ac2g"')
    kept = [line for line in lines if not any(mark in line[:60] or mark in line[-60:]
                                              for mark in device)]  # fmt: skip
    _store(path, "\n".join(kept))


_TS = re.compile(r'"ts": ([\d.]+)')
_STEP = re.compile(r'"name": "ProfilerStep#(\d+)", .*?"ts": ([\d.]+), "dur": ([\d.]+)')
_EXTERNAL = re.compile(r'"External id": (\d+)')
_CORRELATION = re.compile(r'"correlation": (\d+)|"id": (\d+)')


def _per_step(path: Path) -> None:
    """schedule(active=1) three times: one file for each of three steps in the middle."""
    lines = _text(path).split("\n")
    steps = [
        (int(m[1]), float(m[2]), float(m[2]) + float(m[3]))
        for line in lines
        if '"cat": "user_annotation"' in line and (m := _STEP.search(line))
    ]
    launched = _launch_steps(lines, steps)
    name = path.name.replace(".pt.trace.json.gz", "").replace(".json.gz", "")
    for (number, start, end), (_, following, _) in pairwise(steps[1:5]):
        end = min(end, following)  # whole microseconds may round the end beyond it
        kept = [
            _own_window(line, start, end)
            for line in lines
            if _belongs(line, number, start, end, launched)
        ]
        kept[-2] = kept[-2].rstrip(",")
        last = max(i for i, line in enumerate(kept) if line.startswith('{"') and i)
        kept[last] = kept[last].rstrip(",")
        _store(path.with_name(f"{name}.step{number}.pt.trace.json.gz"), "\n".join(kept))
    path.unlink()


def _own_window(line: str, start: float, end: float) -> str:
    """Each recording has its own start, end and span, and names its threads within them."""
    if '"cat": "Trace"' in line:
        line = re.sub(r'"dur": [\d.]+', f'"dur": {end - start:.3f}', line)
    elif "Record Window End" in line:
        return _TS.sub(f'"ts": {end:.3f}', line)
    elif not line.startswith('{"name"'):
        return line
    return _TS.sub(f'"ts": {start:.3f}', line)


def _launch_steps(lines: list[str], steps: list[tuple[int, float, float]]) -> dict[str, int]:
    """Correlation id to the step in which it was launched."""
    found = {}
    for line in lines:
        if '"cat": "cuda_runtime"' in line[:60] or '"cat": "cuda_driver"' in line[:60]:
            ts = float(_TS.search(line)[1])  # type: ignore[index]
            own = next((n for n, start, end in steps if start <= ts < end), -1)
            found[_CORRELATION.search(line)[1]] = own  # type: ignore[index]
    return found


def _belongs(line: str, number: int, start: float, end: float, launched: dict[str, int]) -> bool:
    if not line.startswith('{"ph"') or '"cat": "Trace"' in line:
        return True  # header, names, end
    if '"cat": "kernel"' in line[:60] or '"cat": "gpu_mem' in line[:60] or (
        '"cat": "ac2g"' in line and '"ph": "f"' in line[:20]
    ):  # fmt: skip
        match = _CORRELATION.search(line)
        return match is not None and launched.get(match[1] or match[2]) == number
    match = _TS.search(line)
    return match is not None and start <= float(match[1]) < end - 0.002
