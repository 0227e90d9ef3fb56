"""Which ranks share a host where no trace names one: launchers give ranks to hosts in blocks.

torchrun, SLURM and mpirun number ranks host by host and give each its own device, so that device
indices count 0..m-1 over and over: rank r is device r % m of host r // m. Only where exactly one
number of devices per host explains all ranks is it taken; a file that is cut may not have its own.
"""

from collections.abc import Mapping

from advisor.metrics.collectives.groups import RankInfo

_MOST_DEVICES = 72  # GB200 NVL72: the most devices that one NVLink domain has


def with_hosts(infos: Mapping[int, RankInfo]) -> dict[int, RankInfo]:
    """The ranks with a host ``node N`` (N as torchrun's node rank) where devices tell it."""
    per_host = _devices_per_host(infos)
    if per_host is None:
        return dict(infos)
    return {rank: info._replace(host=f"node {rank // per_host}") for rank, info in infos.items()}


def _devices_per_host(infos: Mapping[int, RankInfo]) -> int | None:
    """How many ranks each host has; None where a host is named or devices leave it open."""
    devices = {rank: info.device for rank, info in infos.items() if info.device is not None}
    # A file that was cut may have lost its device's events: the others tell where its rank is.
    unknown = any(info.device is None and info.complete for info in infos.values())
    if unknown or any(info.host for info in infos.values()):
        return None
    if len(set(devices.values())) < 2:
        return None  # each process sees only its own device, which is always number 0
    fitting = [
        count
        for count in range(max(devices.values()) + 1, _MOST_DEVICES + 1)
        if all(device == rank % count for rank, device in devices.items())
    ]
    ways = {tuple(rank // count for rank in sorted(infos)) for count in fitting}
    return fitting[0] if len(ways) == 1 else None
