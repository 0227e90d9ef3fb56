"""Starts a script's ranks as a cluster's launcher does: one process each, told by its environment.

    python -m benchmarks.scripts.launch --ranks 2 [--namespaces advlab7-h0,advlab7-h1] -- train.py

With namespaces every rank is a host of its own behind a shaped link; without them all share one.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from collections.abc import Sequence

from benchmarks.lab.hosts import Network, enter


def environment(rank: int, ranks: int, address: str, port: int, *, apart: bool) -> dict[str, str]:
    """What torchrun would tell a rank; ``apart``: each on a host of its own."""
    local = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": str(rank)}
    if not apart:
        local = {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks), "GROUP_RANK": "0"}
    return {
        **os.environ,
        **local,
        "RANK": str(rank),
        "NODE_RANK": local["GROUP_RANK"],
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "none",  # Lightning takes the environment for torchrun's by it
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "eth0" if apart else "lo",
    }


def launch(command: Sequence[str], ranks: int, namespaces: Sequence[str]) -> int:
    """Run ``command`` as ``ranks`` processes; the first status that is not 0, the others killed."""
    address, port = Network.address(0) if namespaces else "127.0.0.1", _free_port()
    children: dict[int, int] = {}
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            if namespaces:
                enter(namespaces[rank])
            told = environment(rank, ranks, address, port, apart=bool(namespaces))
            os.execvpe(sys.executable, [sys.executable, *command], told)
        children[child] = rank

    def end(number: int, frame: object) -> None:
        del frame
        for child in children:
            os.kill(child, number)

    signal.signal(signal.SIGTERM, end)
    failed = 0
    while children:
        child, status = os.wait()
        rank = children.pop(child)
        code = os.waitstatus_to_exitcode(status)
        if code and not failed:
            failed = code if code > 0 else 128 - code
            print(f"rank {rank} ended with {code}", file=sys.stderr)
            end(signal.SIGTERM, None)
    return failed


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def main() -> int:
    """As the header says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--namespaces", default="")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = [part for part in options.command if part != "--"]
    return launch(command, options.ranks, [n for n in options.namespaces.split(",") if n])


if __name__ == "__main__":
    sys.exit(main())
