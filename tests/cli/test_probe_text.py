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
