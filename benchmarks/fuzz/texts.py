"""Sound texts of the formats that are read as text, as words to be changed, and what reads them.

A text is a list of words and of what parts them; an edge takes the place of one of them. What is
read from a path (dumps in XML, settings in YAML) is written to one first.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from advisor.cli.nccl_model import read_file
from advisor.config.sweep import load_space
from advisor.config.workload import load_workload
from advisor.engine.catalogue import load_rule
from advisor.ingest.readers import nccl_xml, osu, probe, torch_bench, ucc
from advisor.ingest.readers.nccl_tests.record import Harvest
from advisor.ingest.source import Source
from advisor.model.nccl.calibration import load_calibration
from advisor.model.topology import load_topology
from advisor.tune.env_file import read_env_file
from advisor.tune.plugin.parse import parse_rules
from advisor.vocabulary.numbers import INT64_MAX

_ROOT = Path(__file__).parents[2]
_WORD = re.compile(r"[A-Za-z_]+|\d+|\s+|.", re.DOTALL)

_OSU = """srun -n 4 osu_allreduce -d cuda
#Using NCCL
#Using NCCL
# OSU NCCL-CUDA Allreduce Latency Test v7.5
# Size       Avg Latency(us)
1073741824           8955.18
# OSU NCCL-CUDA All-to-All Personalized Exchange Latency Test v7.5
65536                 570.64
# OSU MPI-CUDA Bandwidth Test v7.0
4194304             24012.10
"""
_UCC = """mpirun -np 8 ucc_perftest -c alltoall -F
Rank    0       : host-1 - NVIDIA H100 80GB HBM3 0000:1B:00.0
Collective:             Alltoall
Memory type:            cuda
Datatype:               float32
Inplace:                0
       Count        Size                Time, us                           Bandwidth, GB/s
       65536      262144       76.46       72.62       82.30       24.00       25.27       22.30
"""
_TORCH = """- hardware: _CudaDeviceProperties(name='NVIDIA H100 80GB HBM3', major=9)
The average bandwidth of all_reduce over 4 ranks (5 warmups / 20 trials):
| payload |    busbw   |    algbw   |
|   32KiB |   1.18GBps |   0.79GBps |
|   32TiB | 258.95GBps | 172.63GBps |
The average bandwidth of all_reduce with a 4.0GB payload (5 trials, 16 ranks):
 algbw: 176.590 GBps (1412.7 Gbps)
 busbw: 331.106 GBps (2648.8 Gbps)
"""
_TOPOLOGY_XML = """<system version="1">
  <cpu host_hash="0x16fe" numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207">
    <pci busid="0000:16:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="0000:07:00.0" count="5"/></gpu>
      <nic><net name="mlx5_0" dev="0" speed="400000" port="1" guid="0xa87c" gdr="0"/></nic>
    </pci>
  </cpu>
</system>
"""
_GRAPH_XML = """<graphs version="1">
  <graph id="0" pattern="4" crossnic="0" nchannels="2" speedintra="20" speedinter="12.5"
   latencyinter="0" typeintra="NVL" typeinter="PIX" samechannels="1">
    <channel> <net dev="0"/> <gpu dev="0"/> <gpu dev="1"/> <net dev="0"/> </channel>
  </graph>
</graphs>
"""
_TOPOLOGY_YAML = """name: two nodes
nodes: 2
ranks_per_node: 8
compute_capability: 9.0
cpu_vendor: intel
graphs:
  ring: {pattern: 4, channels: 12, bw_intra: 30, bw_inter: 12.5, type_intra: NVL, type_inter: PIX}
  tree: {pattern: 1, channels: 12, bw_intra: 30, bw_inter: 12.5, type_intra: NVL, type_inter: PIX}
"""
_CALIBRATION = """machine: dgx-h100
nodes: 1
ranks: 8
nccl: 2.21.5
sources: [table.log]
rows: 21
least_bytes: 1024
most_bytes: 1073741824
floor_us: {value: 1.5, low: 1, high: 2}
transfer: {value: 1.1, low: 1, high: 1.2}
middle: {value: 0.1, low: 0, high: 1}
latency:
  ring: {value: 1, low: 0.9, high: 1.1}
spread: [0.9, 1.1]
within_a_quarter: 1.0
"""
_ENV = """#SBATCH --export=ALL,NCCL_DEBUG=INFO,NCCL_SOCKET_IFNAME='eth0,eth1'
export NCCL_ALGO="Ring"  NCCL_MIN_NCHANNELS=8
mpirun -x NCCL_IB_HCA=mlx5_0:1 -x NCCL_P2P_DISABLE python train.py
: ${NCCL_BUFFSIZE:=8388608}
setenv NCCL_PROTO LL128
ENV NCCL_IB_DISABLE 1
- name: NCCL_CROSS_NIC
  value: "1"
os.environ["NCCL_NTHREADS"] = "256"
cat <<EOF
NCCL_TREE_THRESHOLD=0
EOF
unset NCCL_DEBUG
"""
_TUNER = """# function,min,max,algorithm,protocol,channels,nodes,ranks
allreduce,0,65536,tree,ll,-1,2,16
allreduce,65537,4294967296,ring,simple,8,-1,-1
"""
_PROBE = """{"format": "advisor-probe", "world_size": 2, "hosts": ["a", "b"], "collectives": [
 {"op": "all_reduce", "ranks": 2, "bytes": 1024, "times_us": [10.0, 11.0, 12.0]}],
 "pairs": [{"src": 0, "dst": 1, "bytes": 4194304, "round_trip_us": 400.0}]}
"""


def words(text: str) -> Callable[[], list[str]]:
    """The text in words, a new list each time."""
    found = cache(lambda: _WORD.findall(text))
    return lambda: [*found()]


def joined(document: list[Any]) -> bytes:
    """The bytes of changed words."""
    return "".join(map(str, document)).encode(errors="surrogatepass")


def place_of(name: str) -> Path:
    """Where a text is put to be read by path; a folder for each process."""
    return Path(_folder(os.getpid()).name) / name


@cache
def _folder(process: int) -> tempfile.TemporaryDirectory[str]:
    """A folder of this process; of one that is forked, who forked it removes it (batches)."""
    return tempfile.TemporaryDirectory(prefix="fuzz-")


def from_path(name: str, read: Callable[[Path], object]) -> Callable[[bytes], None]:
    """What reads bytes as a file of that name."""

    def put_and_read(data: bytes) -> None:
        place = place_of(name)
        place.write_bytes(data)
        read(place)

    return put_and_read


def _benchmark(parse: Callable[[list[str], Harvest], None]) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        harvest = Harvest()
        parse(data.decode(errors="replace").splitlines(), harvest)
        for one in harvest.measurements:
            assert 0 <= one.size_bytes <= INT64_MAX

    return read


def _read_probe(data: bytes) -> None:
    try:
        found = probe._Probe.model_validate_json(data.decode(errors="replace"))
    except ValueError:  # pydantic's: the reader counts it
        return
    for row in probe._rows(found, Counter()):
        assert all(math.isfinite(value) for value in row.values() if isinstance(value, float))


def _read_xml(place: Path) -> None:
    nccl_xml._parse(Source.of(place, 0), nccl_xml._Dump())


def shipped(name: str) -> str:
    """A text of this repository, by its path in it."""
    return (_ROOT / name).read_text(encoding="utf-8")


LOG = shipped("fixtures/nccl-logs/v2.21-one-nic.log")[:6000]

Form = tuple[Callable[[], list[str]], Callable[[Any], bytes], Callable[[bytes], None]]
FORMATS: dict[str, Form] = {
    name: (words(text), joined, read)
    for name, text, read in (
        ("osu", _OSU, _benchmark(osu.parse)),
        ("ucc", _UCC, _benchmark(ucc.parse)),
        ("torch_bench", _TORCH, _benchmark(torch_bench.parse)),
        ("probe", _PROBE, _read_probe),
        ("nccl_xml", _TOPOLOGY_XML, from_path("topology.xml", _read_xml)),
        ("nccl_xml_graph", _GRAPH_XML, from_path("graph.xml", _read_xml)),
        ("model_graph", _GRAPH_XML, from_path("graph.xml", read_file)),
        ("model_log", LOG,
         from_path("log", read_file)),
        ("topology", _TOPOLOGY_YAML, from_path("topology.yaml", load_topology)),
        ("calibration", _CALIBRATION, from_path("calibration.yaml", load_calibration)),
        ("environment", _ENV, from_path("job.sh", read_env_file)),
        ("tuner", _TUNER, lambda data: parse_rules(data.decode(errors="surrogateescape"))),
        ("workload", shipped("workloads/gpt2.yaml"), from_path("job.yaml", load_workload)),
        ("sweep", shipped("workloads/sweeps/nccl.yaml"), from_path("s.yaml", load_space)),
        ("rule", shipped("rules/unsteady-steps.yaml"), from_path("r.yaml", load_rule)),
    )
}  # fmt: skip
