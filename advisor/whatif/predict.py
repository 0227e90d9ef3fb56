"""Predicted step times under a change, with intervals, from the programs of a traced run.

prediction = measured step + (replay of the changed step - replay of the unchanged step), so that
what the replay does not explain cancels. Nothing is fitted on the run that is predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.errors import AdvisorError
from advisor.whatif.buckets import infer_cap_mb
from advisor.whatif.changes import (
    bucket_bytes,
    gradient_bytes,
    with_bucket_cap,
    with_service,
    without_lateness,
)
from advisor.whatif.cost import ServiceModel, fit_service
from advisor.whatif.program import Call, Program
from advisor.whatif.simulate import simulate

# Of a prediction's change, at least this share is uncertain: second-order effects of a change
# (host overhead, cache, memory bandwidth) that no replay of a trace holds. Set from the lab's
# predictions (benchmarks/lab, section Predictions).
_CHANGE_UNCERTAINTY = 0.25
# And at least this share of the step (run to run).
_STEP_UNCERTAINTY = 0.015
_Z90 = 1.645


@dataclass(frozen=True)
class Prediction:
    """A predicted step, ns; ``low``/``high`` bound it with 90 % confidence."""

    step_ns: float
    low_ns: float
    high_ns: float
    measured_ns: float
    replayed_ns: float
    extrapolates: bool = False

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
    model_spread: float = 0.0,
    extrapolates: bool = False,
) -> Prediction | None:
    """Replay every step with and without the change; None when the change cannot be made.

    ``base`` builds the unchanged step where it should go through the same model as the changed
    one (so that the model's bias cancels); the default is the traced step itself.
    """
    deltas, replays, measured = [], [], []
    for program in programs:
        changed = change(program)
        unchanged = base(program) if base else program
        if changed is None or unchanged is None:
            return None
        try:
            before, after = simulate(unchanged).step_ns, simulate(changed).step_ns
            replays.append(simulate(program).step_ns)
        except AdvisorError:
            continue
        deltas.append(after - before)
        measured.append(program.measured_ns)
    if not deltas:
        return None
    step = float(np.median(measured))
    delta = float(np.median(deltas))
    noise = _sigma(deltas) / np.sqrt(len(deltas))
    replay_error = abs(float(np.median(replays)) - step)
    sigma = float(
        np.sqrt(
            noise**2
            + (_CHANGE_UNCERTAINTY * delta / _Z90) ** 2
            + (model_spread * delta) ** 2
            + (_STEP_UNCERTAINTY * step / _Z90) ** 2
            + (0.25 * replay_error) ** 2
        )
    )
    predicted = max(step + delta, 0.0)
    return Prediction(
        step_ns=predicted,
        low_ns=max(predicted - _Z90 * sigma, 0.0),
        high_ns=predicted + _Z90 * sigma,
        measured_ns=step,
        replayed_ns=float(np.median(replays)),
        extrapolates=extrapolates,
    )


@dataclass(frozen=True)
class DataParallel:
    """What bucket predictions need: the service model and the present setting."""

    model: ServiceModel
    current_cap_mb: float | str | None
    gradient_bytes: list[int]


def data_parallel(programs: Sequence[Program]) -> DataParallel | None:
    """The gradient buckets of a DDP run; None when there are none or sizes are unknown."""
    for program in programs:
        sizes = gradient_bytes(program)
        gradients = [row for row in program.calls.values() if row.is_gradient]
        if not sizes or not gradients:
            continue
        model = fit_service(programs, gradients[0].op, len(gradients[0].ranks))
        if model is None:
            return None
        return DataParallel(model, infer_cap_mb(sizes, bucket_bytes(program)), sizes)
    return None


def predict_bucket_cap(
    programs: Sequence[Program], ddp: DataParallel, cap_mb: float | None
) -> Prediction | None:
    """The step with another ``bucket_cap_mb`` (None = torch's default of 1 MiB then 25 MiB)."""
    current = ddp.current_cap_mb
    base: Change | None = None
    if not isinstance(current, str):
        present: float | None = current
        base = lambda p: with_bucket_cap(p, present, ddp.model)  # noqa: E731
    largest = min(sum(ddp.gradient_bytes), int((25.0 if cap_mb is None else cap_mb) * 1024 * 1024))
    return predict(
        programs,
        lambda p: with_bucket_cap(p, cap_mb, ddp.model),
        base=base,
        model_spread=ddp.model.spread,
        extrapolates=ddp.model.extrapolates(largest),
    )


def predict_without_lateness(programs: Sequence[Program], rank: int) -> Prediction | None:
    """The step if ``rank`` took no longer than its peers between common calls."""
    return predict(programs, lambda p: without_lateness(p, rank) if rank in p.items else None)


def predict_bandwidth(
    programs: Sequence[Program],
    models: dict[tuple[str, int], ServiceModel],
    factor: float,
    *,
    affects: Callable[[tuple[int, ...]], bool] = lambda _: True,
) -> Prediction | None:
    """The step if the bytes of the calls that ``affects`` names moved ``factor`` times as fast.

    The latency part of a call stays; it comes from ``models`` by (op, group size), and where no
    model could be fitted the whole call is taken as bandwidth, which overstates the effect.
    """

    def change(program: Program) -> Program:
        def service(_: int, call: Call) -> float:
            if not affects(call.ranks):
                return call.service_ns
            model = models.get((call.op, len(call.ranks)))
            latency = min(model.a_ns, call.service_ns) if model else 0.0
            return latency + (call.service_ns - latency) / factor

        return with_service(program, service)

    return predict(programs, change)


def service_models(programs: Sequence[Program]) -> dict[tuple[str, int], ServiceModel]:
    """A service model for every (operation, group size) of which two sizes were seen."""
    kinds = {(call.op, len(call.ranks)) for program in programs for call in program.calls.values()}
    fits = {kind: fit_service(programs, *kind) for kind in kinds}
    return {kind: fit for kind, fit in fits.items() if fit is not None}


def _sigma(values: Sequence[float]) -> float:
    """Standard deviation from the median absolute deviation (1.4826 for a normal)."""
    array = np.asarray(values, dtype=float)
    return float(1.4826 * np.median(np.abs(array - np.median(array))))
