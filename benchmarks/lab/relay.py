"""A wire with added latency and loss, in user space, for kernels without netem.

Two TAP devices stand where one bridge port was: what one gets is written to the other after the
delay, or dropped. ``python -m benchmarks.lab.relay`` is the process that does it; it holds the
devices, so they vanish with it. Offload stays on (virtio headers are passed through), so that a
packet is up to 64 KiB and an interpreter keeps up with a few Gbit/s.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import time
from pathlib import Path

TUNSETIFF = 0x400454CA
TUNSETOFFLOAD = 0x400454D0
IFF_TAP = 0x0002
IFF_NO_PI = 0x1000
IFF_VNET_HDR = 0x4000
# TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6: the peer may hand over unsegmented packets.
OFFLOADS = 0x01 | 0x02 | 0x04
LARGEST_FRAME = 70_000
FRAMES_PER_WAKE = 64
TX_QUEUE_FRAMES = 5_000
START_LIMIT_S = 10.0


def insert(
    prefix: str, host: int, bridge: str, port: str, delay_ms: float, loss: float
) -> subprocess.Popen[bytes]:
    """Put a relay between ``port`` (off its bridge) and ``bridge``; the running process.

    ``port`` and one TAP get a bridge of their own; the other TAP joins the hosts' bridge.
    """
    near, far, own = f"{prefix}t{host}a", f"{prefix}t{host}b", f"{prefix}t{host}"
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.lab.relay", near, far, str(delay_ms), str(loss)],
        cwd=Path(__file__).resolve().parents[2],
    )
    deadline = time.monotonic() + START_LIMIT_S
    while not all(Path(f"/sys/class/net/{name}").exists() for name in (near, far)):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise RuntimeError("the relay did not start: is /dev/net/tun there?")
        time.sleep(0.02)
    for command in (
        ["ip", "link", "add", own, "type", "bridge"],
        ["ip", "link", "set", own, "up"],
        ["ip", "link", "set", port, "master", own],
        ["ip", "link", "set", near, "txqueuelen", str(TX_QUEUE_FRAMES), "master", own, "up"],
        ["ip", "link", "set", far, "txqueuelen", str(TX_QUEUE_FRAMES), "master", bridge, "up"],
    ):
        subprocess.run(command, check=True, capture_output=True)
    return process


def remove(
    process: subprocess.Popen[bytes], prefix: str, host: int, bridge: str, port: str
) -> None:
    """Take the relay out and put the port back on the hosts' bridge."""
    process.kill()
    process.wait()
    subprocess.run(["ip", "link", "del", f"{prefix}t{host}"], check=True, capture_output=True)
    subprocess.run(["ip", "link", "set", port, "master", bridge], check=True, capture_output=True)


def open_tap(name: str) -> int:
    """Make a TAP device that lives as long as the descriptor."""
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI | IFF_VNET_HDR)
    fcntl.ioctl(tap, TUNSETIFF, request)
    fcntl.ioctl(tap, TUNSETOFFLOAD, OFFLOADS)
    return tap


def relay(near: int, far: int, delay_ns: int, loss: float) -> None:
    """Pass frames both ways for ever: ``delay_ns`` later each, lost on the way out at ``loss``."""
    waiting: collections.deque[tuple[int, int, bytes]] = collections.deque()
    chance = random.Random(0)
    other = {near: far, far: near}
    poll = select.poll()
    for tap in other:
        poll.register(tap, select.POLLIN)
    while True:
        wait_ms: float | None = None
        if waiting:
            left_ns = waiting[0][0] - time.monotonic_ns()
            # poll() counts whole milliseconds: the last one is slept by spinning through it.
            wait_ms = max(0.0, left_ns // 1_000_000)
        for tap, _ in poll.poll(wait_ms):
            for _ in range(FRAMES_PER_WAKE):
                try:
                    frame = os.read(tap, LARGEST_FRAME)
                except BlockingIOError:
                    break
                if not (loss and tap == near and chance.random() < loss):
                    waiting.append((time.monotonic_ns() + delay_ns, other[tap], frame))
        now = time.monotonic_ns()
        while waiting and waiting[0][0] <= now:
            _, tap, frame = waiting.popleft()
            try:
                os.write(tap, frame)
            except OSError:
                continue  # the device's queue is full or it is going down: a lost frame


def main() -> None:
    """``relay NEAR FAR DELAY_MS LOSS``: make both devices and pass frames until killed."""
    near, far, delay_ms, loss = sys.argv[1:]
    with contextlib.suppress(PermissionError):
        # A wire does not wait for a processor: ahead of the ranks, which are real-time too.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))
    relay(open_tap(near), open_tap(far), int(float(delay_ms) * 1e6), float(loss))


if __name__ == "__main__":
    main()
