"""Single lines of the log → records. Each parser knows one form over all versions."""

import re
import sys
from collections.abc import Callable

from advisor.ingest.readers.nccl_log.facts import CommLine, Connection, Fact, Parsed
from advisor.ingest.readers.nccl_log.ofi import SIGN, nic_of_plugin, parse_ofi
from advisor.vocabulary.numbers import real

_INT = r"(-?\d{1,9})"
_PAIR = re.compile(r"\b(\w+) (0x[0-9a-fA-F]{1,16}|-?[0-9a-fA-F]{1,16})\b")
_CONNECTION = re.compile(
    rf"^(?:Channel|Ring) {_INT}(?:/\d+)? : {_INT}(?:\[(\w+)\])? -> {_INT}(?:\[(\w+)\])?"
    r"(?: \[(send|receive)\])? via (.{1,200}?)(?: comm 0x\w+ nRanks \d+)?$"
)
_NET = re.compile(r"NET/([^/]+)/(\d{1,6})(?:\(\d+\))?(/.*)?$")
_CHANNELS = re.compile(
    r"(\d{1,6}) (coll|collnet|nvls|p2p) channels(?! per)|(\d{1,6}) p2p channels per peer"
)
# What a torn line leaves behind is the end of another such message.
_ENV = re.compile(r"^(NCCL_\w{1,80}) set by environment to ((?:(?! to ).){0,500})$")
_NET_PLUGIN = re.compile(
    r"^(?:NET/Plugin ?: )?Plugin name set by env to lib[nr]ccl-net-(\S{1,200})\.so$"
)
_ENV_PLUGIN = re.compile(r"\bAdding (\w{1,80})=(.{0,500}?) to environment")
_DEVICE_IN_LIST = re.compile(r"\[(\d{1,4})\]([^\s:\[\]]{1,80}):([^\s\[\]]{1,80})")
_GDR_PAIR = re.compile(
    r"GPU Direct RDMA (Enabled|Disabled) for GPU ([\w\-]+) / HCA ([\w\-]+)"
    r"(?: \(distance (-?\d{1,4}) (?:<=|>|<|>=) (-?\d{1,4})\))?(?:,? read (\d))?"
)
_GDR_HCA = re.compile(r"GPU Direct RDMA (Enabled|Disabled) for HCA (\d+) '([^']{1,80})'")
_P2P_CHECK = re.compile(
    r"^Check P2P Type (?:intraNodeP2pSupport|isAllDirectP2p) (\d) directMode (\d)"
)
_P2P_OFF = re.compile(r"P2P is disabled between connected GPUs (\d{1,6}) and (\d{1,6})")
# «GPU 0: NVIDIA H100 80GB HBM3 (UUID: …)» of nvidia-smi -L, «|   0  NVIDIA H100 …  On  |».
_SMI = re.compile(
    r"\s*(?:GPU|\|) {1,3}\d{1,3}(?::|  ) ?(\w[\w .\-]{2,60}?)"
    r"(?: \(UUID: GPU-| {1,30}(?:On|Off|N/A) {1,4}\|)"
)
_LIGHTNING = re.compile(r"You are using a CUDA device \('([\w .\-]{3,60})'\)")
_TIMINGS = re.compile(r"^Init timings - \S+: rank \d+ nranks \d+ total ([\d.]+) \((.{0,400})\)")


def parse_line(text: str) -> list[Parsed]:
    """The records in one message; empty when the line says nothing that is kept."""
    for sign, parser in _PARSERS:
        if sign in text and (found := parser(text)):
            return found
    return []


def _communicator(text: str) -> list[Parsed]:
    pairs = {key.lower(): value for key, value in _PAIR.findall(text)}
    if not {"comm", "rank", "nranks"} <= pairs.keys():
        return []
    rank, ranks = _int(pairs["rank"]), _int(pairs["nranks"])
    if rank is None or ranks is None or not 0 <= rank < ranks:
        return []
    return [
        CommLine(
            pairs["comm"],
            rank,
            ranks,
            pairs.get("commid"),
            pairs.get("busid"),
            _int(pairs.get("cudadev")),
            _int(pairs.get("nvmldev")),
            _int(pairs.get("nnodes")),
            begins="Init START" in text,
            ends="Init COMPLETE" in text,
        )
    ]


def _connection(text: str) -> list[Parsed]:
    match = _CONNECTION.match(text)
    if match is None:
        return []
    channel, src, src_gpu, dst, dst_gpu, side, transport = match.groups()
    kind, nic, gdr = classify_transport(transport)
    return [
        Connection(
            int(src),
            int(dst),
            int(channel),
            sys.intern(transport.strip()),
            kind,
            nic,
            gdr,
            side or "send",
            sys.intern(src_gpu) if src_gpu else None,
            sys.intern(dst_gpu) if dst_gpu else None,
        )
    ]


def classify_transport(transport: str) -> tuple[str, int | None, bool | None]:
    """(kind, NIC index, GPUDirect RDMA) of a ``via …`` text; kinds as in ``link.kind``."""
    if transport.startswith("P2P"):
        return "p2p", None, None
    if transport.startswith(("SHM", "direct shared memory")):
        return "shm", None, None
    match = _NET.match(transport)
    if match is None:
        return ("net-other" if transport.startswith("NET") else "other"), None, None
    network, nic, rest = match.groups()
    kind = {"IB": "net-ib", "Socket": "net-socket"}.get(network)
    if kind is None:  # the SHARP plugins call their verbs transport IBext, IBext_v8, …
        kind = "net-ib" if network.startswith("IB") else "net-other"
    return kind, int(nic), "GDRDMA" in (rest or "")


def _channels(text: str) -> list[Parsed]:
    counts: dict[str, int] = {}
    for count, what, per_peer in _CHANNELS.findall(text):
        counts[what or "p2p_per_peer"] = int(count or per_peer)
    return [Fact("channels", "channels", counts, "rank")] if "coll" in counts else []


def _env(text: str) -> list[Parsed]:
    if match := _ENV_PLUGIN.search(text):
        return [Fact("env-plugin", match[1], match[2])]
    if match := _NET_PLUGIN.match(text):
        return [Fact("env", "NCCL_NET_PLUGIN", match[1], "rank")]
    if match := _ENV.match(text):
        value = match[2].rstrip()
        if re.fullmatch(r"-?\w+\.", value):  # numbers are printed with a full stop
            value = value[:-1]
        return [Fact("env", match[1], value, "rank")]
    return []


def _devices(text: str) -> list[Parsed]:
    net = text.split(" :", 1)[0].removeprefix("NET/").strip()
    if "No device found" in text:
        return [Fact("net", net, "no device found")]
    listed = text.partition("Using")[2].partition("; OOB")[0]
    out: list[Parsed] = []
    for index, name, rest in _DEVICE_IN_LIST.findall(listed):
        port, _, link = rest.partition("/")
        value = {"index": int(index), "port": _int(port), "link": link or None, "net": net}
        out.append(Fact("nic", name, value))
    return out


def _network(text: str) -> list[Parsed]:
    name = text.removeprefix("Using network ").strip()
    return [Fact("net", "network", name[:80])] if text.startswith("Using network ") else []


def _gdr(text: str) -> list[Parsed]:
    if match := _GDR_PAIR.search(text):
        value = {
            "enabled": match[1] == "Enabled",
            "distance": _int(match[4]),
            "limit": _int(match[5]),
            "read": None if match[6] is None else match[6] == "1",
        }
        return [Fact("gdr", f"GPU {match[2]} / HCA {match[3]}", value)]
    if match := _GDR_HCA.search(text):
        net = text.partition(" : ")[0].removeprefix("NET/").strip()[:40]
        value = {"enabled": match[1] == "Enabled", "net": net}
        return [Fact("gdr", f"HCA {match[3]}", value), *nic_of_plugin(text, match[3])]
    return []


def _version(text: str) -> list[Parsed]:
    if match := re.search(r"NCCL version (\d+\.\d+(?:\.\d+)?)(?:\+cuda(\d+\.\d+))?", text):
        cuda: list[Parsed] = [Fact("version", "cuda", match[2])] if match[2] else []
        return [Fact("version", "nccl", match[1]), *cuda]
    if match := re.search(r"RCCL version ?:? (\d+\.\d+(?:\.\d+)?)", text):
        return [Fact("version", "rccl", match[1])]
    if match := re.search(r"cudaDriverVersion (\d{1,6})", text):
        return [Fact("version", "driver", match[1])]
    return []


def _connected(text: str) -> list[Parsed]:
    match = re.match(r"Connected (all rings|all trees|NVLS tree|binomial trees|collnet)", text)
    if match is None:
        return []
    value = {key.lower(): int(number) for key, number in re.findall(r"\b(PXN|GDR) (\d)", text)}
    return [Fact("connected", match[1].removeprefix("all "), value, "rank")]


def _no_plugin(text: str) -> list[Parsed]:
    return [Fact("net", "plugin", "none found")] if text.startswith("NET/") else []


def _plugin(text: str) -> list[Parsed]:
    if match := re.match(r"NET/Plugin: Loaded net plugin (.{1,80}?)(?: \(v\d+\))?$", text):
        return [Fact("plugin", "net", match[1])]
    if match := re.match(r"(TUNER|PROFILER)/Plugin: Using (.{1,80}?)(?: \(v\d+\))?$", text):
        return [Fact("plugin", match[1].lower(), match[2])]
    return []


def _p2p(text: str) -> list[Parsed]:
    if match := _P2P_CHECK.match(text):
        value = {"all_direct": match[1] == "1", "direct_mode": match[2] == "1"}
        return [Fact("p2p", "check", value, "rank")]
    if match := _P2P_OFF.search(text):
        return [Fact("p2p-disabled", f"{match[1]}-{match[2]}", True)]
    return []


def _nvls(text: str) -> list[Parsed]:
    used = "multicast support is available" in text or text.startswith("NVLS comm 0x")
    return [Fact("nvls", "multicast", True)] if used else []


def _fabric(text: str) -> list[Parsed]:
    # NVML has a fabric's state of Hopper and later alone; 3: the fabric manager has the GPU.
    is_registered = re.match(r"MNNVL busId .{1,120} state 3\b", text) is not None
    return [Fact("fabric", "registered", True)] if is_registered else []


def parse_device(text: str) -> list[Parsed]:
    """The GPU that a line without NCCL's prefix lists: nvidia-smi's, or Lightning's."""
    match = _SMI.match(text) or _LIGHTNING.search(text)
    return [Fact("device", match[1], "", "run")] if match else []


def _thresholds(text: str) -> list[Parsed]:
    value = text.split("threadThresholds", 1)[1].strip()
    return [Fact("thresholds", "threads", value[:200], "rank")]


def _timings(text: str) -> list[Parsed]:
    match = _TIMINGS.match(text)
    if match is None:
        return []
    phases = re.findall(r"\b(\w{1,40}) ([\d.]{1,20})", match[2])
    value = {"total_s": real(match[1])} | {f"{name}_s": real(x) for name, x in phases}
    return [Fact("init-time", "init", value, "rank")]


def _int(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,9}", text) else None


_PARSERS: tuple[tuple[str, Callable[[str], list[Parsed]]], ...] = (
    (" via ", _connection),
    ("GPU Direct RDMA", _gdr),
    (SIGN, parse_ofi),
    ("NET/IB : ", _devices),
    ("NET/Socket : ", _devices),
    ("Using network ", _network),
    (" set by environment to ", _env),
    (" set by env to ", _env),
    (" to environment", _env),
    ("coll channels", _channels),
    ("threadThresholds", _thresholds),
    ("Connected ", _connected),
    ("Init timings", _timings),
    ("No plugin found", _no_plugin),
    ("Using internal net", _no_plugin),
    ("/Plugin: ", _plugin),
    ("P2P", _p2p),
    ("NVLS ", _nvls),
    ("MNNVL busId", _fabric),
    ("comm 0x", _communicator),
    ("NCCL version ", _version),
    ("RCCL version ", _version),
    ("cudaDriverVersion", _version),
)
