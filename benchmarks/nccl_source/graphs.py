"""Hold the graphs of the hardware table against those that NCCL's own search finds.

    python -m benchmarks.nccl_source.graphs /path/to/nccl.git [--release 2.27.7]

Compiles src/graph of a release (a C++ compiler and CUDA's headers are needed, no GPU), hands it
each machine as a topology file and prints what it finds beside what the table has. Machines of one
NIC for each GPU behind one NVSwitch are written out, racks too; others would need their PCIe trees.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from advisor.config.hardware import Machine, machine
from advisor.model.topology import Graph

MACHINES = ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "dgx-b300", "gh200-quad", "dgx-spark")
MACHINES += ("gb300-nvl72",)
# Compute capability, NVLinks, PCIe link, and how many GPUs (with as many NICs) share a PCIe switch
# (NVIDIA's data sheets and user guides of the DGX systems).
_DEVICES = {
    "A100": (80, 12, "16.0 GT/s PCIe", 2),
    "H100": (90, 18, "32.0 GT/s PCIe", 1),
    "H200": (90, 18, "32.0 GT/s PCIe", 1),
    "B200": (100, 18, "32.0 GT/s PCIe", 1),
    "B300": (100, 18, "64.0 GT/s PCIe", 1),
}
# Grace beside its GPU: compute capability, NVLinks to each other GPU, MB/s and count of C2C links,
# NICs of a CPU and their PCIe link. GH200: C2C as NCCL dumps it of Grace (44,712 MB/s a link),
# Slingshot 200 is PCIe 4 x16. GB10: NCCL's dump of a DGX Spark, whose port is two NICs of Gen5 x4.
_GRACE = {
    "GH200": (90, 6, (44712, 10), 1, ("16.0 GT/s PCIe", 16)),
    "GB10": (121, 0, (43125, 8), 2, ("32.0 GT/s PCIe", 4)),
}
# Grace Blackwell in a rack: compute capability and PCIe link of a GPU and of the NIC beside it.
_RACKS = {"GB300": (103, "64.0 GT/s PCIe")}
_CPUS = {"intel": ("GenuineIntel", 6, 143), "amd": ("AuthenticAMD", 175, 1)}
_SOURCES = ("graph/topo", "graph/xml", "graph/paths", "graph/search", "graph/rings")
_SOURCES += ("graph/trees", "graph/connect", "misc/utils", "misc/param", "debug")
_PATHS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS")
_RING = 4
_NIC = re.compile(r"<nic>.*?</nic>")
_OURS = Path(__file__).parent


def topology_xml(described: Machine, network: bool = True) -> str:
    """A node as NCCL_TOPO_FILE takes it, without its NICs where ``network`` is False."""
    written = _grace_xml if described.device in _GRACE else _switched_xml
    if described.device in _RACKS:
        written = _rack_xml
    lines = written(described) if network else _NIC.sub("", written(described))
    return f'<system version="1">\n{lines}</system>\n'


def _grace_xml(described: Machine) -> str:
    """Each GPU with its CPU behind C2C and its NICs at that CPU."""
    capability, links, (c2c, count), nics, (pcie, width) = _GRACE[described.device]
    gdr = int(described.network.gpudirect)
    lines = []
    for gpu in range(described.gpus_per_node):
        others = [other for other in range(described.gpus_per_node) if other != gpu]
        lines += [
            f'<cpu host_hash="0x1" numaid="{gpu}" affinity="ffffffff" arch="arm64">',
            f'<pci busid="{gpu:04x}:01:00.0" class="0x030200" link_speed="2.5 GT/s PCIe" '
            f'link_width="16"><gpu dev="{gpu}" sm="{capability}" rank="{gpu}" gdr="{gdr}">',
            *(
                f'<nvlink target="{other:04x}:01:00.0" count="{links}" tclass="0x030200"/>'
                for other in others
            ),
            f'<c2c bw="{c2c}" count="{count}"/></gpu></pci>',
        ]
        for nic in range(gpu * nics, (gpu + 1) * nics):
            speed = round(described.network.node_gbps * 8000 / nics / described.gpus_per_node)
            lines.append(
                f'<pci busid="{256 + nic:04x}:01:00.0" class="0x020000" link_speed="{pcie}" '
                f'link_width="{width}">{_net(nic, speed, gdr)}</pci>'
            )
        lines.append("</cpu>")
    return "\n".join(lines)


def _rack_xml(described: Machine) -> str:
    """Trays of two Grace with two GPUs and two NICs each, all GPUs at one NVSwitch.

    NVLinks and C2C as NCCL 2.29.7 dumps them of two trays of a GB300 NVL72. For two such trays the
    search finds what that dump has: 16 rings of 45 GB/s, 8 heads of NVLS with 80 and 90 GB/s.
    """
    capability, pcie = _RACKS[described.device]
    link, speed = f'link_speed="{pcie}" link_width="16"', round(described.network.nic_gbps * 8000)
    lines = []
    for gpu in range(described.gpus_per_node):
        tray, dev = divmod(gpu, 4)
        if dev % 2 == 0:
            lines.append(
                f'<cpu host_hash="{tray + 1:#x}" numaid="{dev // 2}" affinity="ffffffff" '
                'arch="arm64">'
            )
        bus = f"{8 + 16 * (dev // 2) + dev % 2:04x}"
        lines += [
            f'<pci busid="{bus}:01:00.0" class="0x060400" {link}>',
            f'<pci busid="{bus}:06:00.0" class="0x030200" {link}>',
            f'<gpu dev="{dev}" sm="{capability}" rank="{gpu}" gdr="1">',
            '<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>',
            '<c2c bw="44712" count="5"/></gpu></pci>',
            f'<pci busid="{bus}:03:00.0" class="0x020700" {link}>{_net(gpu, speed, 1)}</pci></pci>',
        ]
        if dev % 2:
            lines.append("</cpu>")
    return "\n".join(lines)


def _net(nic: int, speed: int, gdr: int) -> str:
    """A NIC of ``speed`` Mb/s."""
    return (
        f'<nic><net name="nic{nic}" dev="{nic}" speed="{speed}" port="1" latency="0" '
        f'guid="{256 + nic:#x}" maxconn="131072" gdr="{gdr}"/></nic>'
    )


def _switched_xml(described: Machine) -> str:
    """Each GPU beside its NIC, half of them at each CPU, behind one NVSwitch."""
    capability, links, pcie, behind_one = next(
        value for name, value in _DEVICES.items() if described.device.startswith(name)
    )
    link = f'link_speed="{pcie}" link_width="16"'
    vendor, family, model = _CPUS[described.cpu_vendor]
    lines = []
    for cpu in range(2):
        lines.append(
            f'<cpu host_hash="0x1" numaid="{cpu}" affinity="ffffffff" arch="x86_64" '
            f'vendor="{vendor}" familyid="{family}" modelid="{model}">'
        )
        half = described.gpus_per_node // 2
        speed = round(described.network.nic_gbps * 8000)
        for gpu in range(cpu * half, (cpu + 1) * half):
            bus = f"0000:{16 + gpu:02x}"
            first, last = gpu % behind_one == 0, gpu % behind_one == behind_one - 1
            if first:
                lines.append(f'<pci busid="{bus}:00.0" class="0x060400" {link}>')
            lines += [
                f'<pci busid="{bus}:01.0" class="0x030200" {link}>',
                f'<gpu dev="{gpu}" sm="{capability}" rank="{gpu}" gdr="1">',
                f'<nvlink target="0000:80:00.0" count="{links}" tclass="0x068000"/></gpu></pci>',
                f'<pci busid="{bus}:02.0" class="0x020700" {link}>{_net(gpu, speed, 1)}</pci>',
            ]
            if last:
                lines.append("</pci>")
        lines.append("</cpu>")
    return "\n".join(lines)


def build(repository: Path, release: str, folder: Path) -> Path:
    """The search of a release (2.27.7) as a program in ``folder``."""
    tag = f"v{release}-1"
    archive = folder / "src.tar"
    git = ["git", "-C", str(repository), "archive", "-o", str(archive), tag, "src"]
    subprocess.run(git, check=True)
    shutil.unpack_archive(archive, folder)
    source, own = folder / "src", folder / "include"
    (own / "cuda").mkdir(parents=True)
    (own / "cuda" / "atomic").touch()  # of device code that nothing here instantiates
    text = (source / "nccl.h.in").read_text(encoding="utf-8")
    major, minor, patch = release.split(".")
    values = {"Major": major, "Minor": minor, "Patch": patch, "Suffix": ""}
    values["Version"] = f"{major}{int(minor):02}{int(patch):02}"
    header = re.sub(r"\$\{nccl:(\w+)\}", lambda name: values[name[1]], text)
    (own / "nccl.h").write_text(header, encoding="utf-8")
    cuda = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
    inside = (own, source, source / "include", source / "include" / "plugin", cuda)
    files = [*(str(source / f"{name}.cc") for name in _SOURCES)]
    files += [str(_OURS / "graphs.cc"), str(_OURS / "graphs_stubs.cc")]
    program = folder / "graphs"
    flags = ["-O1", "-w", "-std=c++14", *(f"-I{path}" for path in inside)]
    subprocess.run(["g++", *flags, *files, "-lpthread", "-ldl", "-o", str(program)], check=True)
    return program


def search(program: Path, described: Machine, network: bool = True) -> dict[str, dict[str, Any]]:
    """What the search finds for several nodes of a machine, by graph, as the table writes it.

    For one node alone where ``network`` is False.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(topology_xml(described, network))
        file.flush()
        # NCCL's own switch for machines that are not the one it runs on.
        environment = os.environ | {"NCCL_IGNORE_DISABLED_P2P": "2"}
        command = [str(program), file.name]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found = {}
    for line in done.stdout.splitlines():
        name, *fields = line.split()
        pattern, channels, intra, inter, type_intra, type_inter, same = map(float, fields)
        if channels:
            found[name] = {
                "pattern": int(pattern),
                "channels": int(channels),
                "bw_intra": intra,
                "bw_inter": inter,
                "type_intra": _PATHS[int(type_intra)],
                "type_inter": _PATHS[int(type_inter)],
                "same_channels": bool(same),
            }
    return found


def tabled(described: Machine, network: bool = True) -> dict[str, dict[str, Any]] | None:
    """The same of the hardware table; None where it has no graphs or those of a log."""
    graphs = described.nccl_several_nodes if network else described.nccl_one_node
    if graphs is None or graphs.basis != "search":
        return None
    found = {}
    for name in ("ring", "tree", "nvls"):
        written = getattr(graphs, name)
        if written is not None:
            graph = Graph.model_validate(written)
            found[name] = {key: getattr(graph, key) for key in _KEYS}
            found[name] |= {key: found[name][key].name for key in ("type_intra", "type_inter")}
            found[name]["pattern"] = graph.pattern or _RING
    return found


_KEYS = ("pattern", "channels", "bw_intra", "bw_inter", "type_intra", "type_inter", "same_channels")


def main() -> int:
    """Print both for each machine; 1 where they differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository", type=Path)
    parser.add_argument("--release", default="2.27.7")
    parser.add_argument("--machine", nargs="*", default=MACHINES)
    asked = parser.parse_args()
    differing = 0
    with tempfile.TemporaryDirectory() as folder:
        program = build(asked.repository, asked.release, Path(folder))
        for name in asked.machine:
            for network in (True, False):
                ours = tabled(machine(name), network)
                if ours is None:
                    continue
                found = search(program, machine(name), network)
                for graph in sorted(found.keys() | ours.keys()):
                    same = found.get(graph) == ours.get(graph)
                    differing += not same
                    nodes = "several" if network else "one"
                    tabled_too = "as the table" if same else ours.get(graph)
                    print(name, nodes, graph, found.get(graph), tabled_too)
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
