"""Healthy jobs that the cases start from: one per strategy, varied by a seeded generator.

Sizes keep two cores under their limit: small parameters over slow links give the same shares as
large ones over fast links, at a fraction of the copying.
"""

from __future__ import annotations

import random

from benchmarks.lab.config import RunConfig

KIB = 1 << 10


def healthy(strategy: str, chance: random.Random, ranks: int | None = None) -> RunConfig:
    """A job whose communication is mostly hidden, or short where the backend cannot hide it."""
    return _MAKERS[strategy](strategy, chance, ranks)


def _per_host(ranks: int, chance: random.Random) -> int:
    """One or two ranks on a host; two from six ranks on, to keep the hosts few."""
    if ranks >= 6:
        return 2
    return 1 if ranks % 2 or ranks == 2 else chance.choice((1, 1, 2))


def _data_parallel(strategy: str, chance: random.Random, ranks: int | None) -> RunConfig:
    ranks = ranks or chance.choice((2, 3, 4, 4, 4, 6, 8))
    forward_ms = chance.choice((2.5, 3.0, 4.0))
    layer_bytes = chance.choice((96, 128, 192)) * KIB
    if strategy == "zero1":
        layer_bytes //= 2  # the updated parameters are broadcast with nothing to hide behind
    layers = chance.choice((8, 10, 12))
    return RunConfig(
        strategy=strategy,
        ranks=ranks,
        ranks_per_host=_per_host(ranks, chance),
        layers=layers,
        layer_bytes=layer_bytes,
        forward_ms=forward_ms,
        backward_ms=2 * forward_ms,
        link_mbit=chance.choice((1500.0, 2000.0, 2500.0)),
        bucket_cap_mb=layer_bytes / (1 << 20),
    )


def _sharded(strategy: str, chance: random.Random, ranks: int | None) -> RunConfig:
    ranks = ranks or chance.choice((2, 4, 4, 6) if strategy != "hsdp" else (4, 4, 8))
    # Long layers: on a CPU every reduce-scatter is waited for, so that each costs about 1 ms.
    forward_ms = chance.choice((13.0, 16.0))
    return RunConfig(
        strategy=strategy,
        ranks=ranks,
        ranks_per_host=2 if strategy == "hsdp" else _per_host(ranks, chance),
        layers=chance.choice((4, 5)),
        layer_bytes=chance.choice((48, 64)) * KIB,
        forward_ms=forward_ms,
        backward_ms=2 * forward_ms,
        link_mbit=chance.choice((1500.0, 2000.0)),
    )


def _tensor(strategy: str, chance: random.Random, ranks: int | None) -> RunConfig:
    forward_ms = chance.choice((8.0, 10.0))
    return RunConfig(
        strategy=strategy,
        ranks=ranks or chance.choice((4, 4, 8)),
        ranks_per_host=2,
        layers=chance.choice((4, 5)),
        layer_bytes=64 * KIB,
        forward_ms=forward_ms,
        backward_ms=2 * forward_ms,
        activation_elements=chance.choice((8, 16)) * KIB,
        link_mbit=chance.choice((1000.0, 2000.0)),
        bucket_cap_mb=0.125,
    )


def _pipeline(strategy: str, chance: random.Random, ranks: int | None) -> RunConfig:
    ranks = ranks or chance.choice((2, 2, 3, 4))
    forward_ms = chance.choice((1.5, 2.0))
    return RunConfig(
        strategy=strategy,
        ranks=ranks,
        layers=2 * ranks,
        layer_bytes=64 * KIB,
        forward_ms=forward_ms,
        backward_ms=2 * forward_ms,
        micro_batches=16,
        activation_elements=4 * KIB,
        link_mbit=chance.choice((1000.0, 2000.0)),
    )


def _expert(strategy: str, chance: random.Random, ranks: int | None) -> RunConfig:
    forward_ms = chance.choice((8.0, 10.0))
    ranks = ranks or chance.choice((2, 4, 4))
    return RunConfig(
        strategy=strategy,
        ranks=ranks,
        ranks_per_host=_per_host(ranks, chance),
        layers=4,
        layer_bytes=64 * KIB,
        forward_ms=forward_ms,
        backward_ms=2 * forward_ms,
        activation_elements=chance.choice((8, 16)) * KIB,
        link_mbit=chance.choice((1000.0, 2000.0)),
        bucket_cap_mb=0.125,
    )


_MAKERS = {
    "ddp": _data_parallel,
    "zero1": _data_parallel,
    "fsdp2": _sharded,
    "fsdp2-zero2": _sharded,
    "hsdp": _sharded,
    "tp": _tensor,
    "pp": _pipeline,
    "pp-gpipe": _pipeline,
    "ep": _expert,
}
