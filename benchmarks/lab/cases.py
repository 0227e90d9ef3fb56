"""The set of cases of a seed: faults of every kind, edited recordings, and healthy controls."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace

from benchmarks.lab.case import Case, Edit
from benchmarks.lab.config import STRATEGIES, RunConfig
from benchmarks.lab.faults import KINDS
from benchmarks.lab.jobs import healthy

DEVELOPMENT_SEED = 1


def all_cases(seed: int) -> list[Case]:
    """Every fault case and control of a seed, in the order of recording (edited ones last)."""
    of_kinds = [_of_kind(kind, seed) for kind in KINDS]
    # Every kind's first, then every kind's second: a recording that is stopped is still balanced.
    faults = [case for row in itertools.zip_longest(*of_kinds) for case in row if case]
    controls = _controls(seed)
    return [*_interleaved(faults, controls), *_edited(faults, controls, seed)]


def quick_cases(seed: int) -> list[Case]:
    """A subset that records and scores in under five minutes."""
    wanted = (
        "slow-link-0", "slow-rank-0", "loader-stall-0", "small-buckets-0", "few-micro-batches-0",
        "healthy-0", "healthy-2", "compute-bound-0",
    )  # fmt: skip
    return [
        replace(case, quick=True)
        for case in all_cases(seed)
        if case.id.removeprefix(f"s{seed}-") in wanted
    ]


def _chance(*parts: object) -> random.Random:
    return random.Random(":".join(map(str, parts)))


def _of_kind(kind: str, seed: int) -> list[Case]:
    entry = KINDS[kind]
    cases = []
    for number in range(entry.count):
        # Another seed starts at another strategy, so that rare pairs are met as well.
        strategy = entry.strategies[(number + seed - 1) % len(entry.strategies)]
        fault = entry.maker(_chance(seed, kind, number), strategy)
        cases.append(
            Case(
                id=f"s{seed}-{kind}-{number}",
                kind=kind,
                strength=fault.strength,
                seed=seed,
                healthy=fault.healthy,
                faulty=fault.faulty,
                place=fault.place,
            )
        )
    return cases


def _control(kind: str, number: int, seed: int, job: RunConfig, strength: str = "") -> Case:
    return Case(
        id=f"s{seed}-{kind}-{number}", kind=kind, strength=strength, seed=seed,
        healthy=job, faulty=job, is_control=True,
    )  # fmt: skip


def _controls(seed: int) -> list[Case]:
    makers: list[tuple[str, int, Callable[[random.Random, int], tuple[RunConfig, str]]]] = [
        ("healthy", 18, _plain),
        ("other-link-speed", 6, _other_link_speed),
        ("noisy-neighbours", 4, _noisy_neighbours),
        ("compute-bound", 5, _compute_bound),
        ("hidden-communication", 5, _hidden_communication),
    ]
    controls = []
    for kind, count, maker in makers:
        for number in range(count):
            job, strength = maker(_chance(seed, kind, number), number)
            controls.append(_control(kind, number, seed, job, strength))
    return controls


def _plain(chance: random.Random, number: int) -> tuple[RunConfig, str]:
    return _small_bubble(healthy(STRATEGIES[number % len(STRATEGIES)], chance)), ""


def _small_bubble(job: RunConfig) -> RunConfig:
    """A pipeline of two stages and sixteen micro-batches idles 1/17 of its time: no fault."""
    return job.but(ranks=2, layers=4) if job.strategy.startswith("pp") else job


def _other_link_speed(chance: random.Random, number: int) -> tuple[RunConfig, str]:
    strategy = ("ddp", "fsdp2", "zero1")[number % 3]
    mbit = (0.0, 4000.0, 1000.0)[(number // 2) % 3]
    job = healthy(strategy, chance).but(link_mbit=mbit)
    if strategy == "fsdp2" and mbit:  # gathering twice over slow links is a fault of its own
        job = job.but(reshard=False)
    return job, f"{mbit:g} Mbit/s" if mbit else "unshaped"


def _noisy_neighbours(chance: random.Random, number: int) -> tuple[RunConfig, str]:
    job = healthy("ddp", chance, ranks=chance.choice((2, 4)))
    return job.but(burners=1 + number % 2), f"{1 + number % 2} spinning processes"


def _compute_bound(chance: random.Random, number: int) -> tuple[RunConfig, str]:
    strategy = ("ddp", "zero1", "fsdp2", "ddp", "hsdp")[number % 5]
    job = healthy(strategy, chance)
    long = job.but(
        layers=max(4, job.layers // 2), forward_ms=3 * job.forward_ms,
        backward_ms=3 * job.backward_ms, layer_bytes=job.layer_bytes // 2,
    )  # fmt: skip
    return long, "three times the compute"


def _hidden_communication(chance: random.Random, number: int) -> tuple[RunConfig, str]:
    """Links busy for half of the backward pass, all under compute but a small last bucket."""
    job = healthy("ddp", chance, ranks=chance.choice((2, 4)))
    job = job.but(layers=12, bucket_cap_mb=job.layer_bytes / (1 << 20), ranks_per_host=1)
    wire_bytes = 2 * (job.ranks - 1) / job.ranks * job.layers * job.layer_bytes
    backward_s = job.layers * job.backward_ms / 1e3
    mbit = wire_bytes * 8 / 1e6 / (0.5 * backward_s)
    return job.but(link_mbit=round(mbit)), "half of backward"


def _interleaved(faults: list[Case], controls: list[Case]) -> list[Case]:
    """Controls spread among the faults: both meet the machine in the same states."""
    every = max(1, len(faults) // max(1, len(controls)))
    mixed: list[Case] = []
    rest = list(controls)
    for number, case in enumerate(faults):
        mixed.append(case)
        if number % every == 0 and rest:
            mixed.append(rest.pop(0))
    return [*mixed, *rest]


def _edited(faults: list[Case], controls: list[Case], seed: int) -> list[Case]:
    """Recordings with a shifted clock, a missing rank, a file cut short: the cause stays."""
    cases: list[Case] = []
    kinds = ("slow-rank", "slow-link", "loader-stall", "small-buckets")
    chosen = [
        case
        for kind in kinds
        for case in faults
        if case.kind == kind and case.faulty.ranks >= 3
    ]  # fmt: skip
    healthy_ones = [case for case in controls if case.faulty.ranks >= 3]
    edits: list[tuple[str, Callable[[random.Random], float]]] = [
        ("shift-clock", lambda chance: chance.choice((-900.0, -20.0, 3.0, 250.0, 5000.0))),
        ("drop-rank", lambda _chance: 0.0),
        ("truncate", lambda chance: chance.choice((0.5, 0.7, 0.9))),
    ]
    for name, amount in edits:
        chance = _chance(seed, "edit", name)
        for base in [*chance.sample(chosen, 3), *chance.sample(healthy_ones, 2)]:
            culprits = base.place.ranks
            rank = chance.choice([r for r in range(base.faulty.ranks) if r not in culprits])
            edit = Edit(name, rank, amount(chance))
            cases.append(
                replace(
                    base,
                    id=f"{base.id}+{name}",
                    kind=name,
                    cause=base.cause or base.kind,
                    base=base.id,
                    edit=edit,
                    strength=f"rank {rank}, {edit.amount:g}",
                )
            )
    return cases
