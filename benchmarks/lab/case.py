"""A case: the same job without and with one fault, and what is true about the fault."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.lab import config as run_config
from benchmarks.lab.config import RunConfig

CASE_FILE = "case.json"
TRUTH_FILE = "truth.json"
TRACES = "traces"


@dataclass(frozen=True)
class Place:
    """Where the fault is, as far as its kind has a place; all that is given must be found.

    ``ranks``: the ranks at fault. ``hosts``: indices of hosts at fault. ``direction``: ``send`` or
    ``receive`` when only one side of the host's link is slow. ``group``: description or strategy
    part of the process group, e.g. ``tp``.
    """

    ranks: tuple[int, ...] = ()
    hosts: tuple[int, ...] = ()
    direction: str = ""
    group: str = ""


@dataclass(frozen=True)
class Edit:
    """A change made to the recorded traces: what a user's recording may suffer from."""

    kind: str
    """'shift-clock', 'drop-rank' or 'truncate'."""
    rank: int
    amount: float = 0.0
    """Milliseconds of shift, or share of the file that is kept."""


@dataclass(frozen=True)
class Case:
    """One fault case, or a control when ``faulty`` equals ``healthy`` or the kind says so.

    ``strength`` is a short text for the table. ``noise`` marks controls that differ from
    ``healthy`` only by something that is not a fault of the job.
    """

    id: str
    kind: str
    strength: str
    seed: int
    healthy: RunConfig
    faulty: RunConfig
    place: Place = field(default_factory=Place)
    cause: str = ""
    """Kind of the fault to be found, where it is not ``kind`` (an edited recording of another)."""
    base: str = ""
    """Id of the recording that ``edit`` is applied to."""
    edit: Edit | None = None
    is_control: bool = False
    quick: bool = False

    def write(self, folder: Path) -> None:
        """Keep the case beside its recording."""
        record = {
            "id": self.id,
            "kind": self.kind,
            "strength": self.strength,
            "seed": self.seed,
            "cause": self.cause,
            "base": self.base,
            "is_control": self.is_control,
            "quick": self.quick,
            "place": asdict(self.place),
            "edit": asdict(self.edit) if self.edit else None,
            "healthy": json.loads(self.healthy.to_json()),
            "faulty": json.loads(self.faulty.to_json()),
        }
        (folder / CASE_FILE).write_text(json.dumps(record, indent=1) + "\n")


def read(folder: Path) -> Case:
    """The inverse of :meth:`Case.write`."""
    record = json.loads((folder / CASE_FILE).read_text())
    place = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in record.pop("place").items()
    }
    edit = record.pop("edit")
    configs = {
        name: run_config.from_json(json.dumps(record.pop(name))) for name in ("healthy", "faulty")
    }
    return Case(**record, **configs, place=Place(**place), edit=Edit(**edit) if edit else None)


@dataclass(frozen=True)
class Truth:
    """Measured without the profiler: medians of the phases, ns per step.

    ``gain_ns`` is the median faulty step less the median healthy one; ``noise_ns`` the largest
    difference between two phases of the same kind. ``recorded_step_ns`` is the step of the traces.
    """

    faulty_step_ns: tuple[int, ...]
    healthy_step_ns: tuple[int, ...]
    recorded_step_ns: int | None = None

    @property
    def disturbance(self) -> float:
        """Largest relative difference between steps that should take the same time."""
        faulty = self.faulty_step_ns
        if self.recorded_step_ns:
            faulty = (*faulty, self.recorded_step_ns)
        return max(max(p) / min(p) - 1 for p in (faulty, self.healthy_step_ns))

    @property
    def gain_ns(self) -> int:
        return _middle(self.faulty_step_ns) - _middle(self.healthy_step_ns)

    @property
    def slowdown(self) -> float:
        """Gain as a share of the healthy step."""
        return self.gain_ns / _middle(self.healthy_step_ns)

    @property
    def noise_ns(self) -> int:
        spreads = [max(p) - min(p) for p in (self.faulty_step_ns, self.healthy_step_ns)]
        return max(spreads)

    def write(self, folder: Path) -> None:
        """Keep the truth beside the recording."""
        record = {**asdict(self), "gain_ns": self.gain_ns, "noise_ns": self.noise_ns}
        (folder / TRUTH_FILE).write_text(json.dumps(record, indent=1) + "\n")


def read_truth(folder: Path) -> Truth:
    """The inverse of :meth:`Truth.write`."""
    record = json.loads((folder / TRUTH_FILE).read_text())
    return Truth(
        tuple(record["faulty_step_ns"]),
        tuple(record["healthy_step_ns"]),
        record.get("recorded_step_ns"),
    )


def _middle(values: tuple[int, ...]) -> int:
    return round(sum(values) / len(values))
