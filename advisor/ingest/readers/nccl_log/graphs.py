"""Blocks of the GRAPH subsystem: the system tree, paths, patterns, rings and trees.

These blocks span lines; one parser per printing thread keeps the block that is open there, so that
interleaved ranks do not mix.
"""

import re
from typing import Any

from advisor.ingest.readers.nccl_log.collected import Where
from advisor.ingest.readers.nccl_log.facts import Fact, Parsed, RingOrder, RingStep

_BW = r"\d{1,12}(?:\.\d{1,9})?"
_SYSTEM = re.compile(
    r"^=== System : max(?:Width|Bw) (" + _BW + r") total(?:Width|Bw) (" + _BW + r")"
)
_ROOT = re.compile(r"^(CPU/[\w\-]+) \((\d+)/(\d+)/[^)]*\)\s*$")
_EDGE = re.compile(
    r"^(\s*)\+ (\w+)\[(" + _BW + r")\] - ([A-Z0-9]+/[\w\-]+)(?: \((.{0,200})\))?\s*$"
)
_PATHS = re.compile(r"^((?:GPU|NET|NVS|CPU|GIN)/[\w\-]+) ?:(.*)$")
_PATH = re.compile(r"(?<![A-Z])([A-Z]+/[\w\-]+) \((\d{1,6})/(" + _BW + r")/(\w{2,4})\)")
_PATTERN = re.compile(
    r"^Pattern (\d{1,6}), crossNic (\d), nChannels (\d{1,6}), (?:bw|speed) ("
    + _BW
    + r")/("
    + _BW
    + r"), "
    r"type (\w+)/(\w+), sameChannels (\d)"
)
_CHANNEL_OF_PATTERN = re.compile(r"^\s*(\d{1,4}) :((?: +(?:NET|GPU)/[\w\-]+)+)\s*$")
_RING_ORDER = re.compile(r"^Channel (\d{1,6})/\d{1,6} :((?:\s+\d{1,9})+)\s*$")
_RING_STEP = re.compile(r"^Ring (\d{1,6}) : (-?\d{1,9}) -> (-?\d{1,9}) -> (-?\d{1,9})\s*$")
_TREES = re.compile(r"\[(\d{1,6})\] (-?\d{1,9})/(-?\d{1,9})/(-?\d{1,9})->(-?\d{1,9})->(-?\d{1,9})")
_TREE = re.compile(
    r"^Tree (\d{1,6}) : (-?\d{1,9}) -> (-?\d{1,9}) -> (-?\d{1,9})/(-?\d{1,9})/(-?\d{1,9})"
)

# src/include/graph.h: 1 balanced tree, 2 split tree, 3 tree, 4 ring, 5 NVLS, 6 CollNet direct.
_GRAPH_OF_PATTERN = {1: "tree", 2: "tree", 3: "tree", 4: "ring", 5: "nvls", 6: "collnet"}
# src/include/graph.h: NCCL_TOPO_CPU_ARCH_* and NCCL_TOPO_CPU_VENDOR_*.
_CPU_ARCH = {"1": "x86", "2": "power", "3": "arm"}
_CPU_VENDOR = {"1": "intel", "2": "amd", "3": "zhaoxin", "4": "mixed"}


class Blocks:
    """The blocks of one thread. :meth:`feed` gives what a line completes; then :meth:`finish`.

    ``headless`` is set where a system tree is read on without its heading, ``last`` is the place of
    the last line that was taken.
    """

    def __init__(self) -> None:
        self.headless = False
        self.last: Where = ("", 0)
        self._stack: list[tuple[int, str]] = []
        self._in_system = False
        self._graph: dict[str, Any] | None = None
        self._seen_tree = False
        self._nvlink: dict[str, float] = {}
        self._places: dict[str, dict[str, Any]] = {}

    def feed(self, text: str) -> list[Parsed]:
        """Records that this line gives or completes; empty for lines of other kinds."""
        if match := _PATTERN.match(text):
            return [*self.finish(), *self._open_graph(match)]
        if self._graph is not None and (match := _CHANNEL_OF_PATTERN.match(text)):
            self._graph["paths"].append(match[2].split())
            return []
        if match := _SYSTEM.match(text):
            out = self.finish()
            self._in_system, self._seen_tree = True, False
            value = {"max_bw_gbps": float(match[1]), "total_bw_gbps": float(match[2])}
            return [*out, Fact("system", "system", value)]
        if not self._in_system and (_ROOT.match(text) or _EDGE.match(text)):
            self._in_system = self.headless = True
            self._seen_tree = False
        if self._in_system and (found := self._tree_line(text)) is not None:
            return found
        if match := _RING_ORDER.match(text):
            return [RingOrder(int(match[1]), tuple(int(r) for r in match[2].split()))]
        if match := _RING_STEP.match(text):
            return [RingStep(*(int(group) for group in match.groups()))]
        if text.startswith("Trees ") or _TREE.match(text):
            return _trees(text)
        if match := _PATHS.match(text):
            return _paths(match[1], match[2])
        return []

    def finish(self) -> list[Parsed]:
        """What is still open: the last pattern, the system tree."""
        out: list[Parsed] = []
        if self._graph is not None:
            name = self._graph.pop("name")
            out.append(Fact("graph", name, self._graph, "rank"))
            self._graph = None
        if self._places:
            for node, place in self._places.items():
                if node.startswith("GPU/"):
                    place = {**place, "nvlink_gbps": round(self._nvlink.get(node, 0.0), 3)}
                out.append(Fact("gpu" if node.startswith("GPU/") else "net-port", node, place))
            self._places, self._nvlink = {}, {}
        self._in_system, self._stack = False, []
        return out

    def _tree_line(self, text: str) -> list[Parsed] | None:
        if match := _ROOT.match(text):
            self._stack = [(-1, match[1])]
            arch, vendor = _CPU_ARCH.get(match[2], "x86"), _CPU_VENDOR.get(match[3], "other")
            return [Fact("cpu", match[1], {"arch": arch, "vendor": vendor})]
        if text.startswith("====="):
            return self.finish()
        match = _EDGE.match(text)
        if match is None:
            return None
        depth, link, bandwidth, node, detail = match.groups()
        while self._stack and self._stack[-1][0] >= len(depth):
            self._stack.pop()
        parent = self._stack[-1][1] if self._stack else None
        self._stack.append((len(depth), node))
        if link == "NVL" and parent is not None:
            self._nvlink[parent] = self._nvlink.get(parent, 0.0) + float(bandwidth)
        elif node.startswith("GPU/"):
            self._places[node] = {"parent": parent, "bw_gbps": float(bandwidth)}
        elif node.startswith("NET/"):
            guid, _, port = (detail or "").partition("/")
            self._places[node] = {
                "parent": parent,
                "bw_gbps": float(bandwidth),
                "guid": guid or None,
                "port": port.partition("/")[0] or None,
            }
        return []

    def _open_graph(self, match: re.Match[str]) -> list[Parsed]:
        pattern = int(match[1])
        name = _GRAPH_OF_PATTERN.get(pattern, f"pattern {pattern}")
        if name == "tree" and self._seen_tree:
            name = "collnet"  # the CollNet chain is searched after the tree, with a tree pattern
        self._seen_tree = self._seen_tree or name == "tree"
        self._graph = {
            "name": name,
            "pattern": pattern,
            "channels": int(match[3]),
            "bw_intra": float(match[4]),
            "bw_inter": float(match[5]),
            "type_intra": match[6],
            "type_inter": match[7],
            "cross_nic": int(match[2]),
            "same_channels": int(match[8]),
            "paths": [],
        }
        return []


def _paths(node: str, text: str) -> list[Parsed]:
    """Only from GPUs, to GPUs and NICs: those decide on P2P and GPUDirect RDMA."""
    if not node.startswith("GPU/"):
        return []
    return [
        Fact("path", f"{node} -> {to}", {"hops": int(hops), "bw_gbps": float(bw), "type": kind})
        for to, hops, bw, kind in _PATH.findall(text)
        if to.startswith(("GPU/", "NET/")) and to != node
    ]


def _trees(text: str) -> list[Parsed]:
    if match := _TREE.match(text):
        channel, parent, _, *children = (int(group) for group in match.groups())
        entries = [(channel, children, parent)]
    else:
        entries = [
            (int(channel), [int(down) for down in downs], int(up))
            for channel, *downs, _, up in _TREES.findall(text)
        ]
    value = [
        {
            "channel": channel,
            "children": [rank for rank in children if rank >= 0],
            "parent": parent if parent >= 0 else None,
        }
        for channel, children, parent in entries
    ]
    return [Fact("tree", "trees", value, "rank")] if value else []


def channel_orders(
    orders: dict[int, tuple[int, ...]], steps: dict[int, dict[int, int]], size: int
) -> dict[int, tuple[list[int], bool]]:
    """Per channel the ring's ranks from rank 0 and whether they are all ``size``.

    NCCL prints at most 20 ranks of an order (src/graph/rings.cc, MAXWIDTH); the neighbours that
    each rank prints give the rest where all ranks logged.
    """
    out: dict[int, tuple[list[int], bool]] = {}
    for channel in sorted(orders.keys() | steps.keys()):
        ring, closes = list(orders.get(channel, ())), True
        following = steps.get(channel, {})
        if len(ring) != size and following:
            walked = [min(following)]
            seen = set(walked)
            while (after := following.get(walked[-1])) is not None and after not in seen:
                walked.append(after)
                seen.add(after)
            if len(walked) > len(ring):
                ring, closes = walked, after is None or after == walked[0]
        out[channel] = (ring, closes and len(ring) == size and len(set(ring)) == size)
    return out
