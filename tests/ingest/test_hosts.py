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
