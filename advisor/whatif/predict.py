"""Predicted step times under a change, with intervals, from the programs of a traced run.

prediction = measured step + (replay of the changed step - replay of the unchanged step), so that
what the replay does not explain cancels. Nothing is fitted on the run that is predicted.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from advisor.errors import AdvisorError
from advisor.whatif.buckets import assemble, infer_cap_mb
from advisor.whatif.changes import (
    bucket_bytes,
    regrouped_ns,
    with_bucket_cap,
    with_service,
    without_lateness,
)
from advisor.whatif.cost import Curves, ServiceModel, fit_service
from advisor.whatif.program import Call, Program
from advisor.whatif.removed import with_half_the_bytes

# 90 % half-widths. Of a prediction's change, this share is uncertain: second-order effects (host
# overhead, cache, memory bandwidth, bursts that a link lets through) that no replay of a trace
# holds. And this share of the step: the profiler's own cost in the traced steps (0 to 5 % in the
# lab, once 9) and what differs from run to run. Set so that the intervals of the lab's
# predictions hold at least 85 % of the measured steps (benchmarks/lab/predictions.json), and that
# of a recording with real arithmetic on a busy machine (tests/whatif/test_extract.py) holds too.
_CHANGE_UNCERTAINTY = 0.25
_STEP_UNCERTAINTY = 0.045
# Of a gain, measured step less predicted step, what the profiler adds to both is gone: this share
# of the step is left. With it the gains of the lab's predictions hold 93 % of the measured ones,
# and 99 % as far as those are known (their two rounds differ).
_GAIN_UNCERTAINTY = 0.02
_Z90 = 1.645


class Prediction(NamedTuple):
    """A predicted step, ns; ``low``/``high`` bound it with 90 % confidence.

    ``gain_low_ns``/``gain_high_ns`` bound ``gain_ns``, in which the profiler's cost cancels.
    ``inconclusive``: the step depends on how the calls' time parts into latency and bytes, and the
    trace does not tell.
    """

    step_ns: float
    low_ns: float
    high_ns: float
    measured_ns: float
    replayed_ns: float
    gain_low_ns: float
    gain_high_ns: float
    extrapolates: bool = False
    inconclusive: bool = False

    @property
    def gain_ns(self) -> float:
        """Time per step that the change gives back (negative: it costs)."""
        return self.measured_ns - self.step_ns


Change = Callable[[Program], Program | None]


def predict(
    programs: Sequence[Program],
    change: Change,
    *,
    base: Change | None = None,
    extremes: Sequence[tuple[Change, Change | None]] = (),
    extrapolates: bool = False,
    identified: bool = True,
    comes_and_goes: bool = False,
    last_is_least: bool = False,
) -> Prediction | None:
    """Replay every step with and without the change; None when the change cannot be made.

    ``base`` builds the unchanged step where it should go through the same model as the changed
    one (so that the model's bias cancels); the default is the traced step itself. ``extremes``
    are the same (change, base) under the model's parameters one sigma to either side;
    ``identified`` is whether the trace says anything of those. What ``comes_and_goes`` between
    steps (a pause of one rank) counts with its mean over them, else the typical step's change.
    ``last_is_least``: the last step's change counts as the others' mean where it is less.
    None too where no step can be replayed, or none to within its own length.
    """
    deltas, replays, measured = [], [], []
    for program in programs:
        changed = change(program)
        unchanged = base(program) if base else program
        if changed is None or unchanged is None:
            return None
        try:
            before, after = unchanged.replayed_ns, changed.replayed_ns
            replay = program.replayed_ns - program.apart_ns
        except AdvisorError:
            continue
        if abs(replay - program.measured_ns) > program.measured_ns:
            continue  # it is another step that takes twice as long
        replays.append(replay)
        deltas.append(after - before)
        measured.append(program.measured_ns)
    if not deltas:
        return None
    if last_is_least and len(deltas) > 1:
        deltas[-1] = min(deltas[-1], float(np.mean(deltas[:-1])))
    replayed_of = float(np.median(measured))
    step = float(programs[0].run_step_ns or replayed_of)
    delta = float(np.mean(deltas) if comes_and_goes else np.median(deltas))
    others = [_median_delta(programs, *pair) for pair in extremes]
    of_model = max((abs(other - delta) for other in others if other is not None), default=0.0)
    spread = float(np.std(deltas)) if comes_and_goes else _sigma(deltas)
    noise = spread / np.sqrt(len(deltas))
    replayed = float(np.median(replays))
    replay_error = replayed - replayed_of
    of_change = _CHANGE_UNCERTAINTY * delta / _Z90
    sigma = math.hypot(noise, of_change, of_model, 0.25 * replay_error)
    half = math.hypot(_Z90 * sigma, _STEP_UNCERTAINTY * step)
    of_gain = math.hypot(_Z90 * sigma, _GAIN_UNCERTAINTY * step)
    predicted = max(step + delta, 0.0)
    return Prediction(
        step_ns=predicted,
        low_ns=max(predicted - half, 0.0),
        high_ns=predicted + half,
        measured_ns=step,
        replayed_ns=replayed,
        # What the replay takes beyond the recording may be all that the change takes away.
        gain_low_ns=step - predicted - max(of_gain, replay_error),
        gain_high_ns=min(step - predicted + of_gain, step),
        extrapolates=extrapolates,
        inconclusive=not identified and _Z90 * of_model > _STEP_UNCERTAINTY * step,
    )


def _median_delta(programs: Sequence[Program], change: Change, base: Change | None) -> float | None:
    deltas = []
    for program in programs:
        changed, unchanged = change(program), base(program) if base else program
        if changed is None or unchanged is None:
            return None
        try:
            deltas.append(changed.replayed_ns - unchanged.replayed_ns)
        except AdvisorError:
            continue
    return float(np.median(deltas)) if deltas else None


_OTHER_BYTES = 0.02  # what else a bucket may carry: padding, the map of used parameters


@dataclass(frozen=True)
class DataParallel:
    """What bucket predictions need: the service model and the present setting."""

    model: ServiceModel
    current_cap_mb: float | str | None
    gradient_bytes: list[int]
    _made: dict[tuple[object, ...], Program | None] = field(
        default_factory=dict, compare=False, repr=False
    )

    def with_cap(
        self, program: Program, cap_mb: float | None, service: ServiceModel
    ) -> Program | None:
        """:func:`with_bucket_cap`, once for the many settings that form the same buckets."""
        key = (program.step, _ends(tuple(program.gradient_bytes), cap_mb), service)
        if key not in self._made:
            if service == self.model:
                self._made[key] = with_bucket_cap(program, cap_mb, service)
            else:
                formed = self.with_cap(program, cap_mb, self.model)
                self._made[key] = formed and _with_model(formed, program, service)
        return self._made[key]


def _with_model(formed: Program, traced: Program, service: ServiceModel) -> Program:
    """Buckets formed of the traced ones, in the times of another model."""
    new = {key: int(call.bytes or 0) for key, call in formed.calls.items() if call.is_gradient}
    times = dict(zip(new, regrouped_ns(traced, [*new.values()], service), strict=True))
    return with_service(formed, lambda key, call: times.get(key, call.service_ns))


@lru_cache(64)
def _ends(gradient_bytes: tuple[int, ...], cap_mb: float | None) -> tuple[int, ...]:
    """The last gradient of each bucket."""
    return tuple(max(bucket) for bucket in assemble(gradient_bytes, cap_mb))


def data_parallel(
    programs: Sequence[Program], curves: Curves = lambda _: None
) -> DataParallel | None:
    """The gradient buckets of a DDP run; None when there are none or sizes are unknown."""
    for program in programs:
        sizes = program.gradient_bytes
        gradients = [row for row in program.calls.values() if row.is_gradient]
        sent = bucket_bytes(program) if gradients else []
        # In full or in halves (a compressing hook). Experts' gradients, say, are in no bucket.
        if not sizes or not any(_alike(sum(sizes), times * sum(sent)) for times in (1, 2)):
            continue
        first = gradients[0]
        model = fit_service(programs, first.op, len(first.ranks), curves(first))
        if model is None:
            return None
        return DataParallel(model, infer_cap_mb(sizes, sent), sizes)
    return None


def _alike(gradients: int, sent: int) -> bool:
    return abs(gradients - sent) <= _OTHER_BYTES * gradients


def predict_bucket_cap(
    programs: Sequence[Program], ddp: DataParallel, cap_mb: float | None, *, halved: bool = False
) -> Prediction | None:
    """The step with another ``bucket_cap_mb`` (None = torch's default of 1 MiB then 25 MiB).

    ``halved``: with a hook that sends the gradients in half of their bytes.
    """
    current = ddp.current_cap_mb
    model = ddp.model

    def pair(service: ServiceModel) -> tuple[Change, Change | None]:
        def changed(program: Program) -> Program | None:
            formed = ddp.with_cap(program, cap_mb, service)
            if formed is None or not halved:
                return formed
            gradients = [key for key, call in formed.calls.items() if call.is_gradient]
            return with_half_the_bytes(formed, dict.fromkeys(gradients, service))

        if isinstance(current, str):
            return changed, None
        return changed, lambda program: ddp.with_cap(program, current, service)

    change, base = pair(model)
    largest = min(sum(ddp.gradient_bytes), int((25.0 if cap_mb is None else cap_mb) * 1024 * 1024))
    found = predict(
        programs,
        change,
        base=base,
        extremes=[pair(model.with_latency(model.a_ns + s * model.a_sigma_ns)) for s in (-1, 1)],
        extrapolates=model.extrapolates(largest),
        identified=model.is_known,
    )
    change, base = pair(model.by_call())
    by_call = predict(programs, change, base=base)
    return found and by_call and _spanning(found, by_call.step_ns)


def predict_without_lateness(
    programs: Sequence[Program], ranks: Sequence[int]
) -> Prediction | None:
    """The step if these ranks took no longer than the others between common calls.

    What a rank does before a step's first work is of the device's step before: the last one ends
    without (see the view ``closed_step``), so that it tells the least of what it would give.
    """
    alone = len(programs) == 1
    return predict(
        programs,
        lambda p: without_lateness(p, ranks, alone=alone) if {*ranks} <= p.items.keys() else None,
        comes_and_goes=True,
        last_is_least=len(programs) > 2 and programs[0].timeline == "device",
    )


def predict_restored(
    programs: Sequence[Program],
    service: Callable[[int, Call], float],
    *,
    comes_and_goes: bool = False,
) -> Prediction | None:
    """The step if calls took ``service`` ns, by which end of what is known of the slow place
    (0, 1, 2: the least of its excess, the middle, the most) and call.

    The interval holds what the ends leave open and what the replay does.
    """

    def without(end: int) -> Change:
        return lambda program: with_service(program, lambda _, call: service(end, call))

    least, found, most = (
        predict(programs, without(end), comes_and_goes=comes_and_goes) for end in range(3)
    )
    if least is None or found is None or most is None:
        return None
    return _spanning(found, least.step_ns, most.step_ns)


def _spanning(found: Prediction, *steps_ns: float) -> Prediction:
    """``found`` with an interval that also holds what the step would be otherwise explained."""
    fewer = max(*steps_ns, found.step_ns) - found.step_ns
    more = found.step_ns - min(*steps_ns, found.step_ns)
    return found._replace(
        low_ns=max(found.step_ns - float(np.hypot(found.step_ns - found.low_ns, more)), 0.0),
        high_ns=found.step_ns + float(np.hypot(found.high_ns - found.step_ns, fewer)),
        gain_low_ns=found.gain_ns - float(np.hypot(found.gain_ns - found.gain_low_ns, fewer)),
        gain_high_ns=found.gain_ns + float(np.hypot(found.gain_high_ns - found.gain_ns, more)),
    )


def service_models(
    programs: Sequence[Program], curves: Curves = lambda _: None
) -> dict[tuple[str, int], ServiceModel]:
    """A service model for every (operation, group size) of which two sizes were seen."""
    every = [call for program in programs for call in program.calls.values()]
    kinds = {(call.op, len(call.ranks)): call for call in reversed(every)}
    fits = {kind: fit_service(programs, *kind, curves(call)) for kind, call in kinds.items()}
    return {kind: fit for kind, fit in fits.items() if fit is not None}


def _sigma(values: Sequence[float]) -> float:
    """Standard deviation from the median absolute deviation (1.4826 for a normal)."""
    array = np.asarray(values, dtype=float)
    return float(1.4826 * np.median(np.abs(array - np.median(array))))
