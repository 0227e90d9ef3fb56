"""Tables of a benchmark → ``bench_curve``: what each reaches, should reach, and where it falls.

A table is held against the data sheet of its GPUs and NICs, against the tables of the same kind of
run beside it, and against itself: bandwidth must not fall as messages grow.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from advisor.config.hardware import Device, Machine, device_of, find_device, machine, machines_with
from advisor.model.nccl.ceiling import Ceiling, ceiling
from advisor.vocabulary.bandwidth import bus_factor

SMALL_BYTES, LARGE_BYTES = 4096, 1 << 20
_MACHINE = "machine"  # the kind of the row of topology that a user's word makes
_FALL = 0.7
"""Where NCCL goes from one algorithm or protocol to the next, healthy tables lose up to a fifth."""
_LEAST_FALL_BYTES = 32 * 1024  # below, a call is mostly latency
_LEAST_GROWTH = 1.2  # of the time from one size to the next, to measure a slope
_LATENCY_SHARE = 0.1  # of the table's bandwidth: a call that reaches less is mostly latency
_ROUNDING = 1.05  # of a table and of its links' clocks
_MOST_BOARD = 8  # GPUs of one host, in every machine that is no rack
_TWO = 2
_LEVEL = 0.99  # of the best: what two runs of one table differ by
_SQL = """
SELECT tool, source, op, ranks, hosts, device, bytes, in_place, min(time_us) AS time_us,
  max(wrong) AS wrong, max(busbw_gbps / nullif(algbw_gbps, 0)) AS factor, max(apart) AS apart
FROM bench
WHERE run = ? AND src IS NULL AND bytes > 0 AND time_us > 0
GROUP BY ALL ORDER BY ALL
"""
# Where NCCL's log names what it chose, for every communicator of as many ranks.
_BY_SWITCH = """
SELECT op, bytes, ranks FROM nccl_choice WHERE run = ? AND source = 'call'
GROUP BY ALL HAVING bool_and(algorithm = 'NVLS')
"""


class Point(NamedTuple):
    """One row of a table: microseconds by place (False: out of place, None: not said)."""

    bytes: int
    times_us: Mapping[bool | None, float]
    wrong: int | None

    @property
    def time_us(self) -> float:
        """The faster of both places."""
        return min(self.times_us.values())


class Curve(NamedTuple):
    """One operation of one table; ``factor`` makes bus bandwidth of bytes over time."""

    tool: str
    source: str | None
    op: str
    ranks: int | None
    hosts: tuple[str, ...] | None
    device_name: str | None
    points: Sequence[Point]
    factor: float
    apart: int | None

    def gbps(self, point: Point) -> float:
        """Bus bandwidth at a size, GB/s."""
        return point.bytes * self.factor / point.time_us / 1e3

    @property
    def reach_gbps(self) -> float:
        """What it gets, or would at larger sizes: bytes over time between the last sizes."""
        slopes = [
            (after.bytes - before.bytes) * self.factor / (after.time_us - before.time_us) / 1e3
            for before, after in zip(self.points[-4:], self.points[-3:], strict=False)
            if after.time_us > _LEAST_GROWTH * before.time_us
        ]
        return (
            max(map(self.gbps, self.points))
            if not slopes
            else max(*slopes, *map(self.gbps, self.points))
        )

    @property
    def kind(self) -> tuple[Any, ...]:
        """What tables must share to be compared."""
        return (self.tool, self.op, self.ranks, self.device_name, len(self.hosts or ()))


class Alike(NamedTuple):
    """Tables of one kind: the best bandwidth at the two largest sizes that all of them have."""

    tables: int
    best_gbps: Mapping[int, float]

    @classmethod
    def of(cls, curves: Sequence[Curve]) -> "Alike":
        """Looked up once for each kind: ten thousand tables can be of one."""
        sizes = [{p.bytes: other.gbps(p) for p in other.points} for other in curves]
        common = sorted(set[int].intersection(*map(set, sizes)))
        common = [size for size in common if size >= LARGE_BYTES][-_TWO:]
        return cls(len(curves), {size: max(one[size] for one in sizes) for size in common})


def curve_rows(con: Any, run: str) -> list[dict[str, Any]]:
    """Rows of ``bench_curve``."""
    curves = _curves(con, run)
    by_switch = set(con.execute(_BY_SWITCH, [run]).fetchall())
    said = _machine(con, run)
    alike: dict[tuple[Any, ...], list[Curve]] = defaultdict(list)
    for curve in curves:
        alike[curve.kind].append(curve)
    best = {kind: Alike.of(tables) for kind, tables in alike.items()}
    return [_row(run, curve, said, best[curve.kind], by_switch) for curve in curves]


def _curves(con: Any, run: str) -> list[Curve]:
    tables: dict[tuple[Any, ...], dict[int, list[tuple[Any, ...]]]] = defaultdict(dict)
    for tool, source, op, ranks, hosts, device, size, *rest in con.execute(_SQL, [run]).fetchall():
        key = (tool, source, op, ranks, None if hosts is None else tuple(hosts), device)
        tables[key].setdefault(size, []).append(tuple(rest))
    found = []
    for key, sizes in tables.items():
        points = [
            Point(
                size,
                {place: time for place, time, *_ in rows},
                max((wrong for _, _, wrong, *_ in rows if wrong is not None), default=None),
            )
            for size, rows in sorted(sizes.items())
        ]
        largest = sizes[points[-1].bytes]
        printed = [factor for *_, factor, _ in largest if factor]
        factor = bus_factor(key[2], key[3]) or max(printed, default=1.0)
        found.append(Curve(*key, points, factor, max(row[-1] or 0 for row in largest) or None))
    return found


def _row(
    run: str,
    curve: Curve,
    said: Machine | None,
    alike: Alike,
    by_switch: Collection[tuple[str, int, int]],
) -> dict[str, Any]:
    best = max(curve.points, key=curve.gbps)
    level = [point for point in curve.points if curve.gbps(point) >= _LEVEL * curve.gbps(best)]
    device = _device(curve, said)
    nvls = (curve.op, best.bytes, curve.ranks) in by_switch
    limit = None if device is None else _limit(curve, device, said, nvls=nvls)
    small = [time for point in _small(curve) for time in point.times_us.values()]
    wrong = [p for p in curve.points if p.wrong]
    checked = [p.wrong for p in curve.points if p.wrong is not None]
    return {
        "run": run,
        "tool": curve.tool,
        "source": curve.source,
        "op": curve.op,
        "ranks": curve.ranks,
        "hosts": None if curve.hosts is None else list(curve.hosts),
        "device": None if device is None else device.name,
        "sizes": len(curve.points),
        "best_gbps": curve.gbps(best),
        "best_bytes": level[-1].bytes,
        "reach_gbps": curve.reach_gbps,
        "largest_bytes": curve.points[-1].bytes,
        "limit_gbps": None if limit is None else limit.gbps,
        "limit_by": None if limit is None else limit.by,
        "limit_source": None if limit is None else limit.source,
        "small_us": median(small) if small else None,
        **_fall(curve),
        **_in_place(curve.points),
        "wrong": sum(checked) if checked else None,
        "wrong_bytes": wrong[0].bytes if wrong else None,
        "wrong_sizes": len(wrong),
        "apart": curve.apart,
        **_likes(curve, alike),
    }


def _small(curve: Curve) -> Sequence[Point]:
    """Calls that take their latency: of 4 KiB or less. In a table without them the smallest, where
    its bytes at the table's bandwidth would take less than a tenth of its time.
    """
    small = [point for point in curve.points if point.bytes <= SMALL_BYTES]
    least = curve.points[0]
    if small or curve.gbps(least) > _LATENCY_SHARE * curve.reach_gbps:
        return small
    return [least]


def _fall(curve: Curve) -> dict[str, Any]:
    """Where the bandwidth falls below what a smaller size had, and until where: of several falls
    the one that costs the most time.
    """
    top = 0.0
    falls: list[tuple[float, list[Point]]] = []
    falling = False
    for point in curve.points:
        gbps = curve.gbps(point)
        low = point.bytes >= _LEAST_FALL_BYTES and gbps < _FALL * top
        if low and not falling:
            falls.append((top, []))
        if low:
            falls[-1][1].append(point)
        else:
            top = max(top, gbps)
        falling = low
    if not falls:
        return dict.fromkeys(("drop_bytes", "drop_gbps", "drop_from_gbps", "drop_until_bytes"))

    def lost_us(fall: tuple[float, list[Point]]) -> float:
        return sum(point.time_us * (1 - curve.gbps(point) / fall[0]) for point in fall[1])

    top, fall = max(falls, key=lost_us)
    lasts = fall[-1] is curve.points[-1]
    return {
        "drop_bytes": fall[0].bytes,
        "drop_gbps": min(map(curve.gbps, fall)),
        "drop_from_gbps": top,
        "drop_until_bytes": None if lasts else fall[-1].bytes,
    }


def _in_place(points: Sequence[Point]) -> dict[str, Any]:
    """Bandwidth in place over that out of place: of most large sizes, and of the oddest."""
    ratios = {
        point.bytes: point.times_us[False] / point.times_us[True]
        for point in points
        if point.bytes >= LARGE_BYTES and {False, True} <= point.times_us.keys()
    }
    if len(ratios) < _TWO:
        return dict.fromkeys(("in_place_ratio", "apart_ratio", "apart_bytes"))
    odd = max(ratios, key=lambda size: max(ratios[size], 1 / ratios[size]))
    return {
        "in_place_ratio": median(ratios.values()),
        "apart_ratio": ratios[odd],
        "apart_bytes": odd,
    }


def _likes(curve: Curve, alike: Alike) -> dict[str, Any]:
    """Beside the best of its like, at that of the two largest common sizes where it is nearer."""
    nothing = dict.fromkeys(("like_gbps", "like_bytes", "own_gbps", "like_tables"))
    if alike.tables < _TWO or not alike.best_gbps:
        return nothing
    own = {p.bytes: curve.gbps(p) for p in curve.points}
    near = max(alike.best_gbps, key=lambda size: own[size] / alike.best_gbps[size])
    return {
        "like_gbps": alike.best_gbps[near],
        "like_bytes": near,
        "own_gbps": own[near],
        "like_tables": alike.tables,
    }


def _device(curve: Curve, said: Machine | None) -> Device | None:
    if curve.device_name is not None:
        # A card of the name of a module has links only where bridges were bought.
        bridged = re.search(r"\bpcie\b", curve.device_name, re.IGNORECASE)
        return None if bridged else find_device(curve.device_name)
    return device_of(said) if said is not None else None


def _limit(curve: Curve, device: Device, said: Machine | None, *, nvls: bool) -> Ceiling | None:
    # Whose network reads the device's memory.
    of_device = [one for one in machines_with(device.name) if one.network.kind != "tcp"]
    board = said.gpus_per_node if said else next((m.gpus_per_node for m in of_device), None)
    if (ranks := curve.ranks) is None:
        return None
    hosts = len(curve.hosts) if curve.hosts else _hosts(ranks, board)
    if hosts is None:
        return None
    # Nothing names the NICs: what the slowest machine with RDMA and this GPU has, at least.
    machines: list[Machine | None] = [said] if said is not None else [*of_device] or [None]

    def least(hosts: int, switched: bool = False) -> Ceiling | None:
        found = (
            ceiling(curve.op, ranks, hosts, device, m, switched=switched, nvls=nvls)
            for m in machines
        )
        return min(filter(None, found), key=lambda limit: limit.gbps, default=None)

    limit, best = least(hosts), max(map(curve.gbps, curve.points))
    if board and board > _MOST_BOARD and limit is not None and limit.by == "NICs":
        # Trays of a rack are joined by NVLink: said by the user, or where more than their NICs'
        # bandwidth was measured. Else nothing tells whether the hosts are of one rack.
        if said is not None or curve.reach_gbps > limit.gbps:
            return least(-(-ranks // board))
        return None if ranks <= board else limit
    # A few GPUs may be of a board without a switch: what measures more is of one that has it.
    has_switch = any(one.intra.kind == "nvswitch" for one in of_device)
    if has_switch and limit and limit.by == "links" and best > _ROUNDING * limit.gbps:
        limit = least(hosts, switched=True)
    # What measures more than the slowest machine's NICs carry has others: nothing says which.
    if said is None and limit and limit.by == "NICs" and curve.reach_gbps > limit.gbps:
        return None
    return limit


def _hosts(ranks: int, board: int | None) -> int | None:
    """Of a table that does not list its hosts: as few as its ranks need.

    None where a machine's GPUs are of several hosts (a rack of NVLink).
    """
    return None if board is None or board > _MOST_BOARD else -(-ranks // board)


def keep_machine(con: Any, run: str, name: str) -> None:
    """Keep which machine a run was on, as the user says. Raises AdvisorError for an unknown one."""
    value = machine(name).model_dump_json()
    con.execute("DELETE FROM topology WHERE run = ? AND kind = ?", [run, _MACHINE])
    con.execute(
        "INSERT INTO topology (run, kind, name, value) VALUES (?, ?, ?, ?)",
        [run, _MACHINE, name, value],
    )


def _machine(con: Any, run: str) -> Machine | None:
    found = con.execute(
        "SELECT value FROM topology WHERE run = ? AND kind = ?", [run, _MACHINE]
    ).fetchall()
    return Machine.model_validate_json(found[0][0]) if found else None
