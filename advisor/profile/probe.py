"""One rank of ``advisor probe``: times collectives by size, and single links in disjoint pairs.

Started by any torch launcher. A pair's message goes one way and a byte comes back, so that the
direction is known. With up to ``FULL_MATRIX`` ranks every pair is measured; beyond, and with more
hosts than that, three rounds of disjoint pairs give each three partners as sender and three as
receiver: what it takes to tell a slow sender, receiver and link apart. Rank 0 writes the result.
"""

import itertools
import os
import platform
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from advisor.profile.files import write_json
from advisor.profile.orphans import end_with_parent

FORMAT = "advisor-probe"
SCHEMA_VERSION = 1
FULL_MATRIX = 12
SIZES_BYTES = tuple(4**power for power in range(5, 13))  # 1 KiB ... 16 MiB
PAIR_BYTES = 4 * 1024 * 1024
WARM_UP, ITERATIONS = 2, 7
_BUDGET_S = 3.0  # per operation and size: slow links get fewer iterations, never fewer than three


def pair_rounds(hosts: Sequence[Hashable]) -> list[list[tuple[int, int]]]:
    """Rounds of disjoint (src, dst) pairs of ranks, by the host of each rank.

    Pairs of two hosts run apart from those inside one, and no host has more of them at once than
    another: ranks of a host share its network. Small worlds: every ordered pair once, each host in
    one pair at a time. Large ones: hosts as in ``_rounds``, all their ranks at once.
    """
    of_host: dict[Hashable, list[int]] = {}
    for rank, host in enumerate(hosts):
        of_host.setdefault(host, []).append(rank)
    groups = list(of_host.values())
    inside = [[[(g[a], g[b]) for a, b in pairs] for pairs in _rounds(len(g))] for g in groups]
    merged = [[pair for one in at_once for pair in one]
              for at_once in itertools.zip_longest(*inside, fillvalue=[])]  # fmt: skip
    for pairs in _rounds(len(groups)):
        if len(hosts) > FULL_MATRIX:
            sides = [(groups[a], groups[b]) for a, b in pairs]
            merged.append([pair for a, b in sides for pair in zip(a, b, strict=False)])
            continue
        links = [list(itertools.product(groups[a], groups[b])) for a, b in pairs]
        merged += [[pair for pair in at_once if pair] for at_once in itertools.zip_longest(*links)]
    return [pairs for pairs in merged if pairs]


def _rounds(count: int) -> list[list[tuple[int, int]]]:
    """Of ``count`` ranks of a host, or hosts.

    Few: every ordered pair once, by the round-robin tournament (circle method), both directions.
    Many: each to its neighbours at distances 1, 1 (odd pairs) and 2.
    """
    if count <= FULL_MATRIX:
        players = list(range(count + count % 2))
        rounds = []
        for _ in range(len(players) - 1):
            half = len(players) // 2
            pairs = list(zip(players[:half], reversed(players[half:]), strict=True))
            real = [(a, b) for a, b in pairs if a < count and b < count]
            rounds += [real, [(b, a) for a, b in real]]
            players = [players[0], players[-1], *players[1:-1]]
        return rounds
    even = [(r, (r + 1) % count) for r in range(0, count - 1, 2)]
    odd = [(r, (r + 1) % count) for r in range(1, count, 2)]
    two = [(r, r + 2) for r in range(count - 2) if r % 4 < 2]
    return [even, odd, two, *([(b, a) for a, b in chosen] for chosen in (even, odd, two))]


# By operation the call: of a whole buffer, a rank's part of one, the parts of all, and their like.
_CALLS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], Any]] = {
    "all_reduce": lambda whole, _part, _parts, _like: dist.all_reduce(whole),
    "all_gather": lambda _, part, parts, _like: dist.all_gather_into_tensor(parts, part),
    "reduce_scatter": lambda _, part, parts, _like: dist.reduce_scatter_tensor(part, parts),
    "all_to_all": lambda _, _part, parts, like: dist.all_to_all_single(like, parts),
    "broadcast": lambda whole, _part, _parts, _like: dist.broadcast(whole, 0),
}


def _prepared(op: str, size: int, device: torch.device, world_size: int) -> Callable[[], Any]:
    """A call that runs ``op`` once on ``size`` bytes, as nccl-tests counts them."""
    whole, part = (
        torch.ones(max(of // 4, 1), dtype=torch.float32, device=device)
        for of in (size, size // world_size)
    )
    parts = torch.ones(part.numel() * world_size, device=device)
    return partial(_CALLS[op], whole, part, parts, torch.empty_like(parts))


def run(path: Path, device: torch.device) -> None:
    """Measure everything; rank 0 writes ``path``."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    hosts: list[Any] = [None] * world_size
    dist.all_gather_object(hosts, os.environ.get("ADVISOR_HOST") or platform.node())
    collectives = []
    for op in _CALLS:
        for size in SIZES_BYTES:
            times = _time(_prepared(op, size, device, world_size), device)
            collectives.append({"op": op, "ranks": world_size, "bytes": size, "times_us": times})
    pairs = list(_pairs(rank, device, hosts))
    gathered: list[Any] = [None] * world_size
    dist.all_gather_object(gathered, pairs)
    if rank == 0:
        document = {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "backend": dist.get_backend(),
            "device": device.type,
            "world_size": world_size,
            "hosts": hosts,
            "collectives": collectives,
            "pairs": [pair for of_rank in gathered for pair in of_rank],
        }
        write_json(path, document)


def _time(call: Callable[[], Any], device: torch.device) -> list[float]:
    """Microseconds of each iteration: the slowest rank's, the same on every rank."""
    for _ in range(WARM_UP):
        call()
    samples: list[float] = []
    started = time.perf_counter()
    while len(samples) < ITERATIONS:
        dist.barrier()
        _wait(device)
        begin = time.perf_counter_ns()
        call()
        _wait(device)
        samples.append((time.perf_counter_ns() - begin) / 1e3)
        # All ranks must agree on whether to go on.
        spent = torch.tensor([samples[-1], time.perf_counter() - started], dtype=torch.float64)
        spent = spent.to(device)
        dist.all_reduce(spent, op=dist.ReduceOp.MAX)
        samples[-1] = float(spent[0])
        if len(samples) >= 3 and float(spent[1]) > _BUDGET_S:
            break
    return [round(sample, 2) for sample in samples]


def _pairs(rank: int, device: torch.device, hosts: Sequence[str]) -> Iterator[dict[str, Any]]:
    data = torch.ones(PAIR_BYTES // 4, dtype=torch.float32, device=device)
    small = torch.ones(1, dtype=torch.float32, device=device)
    for pairs in pair_rounds(hosts):
        dist.barrier()
        mine = next((pair for pair in pairs if rank in pair), None)
        if mine is None:
            continue
        src, dst = mine
        for payload in (small, data):
            times = []
            for _ in range(WARM_UP + ITERATIONS):
                begin = time.perf_counter_ns()
                if rank == src:
                    dist.send(payload, dst)
                    dist.recv(small, dst)
                    _wait(device)
                else:
                    dist.recv(payload, src)
                    dist.send(small, src)
                    _wait(device)
                times.append((time.perf_counter_ns() - begin) / 1e3)
            if rank == src:
                # The median: one retransmission must not make a link slow.
                value = round(median(times[WARM_UP:]), 2)
                size = payload.numel() * payload.element_size()
                yield {"src": src, "dst": dst, "bytes": size, "round_trip_us": value}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """``python -m advisor.profile.probe OUT.json`` under a torch launcher."""
    path = Path(sys.argv[1])
    local = int(os.environ.get("LOCAL_RANK", "0"))
    on_gpu = torch.cuda.is_available() and local < torch.cuda.device_count()
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        run(path, device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    end_with_parent()
    main()
