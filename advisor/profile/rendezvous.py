"""Where the nodes of a job meet: the others wait for the first before they touch the shared folder.

The first node checks and clears the folder, then opens torch's store at the endpoint. A node that
came earlier and wrote there would look like an earlier recording, so it writes once the endpoint
answers; torch itself would instead retry, and end with a stack of C++ frames.
"""

import socket
import time
from dataclasses import dataclass

from advisor.errors import AdvisorError
from advisor.profile.commands import parse_endpoint
from advisor.profile.inject import Fault

_RETRY_S = 0.2
_ATTEMPT_S = 5.0


@dataclass(frozen=True)
class Nodes:
    """Which of how many machines this is, and where they meet (host:port) if more than one."""

    count: int = 1
    rank: int = 0
    endpoint: str = ""


ONE_NODE = Nodes()


@dataclass(frozen=True)
class How:
    """How ranks are launched, beside what their workload says.

    ``timeout_s`` is how long they may make no progress; ``threads`` is each rank's OMP_NUM_THREADS
    where that is not set (None: cores / ranks). With ``stop_above_ns_per_token`` the ranks end
    early, untraced, once their timed steps are clearly slower than that (profile.early_stop).
    ``memory_limit_bytes`` is what each rank may take.
    """

    nodes: Nodes = ONE_NODE
    faults: tuple[Fault, ...] = ()
    timeout_s: float = 120.0
    threads: int | None = None
    stop_above_ns_per_token: float | None = None
    memory_limit_bytes: int | None = None


class MeetingError(AdvisorError):
    """The nodes did not find each other."""


def await_first(nodes: Nodes, timeout_s: float) -> None:
    """Return once the first node answers at the endpoint. Raises MeetingError."""
    if nodes.rank == 0:
        return
    host, port = parse_endpoint(nodes.endpoint)
    deadline = time.monotonic() + timeout_s
    while True:
        left = max(_RETRY_S, deadline - time.monotonic())
        try:
            socket.create_connection((host.strip("[]"), int(port)), min(_ATTEMPT_S, left)).close()
        except OSError as error:
            if time.monotonic() + _RETRY_S >= deadline:
                raise apart(nodes, timeout_s, error) from error
            time.sleep(_RETRY_S)
        else:
            return


def apart(nodes: Nodes, timeout_s: float, error: Exception) -> MeetingError:
    """The error that names the endpoint and the timeout; ``error`` is the network's own."""
    why = str(error).strip().splitlines()
    others = (
        f"not all of the {nodes.count} nodes came to"
        if nodes.rank == 0
        else f"node {nodes.rank} did not find the first node at"
    )
    return MeetingError(
        f"{others} --rdzv-endpoint {nodes.endpoint} within --timeout {timeout_s:g} s"
        + (f" ({why[0][:200]})" if why else ""),
        hint="start every node with the same endpoint, a host and port of node 0 that all can "
        "reach, or give a longer --timeout",
    )
