"""What ``tc`` is told for a link of a rate: a token bucket, or one that saves up almost nothing.

A plain bucket holds a whole offload packet (64 KiB) and what timers lose, and fills while the link
is idle: the first 80 kB after a pause pass at once, at 500 Mbit/s 1.1 ms earlier than over a link
of that rate. No real link does that, and calls that are far apart look cheaper than they are.

A steady one makes packets small (``PACKET_S`` of the rate), lets one pass at once and the rest at
``PEAK`` of the rate at most; the reserve of ``RESERVE_S`` only gives back what late timers lost,
so that long transfers keep the rate. One transfer after 20 ms of idling between two hosts at
500 Mbit/s (medians, on a busy machine), and how much earlier it ends than that rate says:

=======  =======  =============  =============
size     at rate  plain          steady
=======  =======  =============  =============
64 KiB   1.1 ms   0.8 to 0.9 ms  0.1 to 0.2 ms
256 KiB  4.4 ms   1.1 ms         0.2 to 0.3 ms
1 MiB    17.5 ms  1.1 ms         0.4 ms
4 MiB    70.2 ms  0.7 to 1.1 ms  0 to 0.4 ms
=======  =======  =============  =============
"""

from __future__ import annotations

LARGEST_OFFLOAD = 65_536
FRAME_BYTES = 1_514
PAYLOAD_BYTES = 1_448
"""Of a full Ethernet frame with TCP over IPv4."""

LEAST_BURST = 80_000
BURST_S = 0.0005
LEAST_QUEUE = 256_000
QUEUE_S = 0.02

PACKET_S = 0.00025
"""A packet's time. Below it the processor's work and what timers lose grow faster than it gains."""
RESERVE_S = 0.00025
PEAK = 1.05


def bucket(mbit: float) -> list[str]:
    """Options of ``tbf`` for a rate in Mbit/s.

    The bucket must hold one full offload packet, or tbf splits it in software; above that,
    ``BURST_S`` of the rate. The queue is ``QUEUE_S``, so that TCP fills the rate.
    """
    burst = max(LEAST_BURST, _bytes_in(BURST_S, mbit))
    return ["rate", f"{mbit:g}mbit", "burst", str(burst), *_queue(mbit)]


def steady_bucket(mbit: float) -> list[str]:
    """Options of ``tbf`` for hosts whose packets are at most :func:`steady_packet` long."""
    # On the wire a packet is its segments with a header each.
    on_wire = steady_packet(mbit) * FRAME_BYTES // PAYLOAD_BYTES + FRAME_BYTES
    burst = on_wire + _bytes_in(RESERVE_S, mbit)
    peak = ["peakrate", f"{PEAK * mbit:g}mbit", "mtu", str(on_wire)]
    return ["rate", f"{mbit:g}mbit", "burst", str(burst), *peak, *_queue(mbit)]


def steady_packet(mbit: float) -> int:
    """Bytes of the largest packet on a steady link: ``PACKET_S``, two frames at least."""
    return min(LARGEST_OFFLOAD, max(2 * FRAME_BYTES, _bytes_in(PACKET_S, mbit)))


def _queue(mbit: float) -> list[str]:
    return ["limit", str(max(LEAST_QUEUE, _bytes_in(QUEUE_S, mbit)))]


def _bytes_in(seconds: float, mbit: float) -> int:
    return int(mbit * 1e6 / 8 * seconds)
