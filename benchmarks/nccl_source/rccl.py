"""Hold the model of RCCL against its own sources, compiled.

    python -m benchmarks.nccl_source.rccl /path/to/rccl.git [--release 2.21.5]

Compiles src/graph of a release of ROCm/rccl (a C++ compiler and CUDA's headers are needed, no GPU
and no ROCm), hands it the topology file of eight MI300X that RCCL has itself, and compares every
cell of its table, its times and its choices from one byte to 183 GB, on one node to 64. (2.22.3
and 2.26.6 read beside their tables under 64 bytes: those are left out.)
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import product
from math import isclose
from pathlib import Path
from typing import Any

from advisor.config.hardware import machine
from advisor.model.nccl.cell import Cell
from advisor.model.nccl.channels import channels_and_threads, communicator_channels
from advisor.model.nccl.constants import constants_for
from advisor.model.nccl.cost import predict
from advisor.model.nccl.version import parse_version
from advisor.model.topology import PathType
from advisor.model.topology_machine import topology_of

# Releases of the model, and where the clone has them.
REFERENCES = {
    "2.18.6": "rocm-6.1.2",
    "2.20.5": "rocm-6.2.2",
    "2.21.5": "99b8561b219f",
    "2.22.3": "ddc5d58b",
    "2.26.6": "a0ec15ba",
    "2.27.7": "239d62f5",
}
NODES = (1, 2, 3, 4, 8, 16, 64)
SIZES = tuple((1 << bits) + (1 << bits) // 3 for bits in range(38))
_SOURCES = ("graph/topo", "graph/xml", "graph/paths", "graph/search", "graph/rings", "graph/trees")
_SOURCES += ("graph/rome_models", "graph/tuning", "misc/utils", "misc/param", "misc/archinfo")
_MACHINE = "mi300x-roce"
_TOPOLOGY = "tools/topo_expl/models/topo_8p_940.xml"
_HIP = ("hip_runtime", "hip_runtime_api", "hip_fp16", "hip_bf16", "hip_bfloat16", "hip_ext")
_HIP += ("hip_cooperative_groups", "hip_version")
_STUBS = {
    "hsa/hsa.h": "typedef int hsa_status_t, hsa_system_info_t;\nenum {HSA_STATUS_SUCCESS};\n"
    "#include <stdint.h>\ntypedef struct {uint64_t handle;} hsa_agent_t;\n",
    "rocm_smi/rocm_smi.h": "#include <stdint.h>\ntypedef int rsmi_status_t, RSMI_IO_LINK_TYPE;\n"
    "enum {RSMI_STATUS_SUCCESS, RSMI_IOLINK_TYPE_XGMI, RSMI_FW_BLOCK_MEC};\n"
    "int rsmi_init(uint64_t), rsmi_dev_firmware_version_get(uint32_t, int, uint64_t*);\n",
    "rocm_smi/rocm_smi64Config.h": "",
    "roctracer/roctx.h": "",
    "fmt/format.h": "#include <string>\n"
    'namespace fmt { template <class... T> std::string format(T...) { return ""; } }\n',
}
_OURS = Path(__file__).parent


@dataclass(frozen=True)
class Compiled:
    """What RCCL says of a number of nodes: its graphs as the hardware table writes them; by
    function, algorithm and protocol latency (us), bandwidth (GB/s) and times of SIZES (us); by
    function and place in SIZES what it takes (before 2.22 without the channels)."""

    graphs: dict[str, dict[str, Any]]
    cells: dict[tuple[str, str, str], tuple[float, ...]]
    choices: dict[tuple[str, int], tuple[str, str, int]]


def build(repository: Path, release: str, folder: Path) -> Path:
    """The graphs and the table of a release as a program in ``folder``."""
    archive, source, own = folder / "src.tar", folder / "src", folder / "include"
    # The topology file is the newest release's: 2.18.6 has none yet.
    for reference, path in ((REFERENCES[release], "src"), (REFERENCES["2.21.5"], _TOPOLOGY)):
        git = ["git", "-C", str(repository), "archive", "-o", str(archive), reference, path]
        subprocess.run(git, check=True)
        shutil.unpack_archive(archive, folder)
    machine_xml = (folder / _TOPOLOGY).read_text(encoding="utf-8")
    for one, other in (("GenuineIntel", "AuthenticAMD"), ('familyid="6"', 'familyid="175"')):
        machine_xml = machine_xml.replace(one, other)
    (folder / "amd.xml").write_text(machine_xml, encoding="utf-8")
    (own / "hip").mkdir(parents=True)
    for name in _HIP:
        shutil.copy(_OURS / "rccl_hip.h", own / "hip" / f"{name}.h")
    for path, text in _STUBS.items():
        (own / path).parent.mkdir(exist_ok=True)
        (own / path).write_text(f"#pragma once\n{text}", encoding="utf-8")
    header = (source / "nccl.h.in").read_text(encoding="utf-8")
    major, minor, patch = release.split(".")
    values = {"NCCL_MAJOR": major, "NCCL_MINOR": minor, "NCCL_PATCH": patch, "NCCL_SUFFIX": ""}
    values |= {"NCCL_VERSION": f"{major}{int(minor):02}{int(patch):02}", "PKG_REVISION": "1"}
    for name, value in values.items():
        header = header.replace(f"${{{name}}}", value)
    (own / "nccl.h").write_text(header, encoding="utf-8")
    files = [source / f"{name}.cc" for name in _SOURCES]
    if (wrap := source / "rccl_wrap.cc").exists():
        files.append(wrap)
    (own / "choice.h").write_text(_choosing(source), encoding="utf-8")
    cuda = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
    include = source / "include"
    inside = (own, include, include / "plugin", source / "graph", source, cuda)
    flags = ["-O0", "-w", "-fpermissive", "-std=c++17", "-D__HIP_PLATFORM_AMD__", "-DTOPO_EXPL"]
    flags += ["-include", "hip/hip_runtime.h", "-DROCBLAS_FLOAT8_H", "-DENABLE_LL128"]
    flags += ["-D__HIP_PLATFORM_HCC__"]  # its name until 2.18
    flags += [
        "-DNVTX_NO_IMPL",
        f"-DRELEASE={values['NCCL_VERSION']}",
        *(f"-I{path}" for path in inside),
    ]
    program = folder / "rccl"
    command = ["g++", *flags, *map(str, files), str(_OURS / "rccl.cc"), "-lpthread", "-ldl"]
    command += ["-static", "-Wl,--unresolved-symbols=ignore-all"]
    subprocess.run([*command, "-o", str(program)], check=True)
    return program


def _choosing(source: Path) -> str:
    """What of its larger files chooses, from 2.22 on."""
    enqueue = (source / "enqueue.cc").read_text(encoding="utf-8")
    collectives = source / "collectives.cc"
    text = ""
    for name in ("updateCollCostTable", "topoGetAlgoInfo"):
        if found := re.search(rf"^static ncclResult_t {name}\(.*?^}}\n", enqueue, re.M | re.S):
            text += found[0]
    # In 2.26 the condition of a direct all-gather stands where it is made.
    made = collectives.read_text(encoding="utf-8") if collectives.exists() else ""
    if found := re.search(r"if (\(comm->enableCustColl.*?)\s*\{", made, re.S):
        limit = re.search(r"RCCL_PARAM\(DirectAllGatherThreshold.*?;", made)
        condition = " ".join(found[1].split())
        text += f"{limit[0] if limit else ''}\n#define DIRECT(comm, msgSize) {condition}\n"
    return text


def ask(program: Path, release: str, nodes: int, cpu_vendor: str = "amd") -> Compiled:
    """What the program finds for ``nodes`` nodes with CPUs of ``cpu_vendor`` (amd or intel)."""
    described = program.parent / ("amd.xml" if cpu_vendor == "amd" else _TOPOLOGY)
    channels = communicator_channels(topology_of(machine(_MACHINE), nodes), (2, 27, 7))
    command = [str(program), str(described), str(nodes), str(channels)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    since = {PathType.C2C: (2, 26, 0), PathType.P2C: (2, 27, 0)}
    paths = [path for path in PathType if since.get(path, (0, 0, 0)) <= parse_version(release)]
    found = Compiled({}, {}, {})
    for line in done.stdout.splitlines():
        kind, name, *fields = line.split()
        if kind == "cell":
            found.cells[name, fields[0], fields[1]] = tuple(map(float, fields[2:]))
            continue
        if kind == "choice":
            at, algorithm, protocol, taken = fields
            found.choices[name, int(at)] = algorithm, protocol, int(taken)
            continue
        pattern, channels, intra, inter, type_intra, type_inter, same = map(float, fields)
        found.graphs[name] = {
            **{"pattern": int(pattern), "channels": int(channels)},
            **{"bw_intra": intra, "bw_inter": inter, "same_channels": bool(same)},
            **{"type_intra": paths[int(type_intra)], "type_inter": paths[int(type_inter)]},
        }
    return found


def differing(
    release: str, nodes: int, found: Compiled, cpu_vendor: str = "amd"
) -> tuple[int, list[str]]:
    """How many figures were compared, and those that are not the model's."""
    topology = topology_of(machine(_MACHINE), nodes)
    topology = topology.model_copy(update={"cpu_vendor": cpu_vendor})
    compared, wrong = 0, []
    for name, graph in found.graphs.items():
        ours = getattr(topology, name)
        theirs_in_all = graph["channels"] * graph["bw_inter"]
        compared += 1
        if theirs_in_all != ours.channels * ours.bw_inter:
            wrong.append(f"{nodes} nodes, {name}: {theirs_in_all} GB/s in all")
        # The table has the newest release's rings: earlier ones had fewer and wider of them.
        for key, theirs in graph.items() if release == max(REFERENCES) else ():
            if (key, name) == ("pattern", "ring"):
                continue
            compared += 1
            if getattr(ours, key) != theirs:
                wrong.append(f"{nodes} nodes, {name}: {key} {theirs}, not {getattr(ours, key)}")
    functions = dict.fromkeys(function for function, _, _ in found.cells)
    version = parse_version(release)
    constants = constants_for(version, "rccl")
    for function in functions:
        for at, size in enumerate(SIZES):
            if release in ("2.22.3", "2.26.6") and size < 64:
                continue
            prediction = predict(topology, function, size, version)
            for (name, algorithm, protocol), cell in found.cells.items():
                if name != function:
                    continue
                row = prediction.row(algorithm, protocol)
                latency, bandwidth, time = cell[0], cell[1], cell[2 + at]
                ours = row.time_us if row.time_us is not None else -1.0
                pairs = [(time, ours), (bandwidth, row.bandwidth_gbps)]
                if bandwidth:
                    pairs.append((latency, row.latency_us))
                compared += len(pairs)
                if not all(isclose(one, other, rel_tol=1e-5) for one, other in pairs):
                    wrong.append(
                        f"{nodes} nodes, {function} of {size}, {algorithm} {protocol}: {pairs}"
                    )
            compared += 1
            theirs_taken, ours_taken = found.choices[function, at], ("Direct", "Simple", 0)
            if prediction.choice is not None:
                algorithm, protocol = prediction.choice.algo, prediction.choice.proto
                at_all = Cell(topology, version, constants, function, algorithm, protocol)
                ours_taken = algorithm, protocol, channels_and_threads(at_all, size)[0]
            known = 1 if prediction.choice is None else 3 if theirs_taken[2] else 2
            if theirs_taken[:known] != ours_taken[:known]:
                wrong.append(
                    f"{nodes} nodes, {function} of {size}: takes {theirs_taken}, not {ours_taken}"
                )
    return compared, wrong


def main() -> int:
    """Print for each release and number of nodes how many figures agree; 1 where one does not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository", type=Path)
    parser.add_argument("--release", nargs="*", default=list(REFERENCES))
    asked = parser.parse_args()
    failed = 0
    for release in asked.release:
        with tempfile.TemporaryDirectory() as folder:
            program = build(asked.repository, release, Path(folder))
            for nodes, vendor in product(NODES, ("amd", "intel")):
                found = ask(program, release, nodes, vendor)
                compared, wrong = differing(release, nodes, found, vendor)
                failed += len(wrong)
                equal = compared - len(wrong)
                print(f"RCCL {release}, {nodes} x 8, CPUs of {vendor}: {equal} of {compared}")
                for line in wrong[:5]:
                    print(f"  {line}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
