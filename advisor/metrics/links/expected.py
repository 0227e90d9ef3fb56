"""What a call should take: by benchmarks of the same links, by the data sheet of its devices."""

from __future__ import annotations

import math
from collections import Counter

from advisor.config.hardware import find_device
from advisor.metrics.links.cost import Inputs
from advisor.metrics.links.durations import Kind
from advisor.metrics.links.locations import Members
from advisor.metrics.links.slow_location import Expected
from advisor.vocabulary.bandwidth import bus_factor

NVLINK_EFFICIENCY, _SHEET_ERROR = 0.75, 0.25
"""Of a data sheet's NVLink rate NCCL's search counts 80 to 82 % (src/graph/topo.h: 20.6 GB/s of
the 25 of an NVLink 4 port), and large all-reduces of nccl-tests reach most of that; in a job, where
compute runs beside them, less."""
_INSIDE_HOSTS = 1


def expected_by(data: Inputs) -> Expected | None:
    """What a kind of call takes over healthy links, where anything says it."""
    names = Counter(data.devices.values())
    device = find_device(names.most_common(1)[0][0]) if len(names) == 1 else None
    rate = device.link_gbps if device is not None else None

    def expected(kind: Kind, members: Members) -> tuple[float, float] | None:
        factor = bus_factor(kind.op, kind.ranks)
        if rate is None or kind.hosts != _INSIDE_HOSTS or factor is None or members.message:
            return None
        return math.log(kind.bytes * factor / (rate * NVLINK_EFFICIENCY)), _SHEET_ERROR

    return expected if rate is not None else None
