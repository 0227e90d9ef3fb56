"""The content of a dump, checked field by field: nothing of a dump is trusted to have its type.

Keys after torch/csrc/distributed/c10d/FlightRecorder.hpp (dump versions 1.x to 2.x).
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from advisor.ingest.readers._alike import one_copy
from advisor.ingest.readers._fields import count_unusable, without_usable
from advisor.vocabulary.numbers import (
    INT64_MAX,
    MOST_CALLS,
    MOST_EVENT_NS,
    MOST_RANKS,
    decimal,
    real,
    within,
)
from advisor.vocabulary.operations import canonical_op

_MAX_TENSORS, _MAX_DIMENSIONS, _MAX_FRAMES = 256, 32, 32
_P2P = re.compile(r"^(send|recv) (\d{1,9})(->|<-)(\d{1,9})(?!\d)")
_STATES = {"scheduled", "started", "completed"}
KEPT_PER_BYTE = 32
"""Values and characters that are kept for each byte of a dump, counting what it shares wherever
it stands. Torch's own dumps, in which names of files are shared, have about six."""
LEAST_KEPT = 64 << 20
_ENTRY = 256  # of an entry besides what it lists
_OVER = "over the bound of kept values"
_KEYS = {
    "created_ns": "time_created_ns",
    "started_ns": "time_discovered_started_ns",
    "completed_ns": "time_discovered_completed_ns",
    "dur_ns": "duration_ms",
}
PROGRESS = ("last_enqueued", "last_started", "last_completed")


@dataclass(frozen=True)
class Entry:
    """One recorded call. Times are ns since the epoch, as the process's watchdog saw them."""

    process_group: str | None
    seq: int | None
    op: str
    state: str
    created_ns: int | None
    started_ns: int | None
    completed_ns: int | None
    dur_ns: int | None
    """Between its events on the device: its own transfer and the waiting before it."""
    input_sizes: list[list[int]]
    output_sizes: list[list[int]]
    frames: list[str]

    @property
    def length(self) -> int:
        """About how many values and characters it keeps."""
        numbers = sum(map(len, (*self.input_sizes, *self.output_sizes)))
        return _ENTRY + numbers + sum(map(len, self.frames))


@dataclass
class Group:
    """A process group as ``pg_config`` lists it."""

    name: str
    description: str | None
    ranks: list[int] | None


@dataclass
class Dump:
    """One rank's dump."""

    rank: int | None = None
    nccl_version: str | None = None
    entries: list[Entry] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    status: list[tuple[str, str, int]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def parse_dump(content: dict[object, object], size_bytes: int = 0) -> Dump:
    """Check and convert the dictionary of a dump that was written in so many bytes."""
    dump = Dump(_rank(content.get("rank")), _text(content.get("nccl_version")))
    left = max(LEAST_KEPT, KEPT_PER_BYTE * size_bytes)
    dump.groups = _groups(content.get("pg_config"), dump, left)
    left -= sum(len(group.ranks or ()) for group in dump.groups)
    names_by_id: dict[int, str] = {}
    unusable = Counter[str]()
    entries = content.get("entries")
    entries = entries if isinstance(entries, list) else []
    for place, item in enumerate(entries):
        if left <= 0:
            dump.dropped[_OVER] += len(entries) - place
            break
        entry = _entry(item, unusable)
        if isinstance(entry, str):
            left -= _ENTRY
            dump.dropped[f"entry without a usable {entry}"] += 1
            continue
        left -= entry.length
        dump.entries.append(entry)
        if (number := _int(item.get("pg_id"))) is not None and entry.process_group is not None:
            names_by_id[number] = entry.process_group
    dump.status = _status(content.get("pg_status"), names_by_id, dump)
    dump.notes += without_usable("calls", unusable)
    return dump


def rank_of(dump: Dump, path: PurePath) -> int | None:
    """The rank that dumped: as recorded, else the last number in the file's name.

    Every group of ``pg_config`` holds the rank, so a number outside them is not believed; where the
    groups leave only one rank, that is it.
    """
    if dump.rank is not None:
        return dump.rank
    shared: set[int] | None = None
    for group in dump.groups:
        if group.ranks is not None:
            shared = set(group.ranks) if shared is None else shared & set(group.ranks)
    numbers = re.findall(r"\d+", path.name.split(".")[0])
    named = decimal(numbers[-1], most=MOST_RANKS - 1) if numbers else None
    if shared is not None and len(shared) == 1:
        return next(iter(shared))
    if named is not None and (shared is None or named in shared):
        return named
    return None


def _entry(item: Any, unusable: Counter[str]) -> Entry | str:
    """A call, or the field without which it is none; ``unusable`` counts the others."""
    if not isinstance(item, dict):
        return "form"
    title = _text(item.get("profiling_name"))
    state = _text(item.get("state"))
    if title is None or not title.isprintable():
        return "profiling_name"
    if state not in _STATES:
        return "state"
    p2p = item.get("is_p2p") is True
    sequence = "p2p_seq_id" if p2p else "collective_seq_id"
    sequence = sequence if sequence in item else "seq_id"
    entry = Entry(
        _group_name(item.get("process_group")),
        within(item.get(sequence), 0, MOST_CALLS),
        _op(title),
        state,
        _int(item.get("time_created_ns")),
        _int(item.get("time_discovered_started_ns")) or None,
        _int(item.get("time_discovered_completed_ns")) or None,
        _duration_ns(item.get("duration_ms")),
        _sizes(item.get("input_sizes")),
        _sizes(item.get("output_sizes")),
        _frames(item.get("frames")),
    )
    told = {_KEYS.get(name, name): value for name, value in vars(entry).items()}
    count_unusable(item, {**told, sequence: entry.seq}, unusable)
    return entry


def _duration_ns(value: Any) -> int | None:
    """Of a call, from ms as a number; None where no call lasts so long, or not at all."""
    ms = None if isinstance(value, str) else real(value, MOST_EVENT_NS / 1e6)
    return round(1e6 * ms) if ms is not None and ms > 0 else None


def _op(title: str) -> str:
    """``nccl:all_reduce`` → ``all_reduce``; ``nccl:send 0->1`` keeps its ranks in the group."""
    name = title.split(":", 1)[-1]
    if match := _P2P.match(name):
        return match[0]
    return canonical_op(name) or name


def _groups(config: Any, dump: Dump, most: int) -> list[Group]:
    """``pg_config``: {name: {name, desc, ranks}}, ranks as text ``[0, 1]`` or as a list."""
    out: list[Group] = []
    for key, value in config.items() if isinstance(config, dict) else ():
        if not isinstance(value, dict):
            continue
        if most <= 0:
            dump.dropped[_OVER] += 1
            continue
        ranks = _ranks(value.get("ranks"))
        most -= _ENTRY + len(ranks or ())
        if "ranks" in value and ranks is None:
            dump.dropped["ranks of a group that are no ranks"] += 1
        out.append(Group(_text(value.get("name")) or str(key), _text(value.get("desc")), ranks))
    return out


def _ranks(value: Any) -> list[int] | None:
    """All of them, or None where one of them is none: half a number is another rank."""
    inside = re.fullmatch(r"\[([\d,\s]*)\]", value) if isinstance(value, str) else None
    if inside:
        listed = inside[1].replace(",", " ").split()
        value = [decimal(number, most=MOST_RANKS - 1) for number in listed]
    if not isinstance(value, list) or any(_rank(rank) is None for rank in value):
        return None
    return one_copy(tuple(value))


def _status(status: Any, names_by_id: dict[int, str], dump: Dump) -> list[tuple[str, str, int]]:
    """(group name, which counter, sequence number) of every group's progress.

    ``pg_status`` is keyed by the order in which this rank created its groups, ``pg_config`` by
    their names, which count up over the whole job: sorted, the two lists correspond. That is used
    only where the ids in the entries confirm it.
    """
    if not isinstance(status, dict):
        return []
    by_number = sorted(
        ((int(key), value) for key, value in status.items() if _is_number(key)),
        key=lambda item: item[0],
    )
    names = sorted((g.name for g in dump.groups if g.name.isdecimal()), key=int)
    mapping = dict(names_by_id)
    if len(names) == len(by_number) == len(dump.groups):
        paired = {number: name for (number, _), name in zip(by_number, names, strict=True)}
        if all(paired.get(number) == name for number, name in names_by_id.items()):
            mapping = paired
    out = []
    for number, counters in by_number:
        name_of_group = mapping.get(number)
        if name_of_group is None or not isinstance(counters, dict):
            dump.dropped["progress of a group that cannot be told"] += 1
            continue
        for which in PROGRESS:
            value = _int(counters.get(f"{which}_collective"))
            if value is not None and value > MOST_CALLS:
                dump.dropped["progress that no job can make"] += 1
            elif value is not None and value >= 0:
                out.append((name_of_group, which, value))
    return out


def _is_number(key: Any) -> bool:
    return (isinstance(key, int) and not isinstance(key, bool)) or (
        isinstance(key, str) and key.isdecimal() and len(key) < 10
    )


def _group_name(value: Any) -> str | None:
    if isinstance(value, (list, tuple)) and value:
        return _text(value[0])
    return _text(value)


def _sizes(value: Any) -> list[list[int]]:
    """The shapes of its tensors; none where one is damaged: a part would be another size."""
    tensors = value[:_MAX_TENSORS] if isinstance(value, list) else []
    sizes = [
        [within(number, 0, INT64_MAX) for number in tensor[:_MAX_DIMENSIONS]]
        for tensor in tensors
        if isinstance(tensor, list)
    ]
    whole = [[number for number in tensor if number is not None] for tensor in sizes]
    return whole if whole == sizes and len(sizes) == len(tensors) else []


def _frames(value: Any) -> list[str]:
    """``function file:line``, innermost first."""
    out = []
    for frame in value[:_MAX_FRAMES] if isinstance(value, list) else []:
        if isinstance(frame, dict):
            name, file = _text(frame.get("name")), _text(frame.get("filename"))
            out.append(f"{name or '?'} {file or '?'}:{_int(frame.get('line')) or 0}")
    return out


def _int(value: Any) -> int | None:
    return within(value, -INT64_MAX, INT64_MAX)


def _rank(value: Any) -> int | None:
    return within(value, 0, MOST_RANKS - 1)


def _text(value: Any) -> str | None:
    return value[:1000] if isinstance(value, str) else None
