"""What a trace says about itself outside its events: rank, groups, devices, base time.

These fields stand before the events, after them, or both, and either part may be damaged. So they
are read key by key: a value that cannot be parsed is skipped and the next key is looked for.
"""

import ast
import json
import re
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from advisor.ingest.readers._alike import one_copy
from advisor.ingest.readers.kineto.metadata_fields import allowed_fields
from advisor.vocabulary.numbers import MOST_RANKS, whole

_DECODER = json.JSONDecoder(strict=False)
_KEY = re.compile(r'\s*+,?\s*+"((?:[^"\\]|\\.)*+)"\s*+:\s*+')
_NEXT_KEY = re.compile(r',\s*(?="[A-Za-z_][\w .-]*"\s*:)')
_MAX_LITERAL = 8 * 1024 * 1024
_FILE_RANK = (
    re.compile(r"(?:global_?)?rank[-_ ]?(\d{1,6})(?!\d)", re.IGNORECASE),
    re.compile(r"worker[-_ ]?(\d{1,6})(?!\d)", re.IGNORECASE),
    # Neither the end of a date nor what is counted otherwise: trace_2024_11_27, batch_size_2.
    re.compile(
        r"(?:^|(?<!\d)(?<!size)(?<!batch)(?<!bs)(?<!len)(?<!seq)(?<!layers)(?<!step)(?<!steps)"
        r"(?<!iter)(?<!iteration)(?<!epoch)[-_.])(?:r|gpu)?(\d{1,5})(?:\.pt)?(?:\.trace)?\.json",
        re.IGNORECASE,
    ),
)
# torch.profiler.tensorboard_trace_handler: f"{gethostname()}_{getpid()}.{time_ns()}.pt.trace
# .json" unless it is given a worker_name (pytorch torch/profiler/profiler.py).
_FILE_HOST = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9.-]*(?:_[A-Za-z0-9.-]+)*)_(\d{1,8})\.\d{10,20}\.pt\.trace\.json",
    re.ASCII,
)
# Names that people give to workers instead: they name no host.
_NO_HOST = re.compile(
    r"(?:.*[-_.])?(?:global_?|local_?)?(?:rank|worker|gpu|trace|proc(?:ess)?)s?[-_.]?\d*"
    r"(?:[-_.](?:step|iter(?:ation)?|epoch)[-_.]?\d*)?",
    re.IGNORECASE,
)
# But pods of Kubeflow's PyTorchJob are JOB-worker-N (kubeflow/trainer v1.8, core.GenGeneralName):
# a host where the process that recorded the trace has the number behind it, as torch puts it.
_POD = re.compile(r"(?:.*-)?worker-(\d+)", re.IGNORECASE)
_PROCESS = re.compile(
    rb'"cat"\s*:\s*"(?:cpu_op|cuda_runtime|user_annotation)"[^{}]{0,4096}?"pid"\s*:\s*(\d{1,8})\b'
)


@dataclass
class ProcessGroup:
    """One entry of ``pg_config``."""

    name: str
    description: str | None
    ranks: list[int] | None
    size: int | None
    backend: str | None


@dataclass
class TraceInfo:
    """The top-level fields of one trace, read leniently."""

    fields: dict[str, Any] = field(default_factory=dict)
    rank: int | None = None
    rank_from: str = ""
    only_numbered: bool = False
    """The rank is a bare number at the end of the file's name: one that counts anything else reads
    the same."""
    world_size: int | None = None
    backend: str | None = None
    nccl_version: str | None = None
    base_time_ns: int | None = None
    host: str | None = None
    pod: tuple[int, int] | None = None
    """Number and process of a ``worker-N`` that the file's name gives as host."""
    groups: list[ProcessGroup] = field(default_factory=list)
    devices: dict[int, dict[str, Any]] = field(default_factory=dict)

    @cached_property
    def kept(self) -> tuple[dict[str, Any], list[str]]:
        """The fields to store in ``rank.metadata``, and the names of those left out.

        Asked once all fields are read; once, as a file can name thousands of ranks.
        """
        own = self.fields.get("advisor")  # as text in some versions
        return allowed_fields(
            {**self.fields, "advisor": as_object(own) or own} if own else self.fields
        )


def trace_info(head: bytes, tail: bytes, path: Path, events: bytes = b"") -> TraceInfo:
    """Everything known from the two parts of the top-level object and the file's name.

    ``events``: the first of them, which tell whether that name is torch's own.
    """
    info = TraceInfo()
    for part in (head, tail):
        for key, value in read_fields(part).items():
            info.fields.setdefault(key, value)
    fields = info.fields
    distributed = as_object(fields.get("distributedInfo"))
    fields["distributedInfo"] = distributed
    info.world_size = whole(distributed.get("world_size"), MOST_RANKS - 1)
    info.backend = _text(distributed.get("backend"))
    info.nccl_version = _text(distributed.get("nccl_version"))
    info.base_time_ns = whole(fields.get("baseTimeNanoseconds"))
    info.host = _text(
        fields.get("host_name")
        or fields.get("hostname")
        or as_object(fields.get("advisor")).get("host")
    )
    if info.host is None:
        info.host, info.pod = _file_host(path, events)
    info.groups = _groups(distributed.get("pg_config"))
    info.devices = _devices(fields.get("deviceProperties"))
    _find_rank(info, distributed, path)
    return info


def _file_host(path: Path, events: bytes) -> tuple[str | None, tuple[int, int] | None]:
    """The host in the name that torch's own trace handler gives a file, and its pod if it is one;
    None in other names.
    """
    name = _FILE_HOST.match(path.name)
    if name is None:
        return None, None
    if pod := _POD.fullmatch(name[1]):
        process = _PROCESS.search(events)
        if process and int(process[1]) == int(name[2]):
            return name[1], (int(pod[1]), int(name[2]))
        return None, None
    return None if _NO_HOST.fullmatch(name[1]) else name[1], None


def read_fields(text: bytes) -> dict[str, Any]:
    """The ``"key": value`` pairs of a part of an object; damaged values are skipped."""
    source = text.decode("utf-8", errors="replace").strip().lstrip("{]").lstrip()
    found: dict[str, Any] = {}
    position = 0
    while position < len(source):
        key = _KEY.match(source, position)
        if key is None:
            following = _NEXT_KEY.search(source, position)
            if following is None:
                break
            position = following.end()
            continue
        try:
            value, position = _DECODER.raw_decode(source, key.end())
            found.setdefault(key.group(1), value)
        except (ValueError, RecursionError):
            following = _NEXT_KEY.search(source, key.end())
            if following is None:
                break
            position = following.end()
    return found


def as_object(value: Any) -> dict[str, Any]:
    """A JSON object, also where the profiler was handed its text (JSON or a Python literal)."""
    value = _unquoted(value)
    return value if isinstance(value, dict) else {}


def _unquoted(value: Any) -> Any:
    if not isinstance(value, str) or len(value) > _MAX_LITERAL:
        return value
    for parse in (json.loads, ast.literal_eval):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python's, of how a literal is written
                return parse(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
    return value


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int | float) and value != "" else None


def _groups(config: Any) -> list[ProcessGroup]:
    config = _unquoted(config)
    found = []
    for entry in config if isinstance(config, list) else []:
        entry = _unquoted(entry)
        if not isinstance(entry, dict) or "pg_name" not in entry:
            continue
        ranks = _unquoted(entry.get("ranks"))
        numbers = [whole(item, MOST_RANKS - 1) for item in ranks] if isinstance(ranks, list) else []
        known = [number for number in numbers if number is not None]
        size = whole(entry.get("pg_size"), MOST_RANKS - 1)
        complete = bool(known) and len(known) == len(numbers) and size in (None, len(known))
        known = one_copy(tuple(known))
        if entry.get("ranks") == known:
            entry["ranks"] = known
        found.append(
            ProcessGroup(
                name=str(entry["pg_name"]),
                description=_text(entry.get("pg_desc")),
                ranks=known if complete else None,
                size=size if size is not None else (len(numbers) or None),
                backend=_backend(entry.get("backend_config")),
            )
        )
    return found


def _backend(config: Any) -> str | None:
    """``nccl`` of ``cuda:nccl``; of several devices' backends the accelerator's."""
    text = _text(config)
    if text is None:
        return None
    pairs = dict(part.split(":", 1) for part in text.split(",") if part.count(":") >= 1)
    return pairs.get("cuda") or next(iter(pairs.values()), text)


def _devices(properties: Any) -> dict[int, dict[str, Any]]:
    found = {}
    for entry in properties if isinstance(properties, list) else []:
        number = whole(entry.get("id")) if isinstance(entry, dict) else None
        if number is not None:
            found[number] = entry
    return found


def _find_rank(info: TraceInfo, distributed: dict[str, Any], path: Path) -> None:
    candidates = [
        ("distributedInfo", distributed.get("rank")),
        ("the advisor field", as_object(info.fields.get("advisor")).get("rank")),
        ("the trace's rank field", info.fields.get("rank")),
        ("the trace's metadata", as_object(info.fields.get("metadata")).get("rank")),
        ("the trace's metadata", as_object(info.fields.get("otherData")).get("rank")),
    ]
    for origin, value in candidates:
        rank = whole(value, MOST_RANKS - 1)
        if rank is not None and rank >= 0:
            info.rank, info.rank_from = rank, origin
            return
    for name in (path.name, path.parent.name):
        for pattern in _FILE_RANK:
            match = pattern.search(name)
            # A folder ends with its rank (traces-rank5); what goes on is about it (rank5-slow).
            if match and (name == path.name or match.end() == len(name)):
                info.rank, info.rank_from = int(match.group(1)), f"the name {name}"
                info.only_numbered = pattern is _FILE_RANK[-1]
                return
