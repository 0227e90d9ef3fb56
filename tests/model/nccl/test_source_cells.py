"""The model against NCCL's own: what its compiled cost model says, release by release."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from advisor.model.nccl.cost import predict
from advisor.model.nccl.names import FUNCTIONS
from advisor.model.nccl.version import parse_version
from advisor.model.topology import Topology

FILE = Path(__file__).with_name("source_cells.json.gz")


@cache
def reference() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    # pydantic wrote path types as numbers and the file format takes names
    for topology in loaded["topologies"]:
        for graph in ("ring", "tree", "nvls", "collnet"):
            for key in ("type_intra", "type_inter"):
                if graph in topology:
                    topology[graph][key] = _PATHS[topology[graph][key]]
    return loaded


_PATHS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS")


@pytest.mark.parametrize("release", list(reference()["cells"]))
def test_every_cell_is_nccls(release: str) -> None:
    checked = 0
    for number, cells in reference()["cells"][release].items():
        topology = Topology.model_validate(reference()["topologies"][int(number)])
        for function in FUNCTIONS:
            for place, size in enumerate(reference()["sizes"]):
                rows = predict(topology, function, size, parse_version(release)).rows
                mine = {f"{r.algo}/{r.proto}": r.time_us for r in rows if r.time_us is not None}
                theirs = {name: times[place] for name, times in cells[function].items()}
                assert mine == pytest.approx(theirs, rel=2e-3), (number, function, size)
                checked += len(theirs)
    assert checked > 500
