"""The host of a trace that names none in itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.traces import event, kineto, read


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("gpu-a100-17_48213.1718040723123456789.pt.trace.json", "gpu-a100-17"),
        ("cluster-node07_48213.1718040723123456789.pt.trace.json", "cluster-node07"),
        ("ip-10-0-3-17.ec2.internal_912.1718040723123456789.pt.trace.json",
         "ip-10-0-3-17.ec2.internal"),
        ("a_b_912.1718040723123456789.pt.trace.json", "a_b"),
        ("rank_3.1718040723123456789.pt.trace.json", None),
        ("worker_3.1718040723123.pt.trace.json", None),
        ("trace.json", None),
    ],
)  # fmt: skip
def test_the_host_in_the_name_that_torch_gives_a_file(
    tmp_path: Path, name: str, host: str | None
) -> None:
    path = tmp_path / name
    path.write_text(kineto([event(0)]))
    assert read(path).con.execute("SELECT host FROM rank").fetchall() == [(host,)]


@pytest.mark.parametrize(
    ("name", "pid", "host"),
    [
        ("gpt-worker-4_48213.1718040723123456789.pt.trace.json", 48213, "gpt-worker-4"),
        ("worker-4_48213.1718040723123456789.pt.trace.json", 48213, "worker-4"),
        ("worker-4_3.1718040723123456789.pt.trace.json", 48213, None),  # an epoch, say
        ("worker_48213.1718040723123456789.pt.trace.json", 48213, None),
        ("rank4_48213.1718040723123456789.pt.trace.json", 48213, None),
    ],
)
def test_a_pod_called_worker_is_a_host_where_its_process_recorded(
    tmp_path: Path, name: str, pid: int, host: str | None
) -> None:
    path = tmp_path / name
    path.write_text(kineto([event(0, cat="cpu_op", pid=pid), event(1, pid=3)]))
    assert read(path).con.execute("SELECT host FROM rank").fetchall() == [(host,)]


@pytest.mark.parametrize(
    ("files", "hosts"),
    [
        # worker_name=f"worker-{rank}_{os.getpid()}" on one machine.
        ([(0, 0, 4821), (1, 1, 4822), (2, 2, 4823)], [None, None, None]),
        ([(0, 0, 4821), (0, 1, 4822), (1, 2, 4821)], ["worker-0", "worker-0", "worker-1"]),
        # Pods of one GPU each: their processes are counted apart.
        ([(0, 0, 27), (1, 1, 27)], ["worker-0", "worker-1"]),
    ],
)
def test_workers_that_are_numbered_as_their_ranks_are_no_hosts(
    tmp_path: Path, files: list[tuple[int, int, int]], hosts: list[str | None]
) -> None:
    for worker, rank, pid in files:
        path = tmp_path / f"worker-{worker}_{pid}.171804072312345678{rank}.pt.trace.json"
        told = {"rank": rank, "world_size": len(files)}
        path.write_text(kineto([event(0, cat="cpu_op", pid=pid)], distributedInfo=told))
    found = read(tmp_path).con.execute("SELECT host FROM rank ORDER BY rank").fetchall()
    assert found == [(host,) for host in hosts]
