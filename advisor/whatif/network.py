"""The step on links of another bandwidth: only what the bytes take on the wire changes.

A call's time is its latency, its bytes on the wire, and what else held it up: a CPU that both
ranks share (gloo over loopback), a copy, a peer that was descheduled. Bytes take what the fitted
cost of like calls says; whatever a call took beyond that is not the link's and stays.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.errors import AdvisorError
from advisor.vocabulary.bandwidth import bus_factor
from advisor.whatif.changes import with_service
from advisor.whatif.cost import ServiceModel
from advisor.whatif.predict import Change, Prediction, predict
from advisor.whatif.program import Call, Program

Models = Mapping[tuple[str, int], ServiceModel]
Factor = Callable[[Call, float], float]
Latency = Callable[[Call], float]
"""Of a call what a slow place adds to it whatever its size, ns."""


def predict_bandwidth(
    programs: Sequence[Program], models: Models, factor: float, added: Latency = lambda _: 0.0
) -> Prediction | None:
    """The step if the bytes of all calls moved ``factor`` times as fast as now.

    Latency stays: of a call the fitted one, or what ``added`` says where that is more.

    Where no cost could be fitted (calls of unknown size) the whole call is taken as bytes, which
    overstates the effect. None when no step can be replayed.
    """
    return _predict(programs, models, lambda _call, _ns_per_byte: factor, added)


def predict_link_rate(
    programs: Sequence[Program], models: Models, gbps: float, added: Latency = lambda _: 0.0
) -> Prediction | None:
    """The step if every rank sent its bytes at ``gbps`` GB/s (and received as much at once).

    A ring all-reduce of S bytes on n ranks sends 2 (n - 1) / n * S per rank, the other operations
    what METRICS' bus factor says. No step gets longer than by these bytes' time at that rate.
    Raises AdvisorError when the trace does not tell bandwidth from latency.
    """
    best = link_gbps(models)

    def factor(call: Call, ns_per_byte: float) -> float:
        on_wire = bus_factor(call.op, len(call.ranks))
        if on_wire is None or ns_per_byte <= 0:
            return gbps / best
        return gbps * ns_per_byte / on_wire

    return _predict(programs, models, factor, added)


def link_gbps(models: Models) -> float:
    """GB/s that a rank sends in the fastest kind of call, latency apart.

    Raises AdvisorError when no kind of call tells it.
    """
    rates = [
        on_wire / model.b_ns_per_byte
        for (op, ranks), model in models.items()
        if model.b_ns_per_byte > 0 and (on_wire := bus_factor(op, ranks))
    ]
    if not rates:
        sized = any(bus_factor(op, ranks) for op, ranks in models)
        raise AdvisorError(
            "the trace does not show the present bandwidth: "
            + (
                "its larger calls take no longer than its smaller ones"
                if sized
                else "the bytes of its collectives are not known"
            ),
            where="link.bandwidth",
            hint="latency is all that shows: a trace with larger calls tells it"
            if sized
            else "give it relative to now, e.g. link.bandwidth=x2",
        )
    return max(rates)


@dataclass(frozen=True)
class _Kinds:
    """The fitted costs, and how many times as long the calls of each channel take as fitted."""

    models: Models
    channels: Mapping[tuple[str, int, str], float]
    added: Latency

    def at(self, sigmas: float) -> "_Kinds":
        """The same with every latency moved by so many of its sigmas."""
        moved = {
            kind: model.with_latency(model.a_ns + sigmas * model.a_sigma_ns)
            for kind, model in self.models.items()
        }
        return _Kinds(moved, self.channels, self.added)

    def service_ns(self, call: Call, factor: Factor) -> float:
        """The call's time when its bytes move ``factor(call, present ns per byte)`` as fast."""
        model = self.models.get((call.op, len(call.ranks)))
        if model is None or call.bytes is None:
            wire = max(call.service_ns - self.added(call), 0.0)
            return call.service_ns - wire + wire / factor(call, 0.0)
        scale = self.channels.get((call.op, len(call.ranks), call.channel), 1.0)
        ns_per_byte = scale * model.b_ns_per_byte
        left = max(call.service_ns - max(scale * model.a_ns, self.added(call)), 0.0)
        wire = min(left, ns_per_byte * call.bytes)
        return call.service_ns - wire + wire / factor(call, ns_per_byte)


def _predict(
    programs: Sequence[Program], models: Models, factor: Factor, added: Latency
) -> Prediction | None:
    kinds = _Kinds(models, _channels(programs, models), added)

    def change(of: _Kinds) -> Change:
        return lambda program: with_service(program, lambda _, call: of.service_ns(call, factor))

    extremes = [(change(kinds.at(sigmas)), None) for sigmas in (-1.0, 1.0)]
    identified = all(model.is_known for model in models.values())
    return predict(programs, change(kinds), extremes=extremes, identified=identified)


def _channels(programs: Sequence[Program], models: Models) -> dict[tuple[str, int, str], float]:
    """Per operation, group size and channel: typical time / fitted time, weighted by bytes.

    Of kinds with several channels, as these may use different links; a lone channel is the fit.
    """
    seen: dict[tuple[str, int, str], list[tuple[float, int]]] = {}
    for program in programs:
        for call in program.calls.values():
            model = models.get((call.op, len(call.ranks)))
            if model is not None and call.bytes and model.service_ns(call.bytes) > 0:
                ratio = call.service_ns / model.service_ns(call.bytes)
                key = (call.op, len(call.ranks), call.channel)
                seen.setdefault(key, []).append((ratio, call.bytes))
    several = [key for key in seen if sum(other[:2] == key[:2] for other in seen) > 1]
    return {key: _weighted_median(seen[key]) for key in several}


def _weighted_median(pairs: list[tuple[float, int]]) -> float:
    ordered = sorted(pairs)
    reached = np.cumsum([weight for _, weight in ordered])
    return ordered[int(np.searchsorted(reached, reached[-1] / 2))][0]
