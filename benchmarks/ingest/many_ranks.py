"""Ingest of a whole job on a local Ray cluster of two nodes: time, processor time, bytes.

    python -m benchmarks.ingest.many_ranks [--ranks 512] [--events-per-rank-step 14000 43000]

The ranks are the two real recordings of fixtures/gpt2-tiny-ddp-2 over and over, with the rank, the
world size and the members of the process group edited where a trace tells them; names, times and
events stay as recorded. Beside the cluster the same files are read into one store by one process.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "gpt2-tiny-ddp-2"
STEPS = 4  # recorded in the fixture, see its README
_DISTRIBUTED = re.compile(rb'"distributedInfo": (\{.*?\}\]\})')
_OWN = re.compile(rb'"advisor": (\{.*\})(?=,\s*\n\s*"host_name")')


def write_ranks(folder: Path, count: int) -> int:
    """Write ``count`` traces of one job of that size; returns their uncompressed bytes."""
    templates = [gzip.decompress((FIXTURE / f"rank{rank}.json.gz").read_bytes()) for rank in (0, 1)]
    raw_bytes = 0
    for rank in range(count):
        text = with_rank(templates[rank % 2], rank, count)
        raw_bytes += len(text)
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(text, compresslevel=1))
    return raw_bytes


def with_rank(text: bytes, rank: int, world_size: int) -> bytes:
    """The trace as if recorded by ``rank`` of a job of ``world_size`` ranks."""
    found = _DISTRIBUTED.search(text)
    if found is None:
        raise SystemExit("no distributedInfo in the template")
    info: dict[str, Any] = json.loads(found.group(1))
    info |= {"rank": rank, "world_size": world_size}
    for group in info["pg_config"]:
        group |= {"pg_size": world_size, "ranks": list(range(world_size))}
    text = text[: found.start(1)] + json.dumps(info).encode() + text[found.end(1) :]
    own = _OWN.search(text)
    if own is None:
        raise SystemExit("no advisor field in the template")
    said: dict[str, Any] = json.loads(own.group(1))
    said |= {"rank": rank, "data_ranks": world_size, "world_size": world_size}
    said["workload"] = {**said["workload"], "world_size": world_size}
    return text[: own.start(1)] + json.dumps(said).encode() + text[own.end(1) :]


def main() -> None:
    """Command line; prints the measured figures and what they give for 4,096 ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--scratch", type=Path, help="where to put the traces and stores")
    parser.add_argument("--events-per-rank-step", type=int, nargs=2, default=(14_000, 43_000))
    parser.add_argument("--alone", action="store_true", help="also read them by one process")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="many-ranks-", dir=arguments.scratch) as scratch:
        traces = Path(scratch) / "traces"
        traces.mkdir()
        raw_bytes = write_ranks(traces, arguments.ranks)
        packed_bytes = _bytes_of(traces)
        print(
            f"{arguments.ranks} ranks x {STEPS} steps: {packed_bytes / 1e6:,.0f} MB gzipped, "
            f"{raw_bytes / 1e9:.2f} GB of JSON"
        )
        _on_cluster(traces, Path(scratch) / "store", arguments.events_per_rank_step)
        if arguments.alone:
            _alone(traces, Path(scratch) / "one.duckdb")


def _on_cluster(traces: Path, folder: Path, volumes: tuple[int, int]) -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    from advisor.ingest.ray_map import ingest_on_ray
    from advisor.store.store import Store

    small = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=small)
    try:
        cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        started_s, own_s = time.perf_counter(), _cpu_s(resource.RUSAGE_SELF)
        summary = ingest_on_ray([traces], folder)
        wall_s = time.perf_counter() - started_s
        own_s = _cpu_s(resource.RUSAGE_SELF) - own_s
    finally:
        ray.shutdown()
        cluster.shutdown()
    opened_s = time.perf_counter()
    with Store.open(folder) as store:
        (ranks,) = store.con.execute("SELECT count(DISTINCT rank) FROM rank").fetchone()
        (events,) = store.con.execute("SELECT count(*) FROM event").fetchone()
    opened_s = time.perf_counter() - opened_s
    out_bytes = _bytes_of(folder)
    print(
        f"2 nodes x 1 CPU: {wall_s:.1f} s, {summary.cpu_s:.1f} CPU-s in {summary.batches} tasks "
        f"(+ {own_s:.1f} in the driver); {ranks} ranks, {events:,} events; "
        f"{out_bytes / 1e6:,.0f} MB of Parquet in {sum(1 for _ in folder.rglob('*.parquet'))} "
        f"files; opened and counted in {opened_s:.2f} s; failed {len(summary.failed)}"
    )
    cpu_us, out_per = summary.cpu_s / events * 1e6, out_bytes / events
    in_per = _bytes_of(traces) / events
    print(f"per event: {cpu_us:.2f} us of CPU, {in_per:.1f} bytes in, {out_per:.1f} bytes out")
    for volume in volumes:
        total = 4096 * volume
        print(
            f"4,096 ranks x 1 step x {volume:,} events: {total / 1e6:,.0f} M events, "
            f"{total * cpu_us / 1e6:,.0f} CPU-s, {total * out_per / 1e9:.2f} GB of Parquet"
        )


def _alone(traces: Path, place: Path) -> None:
    from advisor.ingest import ingest
    from advisor.store.store import Store

    started_s, cpu_s = time.perf_counter(), _cpu_s(resource.RUSAGE_SELF)
    with Store.create(place) as store:
        ingest([traces], store)
        store.save()
    wall_s, cpu_s = time.perf_counter() - started_s, _cpu_s(resource.RUSAGE_SELF) - cpu_s
    print(f"one process, one store: {wall_s:.1f} s, {cpu_s:.1f} CPU-s, {_bytes_of(place):,} bytes")


def _bytes_of(place: Path) -> int:
    if place.is_file():
        return place.stat().st_size
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def _cpu_s(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
