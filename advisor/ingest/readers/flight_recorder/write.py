"""A dump into ``flight``, ``timed_call`` and ``process_group``."""

import json
from collections.abc import Iterable, Iterator

from advisor.ingest.readers._rows import Row, insert
from advisor.ingest.readers.flight_recorder.dump import Dump, Group
from advisor.ingest.source import ReadContext

_LISTS = ("input_sizes", "output_sizes", "frames")


def write_dump(context: ReadContext, dump: Dump, rank: int | None) -> int:
    """Append the dump of ``rank``; how many calls were kept.

    A group's progress counters become rows without an operation, whose ``state`` names the
    counter and whose ``seq`` is its value.
    """
    groups = _not_known(context, dump.groups)
    insert(
        context,
        "process_group",
        [
            {
                "process_group": group.name,
                "description": group.description,
                "ranks": group.ranks,
                "size": len(group.ranks) if group.ranks else None,
                "backend": "nccl",
            }
            for group in groups
        ],
    )
    if rank is not None and dump.nccl_version is not None:
        version = {"kind": "version", "rank": rank, "name": "nccl", "value": dump.nccl_version}
        insert(context, "topology", [version])
    insert(context, "flight", _rows(dump, rank))
    insert(context, "timed_call", _timed(dump, rank))
    return len(dump.entries)


def _not_known(context: ReadContext, groups: Iterable[Group]) -> list[Group]:
    """Groups that no row is of. One of none of its namesake's ranks is another group: torch's
    ``split_group`` gives all along one dimension of a device mesh one number."""
    known = context.known("process_group")
    members = context.con.execute(
        "SELECT process_group, unnest(ranks) FROM process_group WHERE run = ?", [context.run]
    ).fetchall()
    listed, namesakes = set(members), {name for name, _ in members}
    return [
        group
        for group in groups
        if group.name not in known
        or (
            group.ranks
            and group.name in namesakes
            and listed.isdisjoint((group.name, rank) for rank in group.ranks)
        )
    ]


def _rows(dump: Dump, rank: int | None) -> Iterator[Row]:
    for entry in dump.entries:
        own = {name: value for name, value in vars(entry).items() if name != "dur_ns"}
        yield {"rank": rank, **own, **{name: json.dumps(own[name]) for name in _LISTS}}
    for group, counter, value in dump.status:
        yield {"rank": rank, "process_group": group, "seq": value, "state": counter}


def _timed(dump: Dump, rank: int | None) -> Iterator[Row]:
    for entry in dump.entries:
        if entry.dur_ns is not None:
            yield {
                "rank": rank,
                "process_group": entry.process_group,
                "seq": entry.seq,
                "op": entry.op.split(" ")[0],
                "dur_ns": entry.dur_ns,
                "at_ns": entry.created_ns,
            }
