"""How much of a call is latency where the trace does not tell: all its calls are of one make-up.

A run whose calls always ran in one and the same burst gives one number, the time of a typical call.
The latency assumed before any call is seen then leaves the rest to the bytes. Where that would be
a link slower than any that is used for training, it is likelier that the hops are slow: eight
processes that share two cores need a third of a millisecond for each. Latency and rate are then
each taken as known to a factor only, and what is likeliest of those that give the time seen is
told with how unsure it is. Every call pays its latency, so that it is no more than the quickest
call of that make-up took: what others took longer is other traffic, or a wait for a core, which
larger calls meet as well.
"""

from __future__ import annotations

import numpy as np

# Bytes per second that a rank's link has at least, as far as is assumed: 1 Gbit/s.
_LEAST_RATE = 1.25e8
# How far below that is still taken for the link's: what is shared among several calls and ranks.
_PLAUSIBLE = 0.4
# Standard deviations of the logarithms of a hop's latency (a factor of e) and of a link's rate
# below the least (a factor of three).
_HOP_FACTOR = 1.0
_RATE_FACTOR = float(np.log(3.0))


def is_plausible(bytes_ns: float, wire_bytes: float) -> bool:
    """Whether ``wire_bytes`` may have taken ``bytes_ns`` on some link."""
    return wire_bytes >= _PLAUSIBLE * _LEAST_RATE * bytes_ns / 1e9


def split(
    typical_ns: float, wire_bytes: float, latency_ns: float, quickest_ns: float
) -> tuple[float, float]:
    """The latency within a call of ``typical_ns``, ns, and its standard deviation, ns.

    ``wire_bytes`` is what each link carries for that call, ``latency_ns`` the latency assumed
    before any call is seen, ``quickest_ns`` what the quickest such call took.
    """
    share = np.linspace(0.0, min(1.0, quickest_ns / typical_ns), 1001)[1:-1]
    latency = np.log(share * typical_ns / latency_ns) / _HOP_FACTOR
    slower = np.log((1 - share) * typical_ns / 1e9 * _LEAST_RATE / wire_bytes)
    rate = np.maximum(slower, 0.0) / _RATE_FACTOR
    # Densities of logarithms, over the line on which both add up to what was seen.
    weight = np.exp(-(latency**2 + rate**2 - (latency**2 + rate**2).min()) / 2)
    weight /= share * (1 - share)
    weight /= weight.sum()
    mean = float((share * weight).sum())
    sigma = float(np.sqrt(((share - mean) ** 2 * weight).sum()))
    return mean * typical_ns, sigma * typical_ns
