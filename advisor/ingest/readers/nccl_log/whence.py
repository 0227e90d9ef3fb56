"""Which host and rank a line without NCCL's prefix is of, as a launcher or the line itself says.

Such a line stands behind lines of any process, so the one that printed last says nothing of it.
"""

import re
from dataclasses import dataclass

_NOT_ANY = r"(?!0\.0\.0\.0\b|127\.\d)"  # addresses that every host has
_HOST = rf"{_NOT_ANY}([A-Za-z0-9](?:[\w.\-]{{0,252}}\w)?)"
_NUMBERED = (
    rf"{_NOT_ANY}"
    r"([A-Za-z][\w\-]{0,62}\d[\w\-]{0,62}(?:\.[a-z][\w\-]{1,62}){0,5}|\d{1,3}(?:\.\d{1,3}){3})\b"
)
# torch's own mark, mpirun's and horovodrun's, a worker of vLLM's, horovodrun of one that ended.
_RANK = re.compile(
    r"\[rank(\d{1,7})\]:|"
    r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4})?\[(?:1,)?(\d{1,7})\]<std(?:out|err)>:|"
    r"\((?:Worker_TP|VllmWorker rank=|VllmWorker TP|Worker rank=)(\d{1,7})(?:_EP\d{1,7})? pid=|"
    r"Process (\d{1,7}) exit with status code \d"
)
# What launchers put before a line: Ray's address, kubectl's pod, pdsh's host.
_BEFORE = (
    re.compile(rf"\(.{{0,80}}\bip=\[?{_NOT_ANY}([\w.\-:]{{1,80}})\]?\)"),
    re.compile(rf"\[pod/{_HOST}/"),
    # A failed assertion begins with the program's name.
    re.compile(
        r"(?:slurmstepd-)?(\d{1,3}(?:\.\d{1,3}){3}|\b(?!python[\d.]*:)[a-z][\w.\-]{0,62}\d):\s"
    ),
    re.compile(r"^\s{0,4}([a-z][\w\-]{0,40}\d(?:\.[a-z][a-z\-]{1,30}){2,6}): $"),
    re.compile(r"^\s{0,4}([a-z][\w.\-]{0,62}\d) {1,12}\| $"),
)
# What a scheduler, MPI, the kernel or a benchmark writes about a host.
_IN_TEXT = (
    re.compile(rf"^srun: error: {_HOST}: tasks? "),
    re.compile(rf"\b(?:failed|failure|hung) on node {_HOST}\b"),
    re.compile(rf"\b[Nn]ode failure on {_HOST}\b"),
    re.compile(rf"\bON {_HOST} CANCELLED AT (?!\S{{1,40}} DUE TO NODE)"),  # of another node
    re.compile(rf"\bon node {_HOST} exited on signal "),
    # The system's log: of the kernel, or of a daemon with its number.
    re.compile(
        rf"^[A-Z][a-z]{{2}} [ \d]\d [\d:]{{8}} {_HOST} (?:kernel|[\w.\-]{{1,40}}\[\d{{1,9}}\]):"
    ),
    re.compile(
        rf"^\d{{4}}-\d\d-\d\d[T ][\d:.]{{8,15}}\S{{0,6}} {_HOST} "
        r"(?:kernel|[\w.\-]{1,40}\[\d{1,9}\]):"
    ),
    re.compile(rf"^{_HOST}: Test (?:NCCL|CUDA|HIP) failure "),
    re.compile(rf"^ssh: connect to host {_HOST} port "),
    # Open MPI and UCX of a process that crashed.
    re.compile(
        rf"(?:^|\s)\[{_HOST}:\d{{1,9}}(?: {{0,3}}:\d{{1,9}}){{0,2}}\] "
        r"(?:\*\*\*|Signal|Caught signal|(?:PMIX|OPAL|ORTE|PRTE|OMPI) )"
    ),
    # UCX, and Open MPI of its own parts.
    re.compile(
        rf"^(?:\[\d{{9,11}}\.\d{{1,9}}\] )?\[{_HOST}:\d{{1,9}}(?::\d{{1,9}}){{0,2}}\] "
        r"(?: {0,30}\w{1,60}\.(?:c{1,2}|h):\d|\[\[\d{1,9},)"
    ),
    re.compile(rf"\b(?:Worker IP|Owner Ip) address: \[?{_HOST}"),
    # What a program says itself: its host, its address, its pod. Names of hosts have a number.
    re.compile(
        rf"\b(?:on|from|at) (?:host|node|machine|worker|instance|server):? ['\"]?{_NUMBERED}"
    ),
    re.compile(rf"\b(?:[Hh]ost(?:name)?|[Nn]ode(?:name)?)\s?[=:]\s?['\"]?{_NUMBERED}"),
    re.compile(rf"\b[Ww]orker['\"]? (?:at )?['\"<]?(?:tcp|ucx|tls|grpc)://{_HOST}:\d"),
    re.compile(
        rf"\b(?:node_ip|node IP|[Ii][Pp](?: address)?)\s?[=:]\s?['\"]?{_NOT_ANY}"
        r"(\d{1,3}(?:\.\d{1,3}){3})\b"
    ),
    re.compile(rf"\b[Pp]od[:/ ] ?['\"]?(?:[\w\-]{{1,60}}[/.])?{_NUMBERED}"),
)
_LONGEST = 1_000


@dataclass(frozen=True, slots=True)
class Whence:
    """``host`` may be an address or a longer name than NCCL prints; None: the line does not say."""

    host: str | None
    rank: int | None


def whence(launcher: str, text: str) -> Whence:
    """Who a line is of: ``launcher`` is what stood before ``text``."""
    text = text[:_LONGEST]
    before = (pattern.search(launcher) for pattern in _BEFORE) if launcher else ()
    found = next((match for match in before if match), None)
    if found is None:
        found = next((match for pattern in _IN_TEXT if (match := pattern.search(text))), None)
    rank = _RANK.search(launcher) or _RANK.match(text)
    return Whence(found[1] if found else None, _number(rank))


_WATCHDOG = re.compile(r"\[(?:PG .{0,80})?Rank (\d{1,7})\]")


def rank_told(launcher: str, text: str) -> int | None:
    """The rank that printed a line, where torch puts it before the line or its watchdog says it."""
    found = _RANK.search(launcher) if "rank" in launcher else None
    if found is None and text[:3] in ("[E ", "[W ", "[E1"):
        found = _WATCHDOG.search(text, 0, 200)
    return _number(found)


# Lines of a report about one process: torchrun's list of failures, Ray's of an actor.
_OF_REPORT = re.compile(
    rf"^\s{{1,10}}(?:host {{1,9}}: |ip: ){_HOST}\.?\s{{0,300}}$|"
    r"^\s{1,10}rank {1,9}: (\d{1,7}) \(local_rank: "
)
_TIME = re.compile(r"^\s{1,10}time {1,9}: (\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d)")
_ROOT = "Root Cause (first observed failure)"
_FAILURES = "Failures:"
_SCHEDULER = re.compile(r"TP(\d{1,7})(?: \w{1,8}){0,3}\] Scheduler hit an exception")
_REPORT_LINES = 8
_TRACEBACK_LINES = 200


@dataclass
class Around:
    """What the lines before one tell of it, where it does not itself."""

    _host: str | None = None
    _rank: int | None = None
    _left: int = 0
    time: str = ""
    """When the process of the report failed."""
    is_root: bool = False
    """They are of the rank of which torchrun says that it failed first."""
    is_later: bool = False
    """They are of ranks of which torchrun says that they failed after it."""

    def see(self, text: str) -> None:
        """Take the next line of a file."""
        self._left -= 1
        if self._left == 0:
            self._host = self._rank = None
            self.is_root = False
        if text.startswith(_ROOT):
            self.is_root, self._left = True, _REPORT_LINES
            self.is_later = False
            self._host = self._rank = None
        elif text.startswith(_FAILURES):
            self.is_later = True
        if text[:1].isspace() and (told := _TIME.match(text)):
            self.time = told[1]
        elif text[:1].isspace() and (found := _OF_REPORT.match(text[:_LONGEST])):
            if found[1] is not None:
                self._host = found[1]
            else:
                self._rank = int(found[2])
            self._left = _REPORT_LINES
        elif "traceback : Traceback" in text:  # of the report's process
            self._left = _TRACEBACK_LINES
        elif "Scheduler hit" in text and (found := _SCHEDULER.search(text[:_LONGEST])):
            self._host, self._rank, self._left = None, int(found[1]), _TRACEBACK_LINES

    def complete(self, told: Whence) -> Whence:
        """What a line tells, and what stands around it."""
        if told.host is not None or told.rank is not None:
            return told
        return Whence(self._host, self._rank)


# MPI's help texts and Ray's exceptions name the hosts below what went wrong.
_HOST_BELOW = re.compile(
    r"^\s{0,8}(?:(?:Peer|Remote|Local) host|Hostname|Remote daemon: .{1,40}on node|ip):? {1,9}"
    rf"{_HOST}\s{{0,300}}$"
)
LINES_BELOW = 24


def host_below(text: str) -> str | None:
    """The host that a line names for what was said up to :data:`LINES_BELOW` lines above it."""
    if "host" not in text[:40] and "daemon" not in text[:40] and "ip:" not in text[:40]:
        return None
    found = _HOST_BELOW.match(text[:_LONGEST])
    return found[1] if found else None


def _number(found: re.Match[str] | None) -> int | None:
    return next((int(one) for one in found.groups() if one), None) if found else None
