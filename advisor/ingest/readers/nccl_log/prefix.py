"""Who printed a line: NCCL's prefix, wherever in the line launchers and other writers left it."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

_LEVEL = re.compile(r"NCCL (INFO|WARN|ATTN|TRACE|ABORT) ")
# Up to 2.3 the level stands alone.
_OLD = re.compile(
    r"(?<![\w.\-])[\w.\-]{1,255}:\d{1,10}:\d{1,10} \[-?\d{1,4}\] "
    r"(?:[\w./\-]{1,200}:\d{1,6} )?(INFO|WARN) "
)
_THREAD = re.compile(r"(?:.*[^\w.\-])?([A-Za-z0-9_][\w.\-]*):(\d{1,10}):(\d{1,10})$")
# «[host:pid=12]» of a cluster's own build, without a device.
_BRACKETED = re.compile(r"\[([A-Za-z0-9_][\w.\-]*):pid=(\d{1,10})\]$")
_DEVICE = re.compile(r"\[(-?\d{1,4})\]$")
LONGEST_TOKEN = 512  # a host name has at most 253 characters
_PLACE = re.compile(r"[\w./\-]{1,200}:\d{1,6}$")
_SPACED = re.compile(r" ([\w./\-]{1,80}\.(?:h|cc?|cu)) (\d{1,6})$")  # 2.3, 2.4: file line
_FUNCTION = re.compile(r" \(\w{1,100}\)$")  # 2.30.7 on: file:line (function) NCCL WARN
_SIGNATURE = re.compile(r"\([^()]{0,600}\)(:\d{1,6})$")  # aws-ofi-nccl: function(types):line
_VERSION = re.compile(r"NCCL version (?=\d)|RCCL version ?:? (?=\d)")
_DATE = re.compile(r"\[\d{4}-\d\d-\d\d[ T][\d:.]+\]\s*$")
_CUT_DATE = re.compile(r"\[(?:\d{1,4}|\d{4}-[\d\-: T.]*)\]?$")
_DIGITS = re.compile(r"\d+")
# One of these stands in whatever the signs below find; words are found ten times faster.
_WORDS = (
    b"nccl", b"[c10d]", b"rendezvous", b"monitoredbarrier", b"collective", b"unhandled ",
    b"test cuda", b"hip failure", b"net/ofi", b"libfabric:", b"ucx  error", b"childfailed",
    b"outofmemory", b"networkerror: ", b"backenderror: ", b"storeerror: ", b"nvrm: ", b"nvml: ",
    b"slurmstepd: ", b" ngpus ", b"rccl version ",
)  # fmt: skip
_SIGNS = re.compile(
    rb"nccl (?:info|warn|attn|diag) |nccl version \d|processgroupnccl\.cpp:\d|nccl error(?: in)?: |"
    rb"nccl error \d|nccl (?:error|failure) \S{1,200}:\d|nccl_error_\w{1,40}: |"
    rb"nccl operation nccl\w|undefined symbol: nccl\w|"
    rb"failed to pass monitoredbarrier|watchdog caught collective operation timeout|"
    rb"detected mismatch between collectives|test (?:nccl|cuda|hip) failure |hip failure: '|"
    rb"unhandled (?:cuda|system) error|net/ofi |libfabric:\d{1,10}:\d|ucx  error|childfailederror|"
    rb"outofmemoryerror|\[c10d\] |dist(?:network|backend|store)error: \S|"
    rb"rendezvous\w{1,20}error: \S|nvrm: (?:xid|api mismatch)|failed to initialize nvml: |"
    rb"slurmstepd: error: |# nthreads? \d{1,6} ngpus \d|rccl version :? ?\d"
)


@dataclass(frozen=True, slots=True)
class Thread:
    """The printing thread; ``host`` is empty where the log was anonymised."""

    host: str
    pid: int
    tid: int


class Record(NamedTuple):
    """One NCCL message. ``thread`` is None for text without a prefix (continuations, version)."""

    thread: Thread | None
    device: int | None
    level: str
    place: str | None
    text: str


def looks_like_log(head: bytes) -> bool:
    """Whether NCCL's words, or those of torch or a benchmark about it, occur in bytes of a file."""
    text = head.lower()
    return any(word in text for word in _WORDS) and _SIGNS.search(text) is not None


def is_cut_prefix(line: str, before: str) -> bool:
    """Whether ``line`` is the beginning of NCCL's prefix, as a file's last line where it is cut.

    ``before`` is an earlier line with a prefix; of that only the numbers may differ.
    """
    text = line.strip()
    if _CUT_DATE.fullmatch(text):
        return True
    match = _LEVEL.search(before)
    whole = before[: match.end()].lstrip() if match else ""
    return bool(text) and _DIGITS.sub("0", whole).startswith(_DIGITS.sub("0", text))


def records(line: str) -> list[Record]:
    """The messages in a line: none, one, or several where writers collided.

    Text before the first prefix comes first, as a record of level ``""`` (it may continue an
    earlier message).
    """
    if "NCCL " not in line and (old := _old(line)) is not None:
        line = f"{line[: old.start(1)]}NCCL {line[old.start(1) :]}"
    found = list(_LEVEL.finditer(line)) if "NCCL " in line else []
    if not found:
        if match := _VERSION.search(line):
            version = Record(None, None, "INFO", None, line[match.start() :].strip())
            before = line[: match.start()]  # torch puts the version behind an error
            return [*([Record(None, None, "", None, before)] if before.strip() else []), version]
        return [Record(None, None, "", None, line)] if line.strip() else []
    out: list[Record] = []
    start = 0
    pending: tuple[Thread | None, int | None, str, str | None] = (None, None, "", None)
    for match in found:
        text, thread, device, place = _split_prefix(line[start : match.start()])
        text = _DATE.sub("", text)
        if pending[2] or text.strip():
            out.append(Record(*pending, text.rstrip() if pending[2] else text))
        pending = (thread, device, match[1], place)
        start = match.end()
    out.append(Record(*pending, line[start:].rstrip()))
    return out


def _old(line: str) -> re.Match[str] | None:
    if "] INFO " not in line and " WARN " not in line:
        return None
    return _OLD.search(line)


@lru_cache(maxsize=4096)  # of few threads, where no time stands before them
def _split_prefix(text: str) -> tuple[str, Thread | None, int | None, str | None]:
    """What stands before ``NCCL INFO``: earlier text, then thread, device and source place.

    Taken from the right, so that whatever launchers put in front does not matter.
    """
    thread: Thread | None = None
    device: int | None = None
    place: str | None = None
    rest = _SIGNATURE.sub(r"\1", _FUNCTION.sub("", text.rstrip()))
    rest = _SPACED.sub(r" \1:\2", rest)
    for _ in range(3):
        head, _, last = rest.rpartition(" ")
        if len(last) > LONGEST_TOKEN:  # keeps the patterns' cost linear in the line
            break
        if device is None and (match := _DEVICE.fullmatch(last)):
            device = int(match[1])
        elif place is None and device is None and _PLACE.fullmatch(last) and last.count(":") == 1:
            place = last
        elif match := _BRACKETED.fullmatch(last):
            thread = Thread(match[1], int(match[2]), int(match[2]))
        elif last.startswith("[") and place is None and _PLACE.fullmatch(last[1:-1]):
            place = last[1:-1]
        elif match := _THREAD.fullmatch(last):
            thread = Thread(match[1], int(match[2]), int(match[3]))
            head = rest[: len(rest) - len(last) + match.start(1)]
            rest = head
            break
        else:
            break
        rest = head.rstrip()
    return rest, thread, device, place
