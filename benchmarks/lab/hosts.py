"""Hosts of the lab: network namespaces joined by one bridge, their links shaped with ``tc``.

A host is a network namespace with one interface ``eth0`` on a bridge that all hosts share. The
rate of ``eth0``'s sending side is a token bucket inside the namespace, the receiving side one on
the bridge's port (:mod:`benchmarks.lab.shaping`). Added latency and loss come from ``netem`` where
the kernel has it, else from :mod:`benchmarks.lab.relay`, a user-space wire between two TAP devices.

Everything made here carries one prefix (``advlab<pid>``), so that :func:`clean` can remove what a
killed lab left behind; a living lab removes its own things at exit, on SIGTERM and on SIGINT.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType

from benchmarks.lab import relay, shaping

PREFIX = "advlab"
NETNS_DIR = Path("/run/netns")
CLONE_NEWNET = 0x40000000
CLONE_NEWUTS = 0x04000000
MAX_HOSTS = 8

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class LinkShape:
    """One host's connection. Rates in Mbit/s (0 = unshaped), added delay one way in ms.

    ``loss`` is the share of packets dropped that the host sends. ``steady``: no faster than its
    rate after a pause either.
    """

    send_mbit: float = 0.0
    receive_mbit: float = 0.0
    delay_ms: float = 0.0
    loss: float = 0.0
    steady: bool = False


def unavailable() -> str | None:
    """Why the lab cannot run here, or None."""
    if os.name != "posix" or not Path("/proc/self/ns/net").exists():
        return "needs Linux network namespaces"
    if os.geteuid() != 0:
        return "needs root (network namespaces and traffic shaping)"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"needs {tool} (package iproute2)"
    probe = subprocess.run(
        ["ip", "link", "add", f"{PREFIX}probe", "type", "bridge"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode != 0:
        return f"cannot make a bridge: {probe.stderr.strip()}"
    subprocess.run(["ip", "link", "del", f"{PREFIX}probe"], check=False)
    return None


class Network:
    """``hosts`` namespaces on one bridge; a context manager that removes them.

    Host ``i`` is namespace ``<prefix>-h<i>`` with address ``10.77.0.<i+1>`` on ``eth0``.
    """

    def __init__(self, hosts: int) -> None:
        if not 1 <= hosts <= MAX_HOSTS:
            raise ValueError(f"1 to {MAX_HOSTS} hosts, not {hosts}")
        self.prefix = f"{PREFIX}{os.getpid()}"
        self.hosts = hosts
        self._relays: dict[int, subprocess.Popen[bytes]] = {}
        self._shapes: dict[int, LinkShape] = {}
        self._previous_handlers: dict[int, object] = {}

    def namespace(self, host: int) -> str:
        """Name of a host's namespace; also its host name."""
        return f"{self.prefix}-h{host}"

    @staticmethod
    def address(host: int) -> str:
        """IPv4 address of a host."""
        return f"10.77.0.{host + 1}"

    def __enter__(self) -> Network:
        atexit.register(self.close)
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._previous_handlers[number] = signal.signal(number, self._on_signal)
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.close()
        raise SystemExit(128 + number)

    def _build(self) -> None:
        _run(["ip", "link", "add", self._bridge, "type", "bridge"])
        _run(["ip", "link", "set", self._bridge, "up"])
        for host in range(self.hosts):
            name, port = self.namespace(host), self._port(host)
            _run(["ip", "netns", "add", name])
            veth = ["peer", "name", "eth0", "netns", name]
            _run(["ip", "link", "add", port, "type", "veth", *veth])
            _run(["ip", "link", "set", port, "master", self._bridge, "up"])
            inside = ["ip", "-n", name]
            _run([*inside, "addr", "add", f"{self.address(host)}/24", "dev", "eth0"])
            _run([*inside, "link", "set", "eth0", "up"])
            _run([*inside, "link", "set", "lo", "up"])

    @property
    def _bridge(self) -> str:
        return f"{self.prefix}br"

    def _port(self, host: int) -> str:
        return f"{self.prefix}p{host}"

    def shape(self, host: int, link: LinkShape) -> None:
        """Shape one host's link; replaces what it had."""
        if self._shapes.get(host) == link:
            return
        inside = ["ip", "netns", "exec", self.namespace(host)]
        largest = shaping.LARGEST_OFFLOAD
        if link.steady and link.send_mbit:
            largest = shaping.steady_packet(link.send_mbit)
        _run([*inside, "ip", "link", "set", "eth0", "gso_max_size", str(largest)])
        _token_bucket(inside, "eth0", link.send_mbit, link.steady)
        _token_bucket([], self._port(host), link.receive_mbit, link.steady)
        self._delay(host, link)
        self._shapes[host] = link

    def _delay(self, host: int, link: LinkShape) -> None:
        process = self._relays.pop(host, None)
        if process is not None:
            relay.remove(process, self.prefix, host, self._bridge, self._port(host))
        if link.delay_ms or link.loss:
            self._relays[host] = relay.insert(
                self.prefix, host, self._bridge, self._port(host), link.delay_ms, link.loss
            )

    def close(self) -> None:
        """Remove everything this object made. Safe to call again."""
        for process in self._relays.values():
            process.kill()
            process.wait()
        self._relays.clear()
        _remove(self.prefix)
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous_handlers.clear()
        atexit.unregister(self.close)


def enter(namespace: str) -> None:
    """Move this process (single-threaded) into a namespace and take its name as host name."""
    descriptor = os.open(NETNS_DIR / namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(descriptor, CLONE_NEWNET), "setns")
    finally:
        os.close(descriptor)
    _check(_libc.unshare(CLONE_NEWUTS), "unshare")
    name = namespace.encode()
    _check(_libc.sethostname(name, len(name)), "sethostname")


def clean() -> list[str]:
    """Remove what labs of dead processes left behind; the names removed."""
    removed: list[str] = []
    for prefix in _leftover_prefixes():
        removed += _remove(prefix)
    return removed


def _leftover_prefixes() -> set[str]:
    namespaces = NETNS_DIR.iterdir() if NETNS_DIR.is_dir() else ()
    names = _interfaces() | {entry.name for entry in namespaces}
    found = {match for name in names if (match := _prefix_of(name))}
    return {prefix for prefix in found if not _alive(int(prefix.removeprefix(PREFIX)))}


def _prefix_of(name: str) -> str | None:
    match = re.match(rf"({PREFIX}\d+)(?:-h|br|p|t)", name)
    return match.group(1) if match else None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove(prefix: str) -> list[str]:
    removed = []
    if NETNS_DIR.is_dir():
        for entry in sorted(NETNS_DIR.iterdir()):
            if entry.name.startswith(f"{prefix}-h"):
                # Deleting the name is not enough while a process lives in it; its veth end is
                # deleted below through the port that is ours.
                subprocess.run(["ip", "netns", "del", entry.name], capture_output=True, check=False)
                removed.append(entry.name)
    for name in sorted(_interfaces()):
        if _prefix_of(name) == prefix:
            subprocess.run(["ip", "link", "del", name], capture_output=True, check=False)
            removed.append(name)
    return removed


def _interfaces() -> set[str]:
    return {entry.name for entry in Path("/sys/class/net").iterdir()}


def _token_bucket(inside: list[str], device: str, mbit: float, steady: bool) -> None:
    with contextlib.suppress(subprocess.CalledProcessError):
        _run([*inside, "tc", "qdisc", "del", "dev", device, "root"])
    if not mbit:
        return
    options = shaping.steady_bucket(mbit) if steady else shaping.bucket(mbit)
    _run([*inside, "tc", "qdisc", "add", "dev", device, "root", "tbf", *options])


def _check(code: int, what: str) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
