"""What ``advisor probe`` prints of uneven pairs: one machine's loopback is no link."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from advisor.cli import probe


def document(hosts: list[str], device: str, slow: set[tuple[int, int]]) -> dict[str, Any]:
    """A probe of four ranks in which the messages of ``slow`` pairs take twice as long."""
    pairs = [
        {"src": src, "dst": dst, "bytes": size, "round_trip_us": time * (1 + ((src, dst) in slow))}
        for src, dst in itertools.permutations(range(4), 2)
        for size, time in ((4, 50.0), (4 << 20, 6000.0))
    ]
    backend = "nccl" if device == "cuda" else "gloo"
    return {"backend": backend, "device": device, "world_size": 4, "hosts": hosts,
            "collectives": [], "pairs": pairs}  # fmt: skip


def printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: dict[str, Any]) -> str:
    def launch(nproc: int, nnodes: int, node: int, place: str, output: Path, limit: float) -> None:
        output.write_text(json.dumps(found), encoding="utf-8")

    monkeypatch.setattr(probe, "_launch", launch)
    out = tmp_path / "probe.json"
    done = CliRunner().invoke(probe.command, ["--nproc", "4", "-o", str(out)])
    assert done.exit_code == 0, done.output
    return done.output


def test_uneven_pairs_of_one_machine_are_no_slow_link(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = printed(monkeypatch, tmp_path, document(["vm"] * 4, "cpu", {(0, 3)}))
    assert "SLOW" not in text
    assert "UNEVEN   edge 0 (vm) -> 3 (vm)" in text
    assert "(1 pair, measured once)" in text
    assert "no link was measured" in text and "while it is idle" in text


@pytest.mark.parametrize(("hosts", "device"), [(["a", "a", "b", "b"], "cpu"), (["a"] * 4, "cuda")])
def test_slow_links_are_named_and_to_be_probed_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hosts: list[str], device: str
) -> None:
    text = printed(monkeypatch, tmp_path, document(hosts, device, {(0, 3)}))
    assert "SLOW     edge 0" in text and "(1 pair, measured once)" in text
    assert "Probe again" in text and "no link was measured" not in text


def test_even_pairs_need_no_caveat(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = printed(monkeypatch, tmp_path, document(["vm"] * 4, "cpu", set()))
    assert "no link stands out" in text
    assert "measured once" not in text and "Probe again" not in text


def test_two_equal_hosts_have_no_slow_link_and_nothing_to_compare_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Messages between hosts take ten times as long as inside one, all alike."""
    found = document(["a", "a", "b", "b"], "cpu", set())
    for row in found["pairs"]:
        if row["src"] // 2 != row["dst"] // 2 and row["bytes"] > 4:
            row["round_trip_us"] *= 10
    text = printed(monkeypatch, tmp_path, found)
    assert "SLOW" not in text and "no link stands out" in text
    assert "8 links between hosts" in text and "4 links inside hosts" in text
    assert "no other to compare it with" in text


@pytest.mark.parametrize(("machines", "code"), [("4", 0), ("1", 1)])
def test_machines_of_one_rank_each_can_be_probed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, machines: str, code: int
) -> None:
    def launch(nproc: int, nnodes: int, node: int, place: str, output: Path, limit: float) -> None:
        found = document(["a", "b", "c", "d"], "cpu", set())
        output.write_text(json.dumps(found), encoding="utf-8")

    monkeypatch.setattr(probe, "_launch", launch)
    words = ["--nproc", "1", "--nnodes", machines, "--rdzv-endpoint", "a:1"]
    done = CliRunner().invoke(probe.command, [*words, "-o", str(tmp_path / "probe.json")])
    assert (done.exit_code == 0) == (code == 0), done.output
