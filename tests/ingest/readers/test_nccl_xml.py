# ruff: noqa: E501 (elements as NCCL writes them)
"""NCCL's XML dumps. The texts are written after src/graph/xml.cc and search.cc of NCCL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.ingest.detect import detect
from advisor.ingest.readers import nccl_xml
from advisor.ingest.source import ReadContext, Source
from advisor.store.store import Store

TOPOLOGY = """\
<system version="1">
  <cpu host_hash="0x16fe256e956b115c" numaid="0" affinity="00ffffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207">
    <pci busid="0000:16:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:18:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1">
          <nvlink target="0000:07:00.0" count="5" tclass="0x068000"/>
          <nvlink target="0000:08:00.0" count="4" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:19:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="8">
        <nic>
          <net name="mlx5_0" dev="0" speed="400000" port="1" latency="0.000000" guid="0xa87cb10003e1a258" maxconn="131072" gdr="0"/>
        </nic>
      </pci>
    </pci>
  </cpu>
</system>
"""
GRAPHS = """\
<graphs version="1">
  <graph id="0" pattern="4" crossnic="0" nchannels="2" speedintra="20" speedinter="12.5" latencyinter="0" typeintra="NVL" typeinter="PIX" samechannels="1">
    <channel>
      <net dev="0"/>
      <gpu dev="0"/>
      <gpu dev="1"/>
      <net dev="0"/>
    </channel>
  </graph>
  <graph id="3" pattern="5" crossnic="1" nchannels="1" speedintra="40" speedinter="40" latencyinter="0" typeintra="NVL" typeinter="PIX" samechannels="0">
    <channel>
      <gpu dev="0"/>
    </channel>
  </graph>
</graphs>
"""


def stored(path: Path) -> tuple[dict[tuple[str, str], Any], list[Any]]:
    source = Source.of(path, 0)
    with Store.create() as store:
        nccl_xml.read([source], ReadContext(store, "r"))
        rows = store.con.execute("SELECT kind, name, value FROM topology").fetchall()
        report = store.con.execute(
            "SELECT events_read, events_dropped, drop_reasons, note FROM source"
        ).fetchall()
    return {(kind, name): json.loads(value) for kind, name, value in rows}, report


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "dump.xml"
    path.write_text(text)
    return path


def test_topology(tmp_path: Path) -> None:
    path = written(tmp_path, TOPOLOGY)
    assert detect(Source.of(path, 0)) is nccl_xml
    facts, report = stored(path)
    gpu = facts["gpu", "GPU/18000"]
    assert (gpu["rank"], gpu["gdr"], gpu["nvlinks"], gpu["parent"]) == (0, True, 9, "PCI/16000")
    nic = facts["nic", "mlx5_0"]
    assert (nic["index"], nic["port"], nic["bw_gbps"], nic["gdr"]) == (0, 1, 50.0, False)
    assert (nic["link_width"], nic["parent"]) == (8, "PCI/16000")
    assert facts["node", "0x16fe256e956b115c"] == {"cpus": 1, "gpus": 1, "nics": 1}
    assert facts["cpu", "CPU/0"]["vendor"] == "GenuineIntel"
    assert report == [(4, 0, "{}", None)]


def test_graphs(tmp_path: Path) -> None:
    path = written(tmp_path, GRAPHS)
    assert detect(Source.of(path, 0)) is nccl_xml
    facts, _ = stored(path)
    assert facts["graph", "ring"] == {
        "pattern": 4,
        "channels": 2,
        "bw_intra": 20.0,
        "bw_inter": 12.5,
        "type_intra": "NVL",
        "type_inter": "PIX",
        "cross_nic": 0,
        "same_channels": 1,
        "latency_inter": 0.0,
        "paths": [["NET/0", "GPU/0", "GPU/1", "NET/0"]],
    }
    assert facts["graph", "nvls"]["paths"] == [["GPU/0"]]


def test_a_cut_dump_keeps_what_stood_before(tmp_path: Path) -> None:
    facts, report = stored(written(tmp_path, TOPOLOGY[: TOPOLOGY.index("<nic>")]))
    assert ("gpu", "GPU/18000") in facts
    assert not any(kind == "nic" for kind, _ in facts)
    assert report[0][1:3] == (1, '{"dump cut or damaged": 1}')


@pytest.mark.parametrize(
    "head",
    [
        '<!DOCTYPE system [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>',
        '<!DOCTYPE system SYSTEM "file:///etc/passwd">',
        '<!DOCTYPE system [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
    ],
)
def test_entities_and_document_types_are_refused(tmp_path: Path, head: str) -> None:
    facts, report = stored(written(tmp_path, head + TOPOLOGY.replace("mlx5_0", "&b;")))
    assert facts == {}
    assert report[0][2] == '{"refused": 1}'


def test_depth_is_bounded(tmp_path: Path) -> None:
    text = '<system version="1"><cpu>' + "<pci>" * 100_000
    facts, report = stored(written(tmp_path, text))
    assert facts == {}
    assert "nested" in report[0][3]


@pytest.mark.slow
@given(
    st.sampled_from([TOPOLOGY, GRAPHS]),
    st.lists(st.tuples(st.integers(0, 1200), st.binary(max_size=4)), max_size=6),
)
def test_damaged_dumps_never_crash(
    tmp_path_factory: pytest.TempPathFactory, text: str, edits: list[tuple[int, bytes]]
) -> None:
    data = bytearray(text.encode())
    for place, noise in edits:
        data[place : place + 1] = noise
    path = tmp_path_factory.mktemp("xml") / "x.xml"
    path.write_bytes(bytes(data) or b"<")
    assert len(stored(path)[1]) == 1
