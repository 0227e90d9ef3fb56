"""What a rule file may say: the pydantic model behind every ``rules/*.yaml``.

A rule is data: SQL over the derived tables finds the instances, Jinja texts word them, and the
examples inside the file are its test. Adding a rule touches one file.
"""

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from advisor.config.paths import shipped
from advisor.engine.fragments import Words
from advisor.findings import Confidence

Category = Literal[
    "communication", "overlap", "volume", "balance", "host", "fabric", "fit", "data", "user"
]


PAIRED_FLOOR = 0.005
"""The least share of a step that an A/B of practical length resolves."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class Param(_Strict):
    """A number or word that the SQL binds as ``$name``."""

    default: float | int | str | bool
    unit: str = Field(description="e.g. 'ns', 'share of the step', 'calls per step'")
    reason: str = Field(min_length=10, description="why this default")


class Need(_Strict):
    """Evidence without which the rule does not apply; exactly one kind per item.

    ``table`` (optionally with a ``where`` predicate) asks for at least one row, ``ranks`` for that
    many recorded ranks, ``steps`` for that many complete steps after the warm-up, ``timeline``
    for GPU ('device') or CPU-only ('host') recordings.
    """

    table: str | None = None
    where: str = ""
    ranks: int | None = None
    all_ranks: bool | None = None
    steps: int | None = None
    timeline: Literal["device", "host"] | None = None
    missing: str = Field(default="", description="what to say when it is absent")
    capture: str = Field(default="", description="key into rules/data/capture.yaml")
    settled_by: str = Field(
        default="",
        description="SQL condition on the views that shows the job itself to have nothing of it",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> "Need":
        kinds = (self.table, self.ranks, self.all_ranks, self.steps, self.timeline)
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("give exactly one of table, ranks, all_ranks, steps, timeline")
        if self.where and self.table is None:
            raise ValueError("'where' belongs to 'table'")
        return self


class Candidates(_Strict):
    """Rows of a table or view without which the SQL finds nothing: then it is not asked."""

    table: str
    where: str = Field(description="SQL condition that may bind parameters as $name")


class Savings(_Strict):
    """How the columns savings_ns, savings_low_ns and savings_high_ns of the SQL came about."""

    how: str
    assumes: str = ""
    confidence: Confidence
    in_calls: bool = Field(
        default=False,
        description="the gain is time in collective calls: where a rank of their group was not "
        "read, that may all be waiting for it, so that the gain is not sure and at most info",
    )
    sets: dict[str, str] = Field(
        default_factory=dict,
        description="Jinja by setting: the values whose replay is this gain, as users write them",
    )
    counted: bool = Field(
        default=False,
        description="the cause is a count or an order, not a time (what is sent more often than "
        "needed, or asked for in its own turn): where most of the group's ranks were read it is "
        "likely still, and a warning at most",
    )


class EvidenceQuery(_Strict):
    """A small table beside the finding. Its SQL may bind the finding's columns as ``$column``."""

    title: str
    sql: str
    note: str = ""


class Claim(_Strict):
    """Whose time a finding would save: a part of calls, the device's idling, compute or copies.

    What has no time per step claims the settings that would cause it, or a hang's groups.
    """

    part: Literal[
        "exposed", "transfer", "wait", "idle", "queued", "compute", "memory", "setting", "hang"
    ] = Field(
        description="of calls: not under compute, in all or without waiting, or waiting alone; "
        "idle: gaps of host_gap; memory: exposed copies of memory_copy; of rank_step: compute and "
        "queued (idle with the next kernel launched); setting: settings that are set; hang: "
        "groups and ranks of dumps"
    )
    of: str = Field(
        description="SQL condition on the view call (idle: table host_gap; memory: memory_copy; "
        "queued, compute: rank_step; setting: column name; hang: flight_progress) that may bind "
        "the finding's columns as $column"
    )
    gain: str = Field(
        default="savings_ns", description="column: what of the gain is of this part, ns per step"
    )


MOST_ROWS = 100_000
"""Of a table of an example: more are no miniature."""


class Example(_Strict):
    """A miniature run: rows for derived tables, and what the rule must say about it."""

    name: str
    expect: Literal["fired", "passed", "not-applicable"]
    look_alike: bool = False
    ranks: int = Field(default=4, ge=0, le=MOST_ROWS)
    world_size: int | None = None
    hosts: list[str] | None = Field(default=None, description="host of each rank")
    timeline: Literal["device", "host"] = "device"
    steps: int = Field(default=8, ge=0, le=MOST_ROWS)
    step_ms: float = Field(default=100.0, gt=0, le=1e9)
    clock_residual_ns: int = 0
    tables: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    finding: dict[str, Any] = Field(
        default_factory=dict,
        description="fields the (first) finding must have; savings_ns within 1 %",
    )
    says: list[str] = Field(default_factory=list, description="texts in its title, message, fixes")
    why: str = ""


class Rule(_Strict):
    """One rule. ``severity: by-savings`` grades by share of the step; a word fixes it."""

    category: Category
    severity: Literal["by-savings", "critical", "warning", "info"]
    at_most: Literal["critical", "warning", "info"] = "critical"
    only: Literal["training"] | None = Field(
        default=None, description="the kind of job that it is for, where it is not for all"
    )
    title: str = Field(description="what the rule is about, for lists")
    why: str = Field(min_length=40, description="the mechanism, with its source")
    needs: list[Need] = Field(default_factory=list)
    params: dict[str, Param] = Field(default_factory=dict)
    candidates: Candidates | None = Field(
        default=None, description="for long SQL, which takes the database long to plan"
    )
    sql: str
    limit: int = Field(default=3, ge=1, le=20, description="findings at most; worst first")
    headline: str = Field(description="Jinja: one sentence that names the place")
    where: str = Field(description="Jinja: the place, short")
    names_host: bool = Field(
        default=False, description="headline or where say the host that a row gives"
    )
    because: Words = Field(
        default_factory=list,
        description="the evidence in at most two sentences, for the verdict's WHY",
    )
    message: Words = Field(min_length=1, description="what was seen, with numbers and units")
    savings: Savings
    noise_floor: bool = Field(
        default=True, description="drop instances whose savings are under the run's noise floor"
    )
    paired: bool = Field(
        default=False,
        description="its evidence compares ranks or calls within the same steps, so that only "
        "0.5 % of the step, not the steps' own spread, is its noise floor",
    )
    fix: Words = Field(
        min_length=1,
        description="in the order to try; {{ finding_number }} is the finding's own",
    )
    verify: Words = Field(min_length=1, description="what a run with the fix must show")
    false_alarms: list[str] = Field(min_length=1)
    see: list[str] = Field(default_factory=list)
    evidence: list[EvidenceQuery] = Field(default_factory=list)
    claims: list[Claim] = Field(
        default_factory=list, description="the time that it is about, for the ledger of claims"
    )
    says: Literal["where", "who", "why"] = Field(
        default="why",
        description="of the time it claims: where it goes, who holds it up, or why it is lost",
    )
    bare_loss: bool = Field(
        default=False,
        description="It is seen that time is lost, and nobody is behind it: no cause of the loss, "
        "so that it has no probability of being one.",
    )
    keeps_order: bool = Field(
        default=False, description="Instances of equal worth stand in the order of the SQL."
    )
    first_in_ties: list[str] = Field(
        default_factory=list,
        description="rules whose setting costs more than this one's (memory, say), or hides what "
        "this one repairs: where both may give back as much, this one's finding comes first",
    )
    proof: str = Field(
        default="examples only",
        description="the real runs it was seen firing on and what its fix then gave, or "
        "'examples only: ' and why",
    )
    examples: list[Example]

    _id: str = ""
    _path: Path | None = None

    @property
    def id(self) -> str:
        """Name of the file without its suffix."""
        return self._id

    @property
    def path(self) -> Path | None:
        """The file it was read from."""
        return self._path

    @property
    def is_shipped(self) -> bool:
        """Whether it comes with this program, and not from a folder of somebody's."""
        return self._path is None or self._path.parent == shipped("rules")

    def located(self, path: Path) -> "Rule":
        """The same rule, named after its file."""
        self._id, self._path = path.stem, path
        return self

    @field_validator("params")
    @classmethod
    def _names(cls, params: dict[str, Param]) -> dict[str, Param]:
        for name in params:
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
                raise ValueError(f"parameter '{name}' must be lower_case")
        return params

    @field_validator("examples")
    @classmethod
    def _enough(cls, examples: list[Example]) -> list[Example]:
        firing = [example for example in examples if example.expect == "fired"]
        silent = [example for example in examples if example.expect != "fired"]
        if not firing or len(silent) < 2:
            raise ValueError("needs at least one example that fires and two that do not")
        if not any(example.look_alike for example in silent):
            raise ValueError("one silent example must be a look-alike (look_alike: true)")
        names = [example.name for example in examples]
        if len(set(names)) != len(names):
            raise ValueError("example names must differ")
        return examples
