"""The JSON report of nccl-tests (``-J FILE``, releases since October 2025), finished or cut.

Format after ``src/util.cu`` and ``src/common.cu`` of nccl-tests (layout versions 1 to 3): booleans,
NaN and the root are strings, and the device list holds one entry per process.
"""

from pathlib import PurePath
from typing import Any

from advisor.ingest.readers._json import TopLevel
from advisor.ingest.readers.nccl_tests.record import Harvest, Measurement
from advisor.model.nccl.version import format_version, version_of_code
from advisor.vocabulary.numbers import real
from advisor.vocabulary.operations import canonical_op

_Devices = tuple[tuple[str, ...] | None, str | None]
"""Hosts, and the name of the GPUs."""


def parse_report(text: str) -> Harvest:
    """All measurements of a report. What a cut left unfinished is counted, not guessed."""
    harvest = Harvest()
    document = TopLevel(text)
    op = "unknown"
    ranks: int | None = None
    devices: _Devices = (None, None)
    rows: list[Any] = []
    for item in document:
        if item.key == "args" and item.index == 0 and isinstance(item.value, str):
            op = canonical_op(PurePath(item.value).name) or op
        elif item.key == "nccl_version" and isinstance(item.value, int):
            harvest.nccl_version = format_version(version_of_code(abs(item.value) % 10**9))
        elif item.key == "config" and isinstance(item.value, dict):
            ranks = _ranks(item.value)
            devices = _devices(item.value)
        elif item.key == "results" and item.index is not None:
            rows.append(item.value)
        elif item.key == "errors" and isinstance(item.value, str) and item.value:
            harvest.notes.append(f"nccl-tests reports an error: {item.value[:200]}")
    for row in rows:  # last, as what they are results of may stand behind them
        _row(row, (op, ranks), devices, harvest)
    if document.cut is not None:
        harvest.dropped["report cut or damaged"] += 1
        harvest.notes.append(f"breaks off at character {document.cut}: what came before is kept")
    if op == "unknown" and harvest.measurements:
        harvest.notes.append("the operation is not named: stored as 'unknown'")
    return harvest


def _ranks(config: dict[str, Any]) -> int | None:
    """Processes (one device entry each, src/util.cu parseRankInfo) × threads × GPUs per thread.

    A report that lists a process several times has one entry per GPU.
    """
    threads, gpus = config.get("nthreads"), config.get("ngpus")
    if not isinstance(threads, int) or not isinstance(gpus, int):
        return None
    mine = _first_group(config)
    processes = {
        (str(device.get("hostname")), str(device["pid"])) for device in mine if "pid" in device
    }
    if 0 < len(processes) < len(mine):
        return len(mine)
    return len(mine) * threads * gpus if mine else None


def _first_group(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of the devices in the group that is named first."""
    listed = config.get("devices")
    named = [one for one in (listed if isinstance(listed, list) else []) if isinstance(one, dict)]
    return [entry for entry in named if entry.get("group") == named[0].get("group")]


def _devices(config: dict[str, Any]) -> _Devices:
    """The hosts and the one kind of GPU of the first group; None for what is not named."""
    mine = _first_group(config)
    hosts = {str(entry["hostname"]) for entry in mine if "hostname" in entry}
    kinds = {str(entry["device_info"]) for entry in mine if "device_info" in entry}
    return tuple(sorted(hosts)) or None, kinds.pop() if len(kinds) == 1 else None


def _row(row: Any, kind: tuple[str, int | None], devices: _Devices, harvest: Harvest) -> None:
    size = real(row.get("size")) if isinstance(row, dict) else None
    if size is None:
        harvest.dropped["result without a size"] += 1
        return
    for key, in_place in (("out_of_place", False), ("in_place", True)):
        half = row.get(key)
        if half is None:
            continue
        if not isinstance(half, dict):
            harvest.dropped["result of an unknown form"] += 1
            continue
        wrong = real(half.get("nwrong"))
        harvest.add(
            Measurement(
                *kind,
                int(size),
                str(row.get("type", "")),
                in_place,
                real(half.get("time", half.get("cpu_time"))),
                real(half.get("alg_bw")),
                real(half.get("bus_bw")),
                None if wrong is None else int(wrong),
                0,
                *devices,
            )
        )
