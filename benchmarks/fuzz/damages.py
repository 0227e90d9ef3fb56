"""What is done to a recording: drawn by chance, or each kind of damage in turn."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.fuzz.recordings import Parts, Recording

Damage = Callable[[Parts, random.Random], str]


def _drop_rank(parts: Parts, rng: random.Random) -> str:
    gone = rng.sample(sorted(parts), k=min(len(parts) - 1, rng.choice((1, 1, 2))))
    for name in gone:
        del parts[name]
    return f"without {', '.join(gone)}"


def _stretch(parts: Parts, rng: random.Random) -> tuple[str, int, int]:
    name = rng.choice(sorted(name for name, records in parts.items() if records))
    count = len(parts[name])
    size = min(count, rng.choice((1, 1, 2, 5, max(1, count // 10), max(1, count // 3))))
    start = rng.choice((0, count - size, rng.randrange(count - size + 1)))
    return name, start, start + size


def _drop_records(parts: Parts, rng: random.Random) -> str:
    name, start, end = _stretch(parts, rng)
    parts[name] = parts[name][:start] + parts[name][end:]
    return f"{name} without records {start} to {end - 1}"


def _repeat_records(parts: Parts, rng: random.Random) -> str:
    name, start, end = _stretch(parts, rng)
    at = rng.choice((end, len(parts[name])))
    parts[name] = parts[name][:at] + parts[name][start:end] + parts[name][at:]
    return f"{name} with records {start} to {end - 1} again at {at}"


def _thin_out(parts: Parts, rng: random.Random) -> str:
    share = rng.choice((0.01, 0.05, 0.2))
    name = rng.choice([*sorted(parts), ""])
    for one in [name] if name else sorted(parts):
        parts[one] = [record for record in parts[one] if rng.random() >= share]
    return f"{name or 'all'} without each record by a chance of {share:g}"


def _shuffle(parts: Parts, rng: random.Random) -> str:
    name = rng.choice(sorted(parts))
    parts[name] = rng.sample(parts[name], k=len(parts[name]))
    return f"{name} shuffled"


def _cut(place: Path, rng: random.Random) -> str:
    """Cut a written file at any byte."""
    path = rng.choice(sorted(place.iterdir()))
    data = path.read_bytes()
    at = rng.randrange(len(data))
    path.write_bytes(data[:at])
    return f"{path.name} cut at byte {at}"


def _garble(place: Path, rng: random.Random) -> str:
    """Overwrite, remove or repeat up to 64 bytes of a written file."""
    path = rng.choice(sorted(place.iterdir()))
    data = path.read_bytes()
    at, size = rng.randrange(len(data)), rng.choice((1, 8, 64))
    what = rng.choice((b"", rng.randbytes(size), data[at : at + size] * 2))
    path.write_bytes(data[:at] + what + data[at + size :])
    return f"{path.name}: {size} bytes at {at} are now {what!r}"


OF_RECORDS: tuple[Damage, ...] = (
    *(_drop_rank, _drop_records, _repeat_records, _thin_out, _shuffle),
)
OF_FILES: tuple[Callable[[Path, random.Random], str], ...] = (_cut, _garble)


@dataclass(frozen=True)
class Case:
    """One kind of damage, ``done`` in words; to records before the files are written."""

    done: str
    of_records: Callable[[Parts], None] = lambda parts: None
    of_files: Callable[[Path], None] = lambda place: None


_CATEGORIES = ("kernel", "cuda_runtime", "cpu_op", "user_annotation", "ac2g")
_CLOCKS_US = (3_000, 20_000_000)


def each(recording: Recording, accused_ranks: frozenset[str]) -> Iterator[Case]:
    """Every kind of damage, on a rank that is accused and on one that is not."""
    rng = random.Random(recording.name)
    names = rng.sample(sorted(recording.parts), k=len(recording.parts))
    names.sort(key=lambda name: recording.called(name) not in accused_ranks)
    one_file_each = len(names) > 1 and recording.one_file_each
    for name in dict.fromkeys((names[0], names[-1])):
        yield from _of_rank(recording, name, rng, one_file_each=one_file_each)
    yield Case("all without each record by a chance of 0.01", partial(_thin, rng=rng))
    records = next(iter(recording.parts.values()))
    for category in _CATEGORIES:
        if any(isinstance(one, dict) and one.get("cat") == category for one in records):
            yield Case(f"all without {category}", partial(without, category=category))


def _of_rank(
    recording: Recording, name: str, rng: random.Random, *, one_file_each: bool
) -> Iterator[Case]:
    called = recording.called(name)
    if len(recording.parts) > 1:
        yield Case(f"without {called}", lambda parts: parts.__delitem__(name) or None)
    yield Case(
        f"{called} without each record by a chance of 0.01", partial(_thin, name=name, rng=rng)
    )
    yield Case(f"{called} shuffled", lambda parts: rng.shuffle(parts[name]))
    for share in (50, 80, 95) if one_file_each else ():
        yield Case(f"{called} cut at {share} %", of_files=partial(_cut_at, name=name, share=share))
    if one_file_each:
        yield Case(f"{called} twice", of_files=lambda place: _copy(place / name))
    if isinstance(recording.parts[name][0], dict) and "ts" in recording.parts[name][-1]:
        for shift in _CLOCKS_US:
            yield Case(f"{called} {shift} us later", partial(_later, name=name, shift=shift))


def _thin(parts: Parts, rng: random.Random, name: str = "") -> None:
    for one in [name] if name else sorted(parts):
        parts[one] = [record for record in parts[one] if rng.random() >= 0.01]


def without(parts: Parts, category: str) -> None:
    """Drop a category of events from all traces."""
    for name, records in parts.items():
        parts[name] = [record for record in records if record.get("cat") != category]


def _later(parts: Parts, name: str, shift: int) -> None:
    parts[name] = [one | {"ts": one["ts"] + shift} if "ts" in one else one for one in parts[name]]


def _cut_at(place: Path, name: str, share: int) -> None:
    data = (place / name).read_bytes()
    (place / name).write_bytes(data[: len(data) * share // 100])


def _copy(path: Path) -> None:
    shutil.copy(path, path.with_name(f"copy-of-{path.name}"))
