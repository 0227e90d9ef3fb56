"""Jobs whose settings are varied for real, and which change of which is to be predicted.

A family is a few configurations of one job: all are measured in turn, some are traced, and every
:class:`Question` asks for one's step from the trace of another. Their links are steady
(:mod:`benchmarks.lab.shaping`): what a call takes is to be what a link of that rate takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from benchmarks.lab.config import RunConfig

KIB = 1 << 10


@dataclass(frozen=True)
class Question:
    """What would the run ``traced`` take as ``target``? ``change`` is what differs.

    ``setting`` is one of 'bucket_cap_mb' (``value`` in MiB), 'link.bandwidth' (factor),
    'late_rank' (the rank), 'resharding' (0 = off), 'prefetch' and 'wrap_layers' (units).
    """

    traced: str
    target: str
    setting: str
    value: float


@dataclass(frozen=True)
class Family:
    """Configurations by name, and the questions between them."""

    name: str
    configs: dict[str, RunConfig]
    questions: tuple[Question, ...]

    @property
    def traced(self) -> set[str]:
        """The configurations that need a trace."""
        return {question.traced for question in self.questions}


def families() -> list[Family]:
    """Everything that is measured."""
    return [
        _buckets(
            "ddp-4x12",
            RunConfig(ranks=4, layers=12, layer_bytes=1024 * KIB, forward_ms=3.0, backward_ms=6.0),
            caps=(0.25, 0.5, 1.0, 3.0, 6.0, 25.0),
            traced=(1.0, 25.0),
            links=(1000.0, 2000.0),
            slower=500.0,
        ),
        _buckets(
            "ddp-3x6",
            RunConfig(ranks=3, layers=6, layer_bytes=2048 * KIB, forward_ms=7.0, backward_ms=14.0),
            caps=(0.5, 1.0, 3.0, 6.0, 25.0),
            traced=(1.0, 6.0),
            links=(1000.0, 2000.0),
        ),
        _buckets(
            "ddp-2x16",
            RunConfig(ranks=2, layers=16, layer_bytes=384 * KIB, forward_ms=2.0, backward_ms=4.0),
            caps=(0.25, 0.5, 1.0, 3.0, 25.0),
            traced=(0.25, 3.0),
            links=(500.0, 1000.0),
        ),
        # Recorded after the model and its intervals were settled: the figures to believe.
        _buckets(
            "held-out-3x10",
            RunConfig(ranks=3, layers=10, layer_bytes=640 * KIB, forward_ms=3.5, backward_ms=7.0),
            caps=(0.5, 2.0, 5.0, 25.0),
            traced=(0.5, 5.0),
            links=(800.0, 1600.0),
        ),
        _late("late-4x8", RunConfig(ranks=4, layers=8, layer_bytes=512 * KIB, bucket_cap_mb=1.0)),
        _late(
            "late-3x10",
            RunConfig(
                ranks=3, layers=10, layer_bytes=768 * KIB, forward_ms=4.0, backward_ms=8.0,
                bucket_cap_mb=3.0,
            ),
        ),
        _sharded(
            "fsdp2-4x6",
            RunConfig(
                strategy="fsdp2", ranks=4, layers=6, layer_bytes=768 * KIB, forward_ms=8.0,
                backward_ms=16.0,
            ),
        ),
        _sharded(
            "fsdp2-2x8",
            RunConfig(
                strategy="fsdp2", ranks=2, layers=8, layer_bytes=1024 * KIB, forward_ms=10.0,
                backward_ms=20.0,
            ),
        ),
        # Recorded after the sharded changes were settled.
        _sharded(
            "held-out-fsdp2-3x6",
            RunConfig(
                strategy="fsdp2", ranks=3, layers=6, layer_bytes=640 * KIB, forward_ms=9.0,
                backward_ms=18.0,
            ),
        ),
    ]  # fmt: skip


def _buckets(
    name: str,
    job: RunConfig,
    *,
    caps: tuple[float, ...],
    traced: tuple[float, ...],
    links: tuple[float, float],
    slower: float = 0.0,
) -> Family:
    """Bucket caps at two link speeds, from two traced caps each; and the links against another."""
    job = job.but(steady_links=True)
    configs = {
        _named(link, cap): job.but(link_mbit=link, bucket_cap_mb=cap)
        for link, cap in product(links, caps)
    }
    questions = [
        Question(_named(link, start), _named(link, cap), "bucket_cap_mb", cap)
        for link, start, cap in product(links, traced, caps)
        if cap != start
    ]
    low, high = links
    for cap in traced:
        questions.append(
            Question(_named(low, cap), _named(high, cap), "link.bandwidth", high / low)
        )
        questions.append(
            Question(_named(high, cap), _named(low, cap), "link.bandwidth", low / high)
        )
        if slower:
            configs[_named(slower, cap)] = job.but(link_mbit=slower, bucket_cap_mb=cap)
            questions.append(
                Question(_named(low, cap), _named(slower, cap), "link.bandwidth", slower / low)
            )
    return Family(name, configs, tuple(questions))


def _named(link: float, cap: float) -> str:
    return f"{link:g}mbit-cap{cap:g}"


def _late(name: str, job: RunConfig) -> Family:
    """A slow rank, by its compute and by its data loader, and the same job without it."""
    job = job.but(steady_links=True)
    configs: dict[str, RunConfig] = {}
    questions = []
    for link in (1000.0, 2000.0):
        healthy = job.but(link_mbit=link)
        late = {
            "compute": healthy.but(time_scale={1: 1.4}),
            "loader": healthy.but(loader_ms={0: 20.0}),
        }
        configs[f"{link:g}mbit"] = healthy
        for cause, rank in (("compute", 1), ("loader", 0)):
            configs[f"{link:g}mbit-{cause}"] = late[cause]
            questions.append(Question(f"{link:g}mbit-{cause}", f"{link:g}mbit", "late_rank", rank))
    return Family(name, configs, tuple(questions))


def _sharded(name: str, job: RunConfig) -> Family:
    """FSDP2 without prefetch, with it, without resharding, and with two layers per unit."""
    job = job.but(steady_links=True)
    configs: dict[str, RunConfig] = {}
    questions = []
    for link in (1000.0, 2000.0):
        base = job.but(link_mbit=link, reshard=True)
        names = {kind: f"{link:g}mbit-{kind}" for kind in ("base", "late", "kept", "wide")}
        configs[names["base"]] = base
        configs[names["late"]] = base.but(prefetch=False)
        configs[names["kept"]] = base.but(reshard=False)
        configs[names["wide"]] = base.but(wrap_layers=2)
        questions += [
            Question(names["late"], names["base"], "prefetch", 1),
            Question(names["base"], names["kept"], "resharding", 0),
            Question(names["base"], names["wide"], "wrap_layers", 2),
        ]
    questions += [
        Question("1000mbit-base", "2000mbit-base", "link.bandwidth", 2.0),
        Question("2000mbit-base", "1000mbit-base", "link.bandwidth", 0.5),
    ]
    return Family(name, configs, tuple(questions))
