"""NCCL's XML dumps (``NCCL_TOPO_DUMP_FILE``, ``NCCL_GRAPH_DUMP_FILE``) → ``topology``.

The kinds are those of the log reader (:mod:`.nccl_log`): ``gpu``, ``nic``, ``graph``, ``node``, and
``cpu``. Parsed by expat as a stream, with document types and entities refused, so that a file can
neither expand nor fetch anything; what stood before a cut is kept.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from advisor.errors import AdvisorError
from advisor.ingest.readers._rows import insert
from advisor.ingest.source import ReadContext, Source
from advisor.vocabulary.numbers import real, whole

FORMAT = "nccl-xml"
SUMMARY = "NCCL topology and graph XML dumps (NCCL_TOPO_DUMP_FILE, NCCL_GRAPH_DUMP_FILE)"
PRIORITY = 35

MAX_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 64
MAX_ELEMENTS = 500_000
_USEFUL = {"gpu", "nic", "graph"}
_PIECE = 256 * 1024
_ROOT = re.compile(
    rb"\A(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*+-->\s*+)*+<(?:system|graphs)\s",
    re.DOTALL,
)
# graph ids of src/init.cc: ring, tree, CollNet chain, NVLS, CollNet direct.
_GRAPHS = {"0": "ring", "1": "tree", "2": "collnet", "3": "nvls", "4": "collnet direct"}


@dataclass
class _Dump:
    facts: list[tuple[str, str | None, str, Any]] = field(default_factory=list)
    stack: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    host: str | None = None
    gpu: dict[str, Any] | None = None
    graph: dict[str, Any] | None = None
    elements: int = 0

    def parent(self, name: str) -> dict[str, str]:
        """Attributes of the nearest enclosing ``name``."""
        return next((a for n, a in reversed(self.stack) if n == name), {})


def detect(source: Source) -> bool:
    """An XML document whose root is ``system`` or ``graphs``, with an element of NCCL's."""
    head = source.head
    return bool(_ROOT.match(head)) and (b"<cpu" in head or b"<graph " in head or b"<nic" in head)


def read(sources: Sequence[Source], context: ReadContext) -> None:
    """Write what the dumps tell; a dump names no host, only (in newer versions) a hash of it."""
    for source in sources:
        dump, note = _Dump(), None
        try:
            note = _parse(source, dump)
        except AdvisorError as error:
            context.refuse(source, FORMAT, str(error))
            continue
        if not _USEFUL & {kind for kind, *_ in dump.facts}:
            dump = _Dump()
            note = f"no GPU, NIC or graph in it{f': {note}' if note else ''}"
        elif note:
            note = f"{note}: what came before is kept"
        if dump.counts:
            dump.facts.append(("node", dump.host, dump.host or "", dict(dump.counts)))
        told = str(source.path)
        rows = [
            {"kind": kind, "host": host, "name": name, "value": json.dumps(value), "source": told}
            for kind, host, name, value in dump.facts
        ]
        kept = insert(context, "topology", rows)
        context.report(
            source,
            FORMAT,
            events_read=kept,
            drop_reasons={"dump cut or damaged": 1} if note else {},
            note=note,
        )


def _parse(source: Source, dump: _Dump) -> str | None:
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, attributes: _start(dump, name, attributes, source)
    parser.EndElementHandler = lambda name: _end(dump, name)

    def refuse(*_: Any) -> None:
        raise AdvisorError(
            "refused: declares a document type or entities, which NCCL's dumps never do",
            where=str(source.path),
        )

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    stream, raw = source.open_raw()
    total = 0
    try:
        with stream:
            while piece := stream.read(_PIECE):
                total += len(piece)
                if total > MAX_BYTES:
                    raise AdvisorError(
                        f"holds more than {MAX_BYTES >> 20} MiB of XML", where=str(source.path)
                    )
                parser.Parse(piece, False)
            parser.Parse(b"", True)
    except expat.ExpatError as error:
        while dump.stack:  # what is open is kept as far as it was written
            _end(dump, dump.stack[-1][0])
        return raw.damage or str(error)
    except (LookupError, ValueError) as error:  # what expat asks Python's codecs for
        raise AdvisorError(
            f"names a character encoding that cannot be read: {error}", where=str(source.path)
        ) from error
    return raw.damage


def _start(dump: _Dump, name: str, attributes: dict[str, str], source: Source) -> None:
    dump.elements += 1
    if len(dump.stack) >= MAX_DEPTH or dump.elements > MAX_ELEMENTS:
        raise AdvisorError("has too many or too deeply nested elements", where=str(source.path))
    dump.stack.append((name, attributes))
    if name == "cpu":
        dump.host = attributes.get("host_hash", dump.host)
        keys = ("arch", "vendor", "familyid", "modelid")
        cpu = {key: attributes.get(key) for key in keys}
        _add(dump, "cpu", f"CPU/{attributes.get('numaid', '?')}", cpu, "cpus")
    elif name == "gpu" and dump.graph is None:
        dump.gpu = {
            **_place(dump),
            "dev": whole(attributes.get("dev")),
            "rank": whole(attributes.get("rank")),
            "compute_capability": whole(attributes.get("sm")),
            "gdr": _flag(attributes.get("gdr")),
            "nvlinks": 0,
        }
    elif name in {"nvlink", "xgmi"} and dump.gpu is not None:
        dump.gpu["nvlinks"] += whole(attributes.get("count")) or 0
    elif name == "net" and dump.graph is None:
        speed = whole(attributes.get("speed"))
        value = {
            **_place(dump),
            "index": whole(attributes.get("dev")),
            "port": whole(attributes.get("port")),
            "guid": attributes.get("guid"),
            "speed_mbps": speed,
            "bw_gbps": speed / 8000 if speed is not None else None,
            "gdr": _flag(attributes.get("gdr")),
        }
        _add(dump, "nic", attributes.get("name", ""), value, "nics")
    elif name == "graph":
        dump.graph = {
            "pattern": whole(attributes.get("pattern")),
            "channels": whole(attributes.get("nchannels")),
            "bw_intra": real(attributes.get("speedintra")),
            "bw_inter": real(attributes.get("speedinter")),
            "type_intra": attributes.get("typeintra"),
            "type_inter": attributes.get("typeinter"),
            "cross_nic": whole(attributes.get("crossnic")),
            "same_channels": whole(attributes.get("samechannels")),
            "latency_inter": real(attributes.get("latencyinter")),
            "paths": [],
        }
    elif name == "channel" and dump.graph is not None:
        dump.graph["paths"].append([])
    elif name in {"gpu", "net"} and dump.graph is not None and dump.graph["paths"]:
        dump.graph["paths"][-1].append(f"{name.upper()}/{attributes.get('dev', '?')}")


def _end(dump: _Dump, name: str) -> None:
    _, attributes = dump.stack.pop()
    if name == "gpu" and dump.gpu is not None:
        bus = dump.parent("pci").get("busid", "")
        _add(dump, "gpu", f"GPU/{_bus_number(bus)}", dump.gpu, "gpus")
        dump.gpu = None
    elif name == "graph" and dump.graph is not None:
        number = attributes.get("id", "?")
        _add(dump, "graph", _GRAPHS.get(number, f"graph {number}"), dump.graph, None)
        dump.graph = None


def _add(dump: _Dump, kind: str, name: str, value: Any, counter: str | None) -> None:
    host = dump.host if counter is not None else None
    dump.facts.append((kind, host, name[:200], value))
    if counter is not None:
        dump.counts[counter] = dump.counts.get(counter, 0) + 1


def _place(dump: _Dump) -> dict[str, Any]:
    """Where in the PCI tree something hangs, and how wide its slot is."""
    chain = [attributes for name, attributes in dump.stack if name == "pci"]
    slot = chain[-1] if chain else {}
    parent = _bus_number(chain[-2].get("busid", "")) if len(chain) > 1 else None
    return {
        "cpu": dump.parent("cpu").get("numaid"),
        "parent": f"PCI/{parent}" if parent else None,
        "link_speed": slot.get("link_speed"),
        "link_width": whole(slot.get("link_width")),
    }


def _bus_number(bus: str) -> str:
    """``0000:1a:00.0`` → ``1a000``, as NCCL's log names it."""
    digits = re.sub(r"[^0-9a-fA-F]", "", bus)[:16]
    return f"{int(digits, 16):x}" if digits else "?"


def _flag(text: str | None) -> bool | None:
    return None if text is None else text == "1"
