"""NCCL's model held against measurements: what it leaves out, fitted, and kept as a file.

NCCL's estimate is a latency and a bandwidth. Measured calls take, beyond that, a floor per call
(launch, synchronisation) and more time at middle sizes, where pipelines are not yet full. So

    time = floor + latency factor x its latency + transfer x its transfer time
         + middle x (its transfer time)^0.4

with its transfer time at the best bandwidth it has for the call. All four are at least 0 and are
fitted by least squares of relative errors; across nodes each algorithm has its own latency factor.
Intervals are 90 % of what 60 resamplings of the rows give.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field
from ruamel.yaml import YAML

from advisor.config.atomic_files import write_atomic
from advisor.config.loader import FileModel, load_model
from advisor.errors import AdvisorError
from advisor.model.nccl.cost import Prediction

# How transfer time at middle sizes grows: between a constant and the bytes. Chosen on tables of
# 8xA100: 0.3 to 0.5 serve alike, 0.6 and more miss a fifth of the held-out rows.
MIDDLE_POWER = 0.4
LEAST_ROWS = 8
_RESAMPLINGS = 60


class Interval(FileModel, allow_inf_nan=False):
    """A fitted number and its 90 % interval."""

    value: float = Field(ge=0)
    low: float = Field(ge=0)
    high: float = Field(ge=0)


class Calibration(FileModel, allow_inf_nan=False):
    """What measurements on one machine say of NCCL's estimates; times in microseconds.

    ``spread`` is measured over calibrated time of the fitted rows, 5th and 95th percentile.
    """

    kind: Literal["nccl calibration"] = "nccl calibration"
    machine: str
    nodes: int = Field(ge=1)
    ranks: int = Field(ge=2)
    nccl: str
    sources: list[str]
    rows: int = Field(ge=1)
    least_bytes: int
    most_bytes: int
    floor_us: Interval
    transfer: Interval
    middle: Interval
    latency: dict[str, Interval] = Field(min_length=1)
    spread: tuple[float, float]
    within_a_quarter: float

    def check(self, machine: str, nodes: int) -> None:
        """Raise AdvisorError where it was measured on another kind of machine or network.

        How long a call takes before its first byte is of the network, its software and the host:
        of fits held against another kind 2 % of small calls came within a quarter.
        """
        if machine == self.machine and self.covers(nodes):
            return
        measured = f"{self.machine} ({self.nodes} node{'s' * (self.nodes > 1)})"
        raise AdvisorError(
            f"no calibration for {machine} ({nodes} node{'s' * (nodes > 1)}): this one was "
            f"measured on {measured}",
            hint="measure here: advisor calibrate TABLES --hardware NAME --nodes N; without "
            "--calibration times are NCCL's own estimates",
        )

    def covers(self, nodes: int) -> bool:
        """Whether calls over ``nodes`` go where the measured ones went: inside one or between."""
        return (nodes > 1) == (self.nodes > 1)

    def time_us(self, prediction: Prediction) -> tuple[float, float, float]:
        """Time of NCCL's choice, and between what it lies in nine of ten rows.

        A call smaller than all that were measured takes no longer than they, and no shorter than
        NCCL's own estimate: what of it is floor no row tells. Raises AdvisorError where NCCL has
        no choice.
        """
        features = _features(prediction)
        time = (
            self.latency_us(prediction)[0]
            + self.transfer.value * features.transfer_us
            + self.middle.value * features.transfer_us**MIDDLE_POWER
        )
        low, high = time * self.spread[0], time * self.spread[1]
        if not self.measures(prediction.bytes) and prediction.choice is not None:
            low = min(low, prediction.choice.time_us)
        return time, low, high

    def measures(self, size_bytes: int) -> bool:
        """Whether a call is no smaller than the smallest that was measured."""
        return size_bytes >= self.least_bytes

    def latency_us(self, prediction: Prediction) -> tuple[float, float, float]:
        """Of that time what no byte takes, the floor and the latency, with its 90 % interval."""
        features = _features(prediction)
        factor = self.latency.get(features.algorithm)
        if factor is None:  # an algorithm that was not measured: the median of those that were
            factors = sorted(self.latency.values(), key=lambda one: one.value)
            factor = factors[len(factors) // 2]
        value, low, high = (
            getattr(self.floor_us, end) + getattr(factor, end) * features.latency_us
            for end in ("value", "low", "high")
        )
        return value, low, high


@dataclass(frozen=True)
class Measured:
    """One measured call: its time in microseconds, and what NCCL's model says of it."""

    time_us: float
    prediction: Prediction


@dataclass(frozen=True)
class _Features:
    algorithm: str
    latency_us: float
    transfer_us: float


def load_calibration(path: Path) -> Calibration:
    """Read a file of ``advisor calibrate``. Raises AdvisorError naming file and line."""
    return load_model(path, Calibration)


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write a file that `load_calibration` reads. Raises OSError."""
    text = io.StringIO()
    text.write("# Written by advisor calibrate; read with --calibration.\n")
    YAML(typ="safe", pure=True).dump(calibration.model_dump(mode="json"), text)
    write_atomic(path, text.getvalue())


def fit(
    measured: Sequence[Measured], *, machine: str, sources: Sequence[str], nccl: str
) -> Calibration:
    """Fit the terms to measurements of one machine.

    Raises AdvisorError with fewer than eight rows, or sizes within a factor of 64.
    """
    sizes = [row.prediction.bytes for row in measured]
    if len(measured) < LEAST_ROWS or max(sizes) < 64 * max(min(sizes), 1):
        raise AdvisorError(
            f"{len(measured)} measured calls do not settle the model"
            + (f" (from {min(sizes):,} to {max(sizes):,} bytes)" if sizes else ""),
            hint="give a table of nccl-tests from 1 KB to 1 GB (-b 1K -e 1G -f 2)",
        )
    features = [_features(row.prediction) for row in measured]
    nodes = measured[0].prediction.nodes
    # Inside a node rows do not part one algorithm's latency from another's.
    names = sorted({f.algorithm for f in features}) if nodes > 1 else ["all"]
    design = np.array([_row(f, names) for f in features])
    times = np.array([row.time_us for row in measured])
    found = _least_squares(design, times)
    random = np.random.default_rng(0)
    picks = random.integers(0, len(times), (_RESAMPLINGS, len(times)))
    drawn = np.array([_least_squares(design[pick], times[pick]) for pick in picks])
    low, high = np.percentile(drawn, [5, 95], axis=0)
    interval = [
        Interval(value=round(float(v), 4), low=round(float(a), 4), high=round(float(b), 4))
        for v, a, b in zip(found, np.minimum(low, found), np.maximum(high, found), strict=True)
    ]
    ratio = times / (design @ found)
    least, most = np.percentile(ratio, [5, 95])
    latency = dict(zip(names, interval[3:], strict=True))
    if nodes == 1:
        latency = {f.algorithm: interval[3] for f in features}
    return Calibration(
        machine=machine,
        nodes=nodes,
        ranks=measured[0].prediction.ranks,
        nccl=nccl,
        sources=list(sources),
        rows=len(measured),
        least_bytes=min(sizes),
        most_bytes=max(sizes),
        floor_us=interval[0],
        transfer=interval[1],
        middle=interval[2],
        latency=latency,
        spread=(round(float(least), 3), round(float(most), 3)),
        within_a_quarter=round(float(np.mean((ratio > 0.8) & (ratio < 1.25))), 3),
    )


def _features(prediction: Prediction) -> _Features:
    choice = prediction.choice
    if choice is None:
        raise AdvisorError(f"NCCL has no algorithm for {prediction.op} here")
    row = prediction.row(choice.algo, choice.proto)
    best = max(r.bandwidth_gbps for r in prediction.rows if r.time_us is not None)
    transfer = prediction.bytes / (1000 * best) if best else 0.0
    return _Features(choice.algo, row.latency_us, transfer)


def _row(features: _Features, names: Sequence[str]) -> list[float]:
    own = (features.algorithm, "all")
    latencies = [features.latency_us if name in own else 0.0 for name in names]
    transfer = features.transfer_us
    return [1.0, transfer, transfer**MIDDLE_POWER, *latencies]


def _least_squares(design: Any, times: Any) -> Any:
    """Least squares of relative errors with no term below 0: the best of all subsets of terms."""
    scaled, ones = design / times[:, None], np.ones(len(times))
    count = design.shape[1]
    best, best_error = np.zeros(count), np.inf
    for size in range(1, count + 1):
        for subset in combinations(range(count), size):
            part = np.linalg.lstsq(scaled[:, subset], ones, rcond=None)[0]
            if (part < 0).any():
                continue
            error = float(((scaled[:, subset] @ part - ones) ** 2).sum())
            if error < best_error - 1e-12:
                best_error = error
                best = np.zeros(count)
                best[list(subset)] = part
    return best
