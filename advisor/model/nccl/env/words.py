"""Words in values that NCCL does not know and passes over without a message."""

import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase

from advisor.model.nccl.env.issue import EnvIssue
from advisor.model.nccl.env.statements import remark, statements
from advisor.model.nccl.filters import PER_FUNCTION_SINCE
from advisor.model.nccl.names import PROTOCOLS, algorithms
from advisor.model.nccl.version import NcclVersion, format_version

_NETWORKS = ("IB", "Socket")
# What people write for NCCL's own two; other names may be those of plugins.
_MEANT = {
    "tcp": "Socket", "tcp/ip": "Socket", "eth": "Socket", "ethernet": "Socket",
    "infiniband": "IB", "rdma": "IB", "roce": "IB", "verbs": "IB", "ibverbs": "IB",
    "net_ib": "IB", "net_socket": "Socket",
}  # fmt: skip
_POLICIES = ("DEFAULT", "EFFICIENCY", "ZERO")
# src/debug.cc: what each compares in any case, over all releases.
_DEBUG_LEVELS = ("VERSION", "WARN", "INFO", "ABORT", "TRACE")
_SUBSYSTEMS = (
    "INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "ALLOC_HOST", "CALL",
    "PROXY", "NVLS", "BOOTSTRAP", "REG", "PROFILE", "RAS", "DESTROY", "ALL",
)  # fmt: skip
_FAMILIES = {"AF_INET": "4", "AF_INET6": "6"}
_PATHS = {"NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL"}
# src/graph/topo.cc, topoPathTypeStr up to SYS, as of 2.30.7; not every release has all of them.
_LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")


def check_words(env: Mapping[str, str], version: NcclVersion | None) -> Iterator[EnvIssue]:
    """Path levels, networks, CTA policies that NCCL reads as something else, or not at all."""
    for name, value in env.items():
        if not value:
            continue
        if name in _PATHS:
            yield from _level(name, value)
        elif name == "NCCL_NET":
            yield from _network(name, value)
        elif name == "NCCL_DEBUG":
            yield from _debug_level(name, value)
        elif name == "NCCL_DEBUG_SUBSYS":
            yield from _subsystems(name, value)
        elif name in ("NCCL_SOCKET_FAMILY", "NCCL_IB_ADDR_FAMILY"):
            yield from _family(name, value)
        elif name == "NCCL_CTA_POLICY" and not re.fullmatch(r"\d+", value):
            yield from _policy(name, value, version)


def _level(name: str, value: str) -> Iterator[EnvIssue]:
    if re.match("[0-9]", value):
        yield remark("level-number", name, value)
    elif value not in _LEVELS:
        meant = _meant(value.upper(), _LEVELS, "Use LOC, NVL, PIX, PXB, PHB or SYS.")
        yield remark("no-level", name, value, meant=meant)


def _debug_level(name: str, value: str) -> Iterator[EnvIssue]:
    if value.upper() in _DEBUG_LEVELS:
        return
    levels = ", ".join(level for level in _DEBUG_LEVELS if level != "ABORT")
    meant = _meant(value.upper(), _DEBUG_LEVELS, "Use WARN, or INFO to diagnose.")
    yield remark("no-log-level", name, value, levels=levels, meant=meant)


def _subsystems(name: str, value: str) -> Iterator[EnvIssue]:
    words = [word for word in value.removeprefix("^").split(",") if word]
    wrong = [word for word in words if word.upper() not in _SUBSYSTEMS]
    if not wrong:
        return
    none = len(wrong) == len(words) and not value.startswith("^")
    result = " and then writes no lines at level INFO." if none else "."
    meant = _meant(wrong[0].upper(), _SUBSYSTEMS, f"It knows {', '.join(_SUBSYSTEMS)}.")
    yield remark("no-subsystem", name, value, word=wrong[0], result=result, meant=meant)


def _family(name: str, value: str) -> Iterator[EnvIssue]:
    if value in _FAMILIES:
        return
    found = next((family for family, digit in _FAMILIES.items() if value.endswith(digit)), None)
    meant = f"Did you mean {found}?" if found else "Use AF_INET (IPv4) or AF_INET6 (IPv6)."
    yield remark("no-family", name, value, meant=meant)


def _meant(word: str, known: Collection[str], otherwise: str) -> str:
    """The name that is nearest to ``word``, as a question; without one what to do else."""
    close = get_close_matches(word, known, n=1)
    return f"Did you mean {close[0]}?" if close else otherwise


def _network(name: str, value: str) -> Iterator[EnvIssue]:
    """A name that is nearly one of NCCL's own networks; a plugin may have any other."""
    known = {network.lower(): network for network in _NETWORKS}
    plugins = [plugin.lower() for plugin in statements().networks]
    if value.lower() in known or any(fnmatchcase(value.lower(), plugin) for plugin in plugins):
        return
    close = get_close_matches(value.lower(), known, n=1, cutoff=0.8)
    meant = _MEANT.get(value.lower()) or (known[close[0]] if close else "")
    if meant:
        issue = remark("no-network", name, value, own=" and ".join(_NETWORKS), network=meant)
        # Of three letters the next plugin may be called: gIB is Google's.
        unsure = meant == "IB" and value.lower() not in _MEANT
        yield issue._replace(severity="warning") if unsure else issue


def _policy(name: str, value: str, version: NcclVersion | None) -> Iterator[EnvIssue]:
    wrong = [part for part in value.split("|") if part.strip().upper() not in _POLICIES]
    if wrong:
        yield remark("no-policy", name, value, word=wrong[0], policies=", ".join(_POLICIES))
    elif version is not None and version < (2, 29, 0) and value.upper() != "DEFAULT":
        yield remark("early-policy", name, value, release=format_version(version))


def unknown_words(name: str, value: str, release: NcclVersion) -> Iterator[EnvIssue]:
    """Words of NCCL_ALGO and NCCL_PROTO that a release before 2.24 passes over; later ones fail."""
    if release >= PER_FUNCTION_SINCE:
        return
    known = [*algorithms(release), "CollNet"] if name == "NCCL_ALGO" else list(PROTOCOLS)
    spelling = {word.lower(): word for word in known}
    words = [word for word in value.removeprefix("^").split(",") if word]
    # Entries per collective (2.24) are another mistake, told apart.
    wrong = [w for w in words if w.lower() not in spelling and not set(w) & set(":;")]
    if not wrong:
        return
    close = get_close_matches(wrong[0].lower(), spelling, n=1)
    fallback = ": a list without a known word leaves at most NCCL's fallback."
    yield remark(
        "unknown-word",
        name,
        value,
        release=format_version(release),
        word=wrong[0],
        result=fallback if len(wrong) == len(words) else ".",
        meant=f"Did you mean {spelling[close[0]]}? " if close else "",
        known=", ".join(known),
    )
