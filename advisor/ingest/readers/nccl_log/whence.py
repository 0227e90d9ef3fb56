"""Which host and rank a line without NCCL's prefix is of, as a launcher or the line itself says.

Such a line stands behind lines of any process, so the one that printed last says nothing of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HOST = r"([A-Za-z0-9](?:[\w.\-]{0,252}\w)?)"
_RANK = re.compile(r"\[rank(\d{1,7})\]:")
# What launchers put before a line: Ray's address, kubectl's pod, pdsh's host.
_BEFORE = (
    re.compile(r"\(.{0,80}\bip=([\w.\-:]{1,80})\)"),
    re.compile(rf"\[pod/{_HOST}/"),
    re.compile(r"(\d{1,3}(?:\.\d{1,3}){3}|[a-z][\w.\-]{0,62}\d):\s"),
)
# What a scheduler, MPI, the kernel or a benchmark writes about a host.
_IN_TEXT = (
    re.compile(rf"^srun: error: {_HOST}: tasks? "),
    re.compile(rf"\bfailed on node {_HOST}\b"),
    re.compile(rf"\b[Nn]ode failure on {_HOST}\b"),
    re.compile(rf"\bON {_HOST} CANCELLED AT "),
    re.compile(rf"\bon node {_HOST} exited on signal "),
    re.compile(rf"^[A-Z][a-z]{{2}} [ \d]\d [\d:]{{8}} {_HOST} kernel:"),
    re.compile(rf"^\d{{4}}-\d\d-\d\d[T ][\d:.]{{8,15}}\S{{0,6}} {_HOST} kernel:"),
    re.compile(rf"^{_HOST}: Test (?:NCCL|CUDA|HIP) failure "),
    re.compile(rf"^ssh: connect to host {_HOST} port "),
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
    return Whence(found[1] if found else None, int(rank[1]) if rank else None)
