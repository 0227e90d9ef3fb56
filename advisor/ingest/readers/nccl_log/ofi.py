"""Lines of aws-ofi-nccl, the network plugin for EFA, Slingshot and other libfabric providers.

It prints them itself, after ``NET/OFI``. Forms: nccl_ofi_net.c, nccl_ofi_rdma.c, nccl_ofi_topo.c
and platform-aws.c of https://github.com/aws/aws-ofi-nccl, versions 1.4 to 1.17.
"""

import re
from typing import Any

from advisor.config.hardware import machine_sold_as
from advisor.ingest.readers.nccl_log.facts import Fact, Parsed

SIGN = "NET/OFI "
_PROVIDER = re.compile(
    r"^Selected [Pp]rovider is ([\w;+.\-]{1,80})(?:, fabric is ([\w.:\-]{1,80}))?"
    r"(?: \(found (\d{1,4}) nics\))?"
)
_PROTOCOL = re.compile(r"^Using transport protocol ([A-Z_]{1,40})")
_PLUGIN = re.compile(r"^(?:Initializing|Using) aws-ofi-nccl ([\w.+\-]{1,60})")
_LIBRARY = re.compile(r"^Using Libfabric version ([\w.]{1,40})")
_NIC = re.compile(r"^NIC group (\d{1,4}) device #(\d{1,4}) ([0-9a-fA-F]{4}:[0-9a-fA-F:.]{4,12})")
_SETTING = re.compile(r"\bSetting (\w{1,80}) environment variable to (\S{1,500})")
_PLATFORM = re.compile(r"^Running on ([\w.]{1,80}) platform\b")
_TOPOLOGY = re.compile(r"^Running on .{1,80} platform, topology file (\S{1,500})")
_DIRECT = re.compile(r"^NET/(?!IB|Socket)([^/:]{1,80}?) : GPU Direct RDMA \w+ for HCA (\d{1,6}) '")


def parse_ofi(text: str) -> list[Parsed]:
    """The facts in one message of the plugin; empty when it says nothing that is kept."""
    said = text.partition(SIGN)[2].lstrip()
    if match := _PROVIDER.match(said):
        value = {
            "provider": match[1],
            "fabric": match[2],
            "nics": None if match[3] is None else int(match[3]),
        }
        return [Fact("net", "OFI", value)]
    for pattern, kind, name in (
        (_PROTOCOL, "net", "OFI protocol"),
        (_PLUGIN, "version", "aws-ofi-nccl"),
        (_LIBRARY, "version", "libfabric"),
        (_TOPOLOGY, "env-plugin", "NCCL_TOPO_FILE"),
    ):
        if match := pattern.match(said):
            return [*_machine(said), Fact(kind, name, match[1])]
    if match := _SETTING.search(said):
        return [*_machine(said), Fact("env-plugin", match[1], match[2])]
    if match := _NIC.match(said):
        return [Fact("nic-group", match[3], {"group": int(match[1]), "device": int(match[2])})]
    return []


def _machine(said: str) -> list[Parsed]:
    """The cloud's machine that the plugin runs on, where the table of hardware has it."""
    match = _PLATFORM.match(said)
    found = machine_sold_as(match[1]) if match is not None else None
    return [] if found is None else [Fact("machine", found.name, found.model_dump(mode="json"))]


def nic_of_plugin(text: str, name: str) -> list[Parsed]:
    """The NIC that a plugin's ``GPU Direct RDMA … for HCA`` line names.

    NCCL's own transports list theirs elsewhere; of a plugin's only this line tells both. Its link
    layer is not said: the plugin's name stands for it, since GPUs reach data NICs only.
    """
    match = _DIRECT.match(text)
    if match is None:
        return []
    value: dict[str, Any] = {
        "index": int(match[2]),
        "port": None,
        "link": match[1],
        "net": match[1],
    }
    return [Fact("nic", name, value)]
