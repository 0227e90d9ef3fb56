"""What to train and how to record it: the workload file, validated, with every default in sight."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from advisor.config.loader import FileModel, load_model
from advisor.errors import AdvisorError


class ModelChoice(FileModel):
    """A model by family and preset; single shapes may be overridden."""

    family: Literal["gpt2", "llama", "moe"] = "gpt2"
    preset: str = Field("tiny", min_length=1)
    layers: int | None = Field(None, ge=1)
    hidden: int | None = Field(None, ge=8)
    heads: int | None = Field(None, ge=1)
    vocabulary: int | None = Field(None, ge=2)


class Emulated(FileModel):
    """Layers whose arithmetic is replaced by a timed wait; communication stays real."""

    layers: int = Field(12, ge=1)
    forward_ms: float = Field(3.0, ge=0)
    backward_ms: float = Field(6.0, ge=0)
    gradient_mb: float = Field(1.0, gt=0)


class Workload(FileModel):
    """One experiment: model, data, strategy, and which steps are recorded.

    ``micro_batch`` is per data-parallel rank; the global batch is micro_batch x
    gradient_accumulation x data-parallel ranks. Sizes ending in ``_mb`` are MiB, as torch has it.
    """

    name: str = Field("workload", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    description: str = ""
    model: ModelChoice = ModelChoice()  # type: ignore[call-arg]
    strategy: str = Field("ddp", min_length=1)
    world_size: int = Field(2, ge=1, le=65536)
    device: Literal["cpu", "cuda"] = "cpu"

    micro_batch: int = Field(4, ge=1)
    sequence_length: int = Field(64, ge=2)
    gradient_accumulation: int = Field(1, ge=1)
    global_batch: int | None = Field(None, ge=1)
    sync_every_micro_batch: bool = False
    precision: Literal["fp32", "bf16"] = "fp32"
    optimizer: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = Field(3e-4, gt=0)
    seed: int = Field(0, ge=0)

    warmup_steps: int = Field(2, ge=0)
    timed_steps: int = Field(5, ge=0)
    steps: int = Field(5, ge=1)
    record_shapes: bool = True
    record_memory: bool = False
    memory_snapshot: bool = False

    bucket_cap_mb: float = Field(25.0, gt=0)
    find_unused_parameters: bool = False
    static_graph: bool = False
    gradient_as_bucket_view: bool = False
    activation_checkpointing: Literal["none", "full"] = "none"

    tp: int | None = Field(None, ge=1)
    pp: int | None = Field(None, ge=1)
    ep: int | None = Field(None, ge=1)
    shard: int | None = Field(None, ge=1)
    stage_layers: tuple[int, ...] | None = None
    virtual_stages: int = Field(2, ge=1)
    powersgd_rank: int = Field(4, ge=1)
    wrap_layers: int = Field(1, ge=0)
    prefetch_forward: int = Field(0, ge=0)
    prefetch_backward: int = Field(0, ge=0)
    reduce_precision: Literal["fp32", "bf16"] | None = None

    compute: Literal["real", "emulated"] = "real"
    emulated: Emulated | None = None

    @model_validator(mode="after")
    def _agree(self) -> "Workload":
        if self.global_batch is not None and "gradient_accumulation" in self.model_fields_set:
            raise ValueError(
                f"global_batch {self.global_batch} and gradient_accumulation "
                f"{self.gradient_accumulation}: one follows from the other, give only one "
                "and take the other out"
            )
        if self.compute == "emulated" and self.emulated is None:
            raise ValueError("compute: emulated needs a section 'emulated' with the layers' times")
        return self

    @property
    def tokens_per_rank(self) -> int:
        """Tokens of a step on one of the ranks that train on different data."""
        return self.micro_batch * self.sequence_length * self.gradient_accumulation

    def to_json(self) -> dict[str, Any]:
        """Every setting, to be validated again: no accumulation where global_batch gives it."""
        follows = self.global_batch is not None
        return self.model_dump(mode="json", exclude={"gradient_accumulation": follows})

    def without(self, name: str) -> "Workload":
        """A copy in which a setting is as if it had not been given."""
        return Workload.model_validate(self.model_dump(exclude_unset=True, exclude={name}))

    def with_settings(self, settings: dict[str, Any]) -> "Workload":
        """A copy with some settings replaced (dotted names reach inside). Raises AdvisorError."""
        document = self.model_dump(exclude_unset=True)
        for name, value in settings.items():
            target = document
            *parents, last = name.split(".")
            for parent in parents:
                target = target.setdefault(parent, {})
                if not isinstance(target, dict):
                    raise AdvisorError(f"'{parent}' has no settings inside", where="command line")
            target[last] = value
        try:
            return Workload.model_validate(document)
        except ValidationError as error:
            lines = [_one_line(problem) for problem in error.errors()]
            raise AdvisorError("\n".join(lines), where="command line") from error


def load_workload(path: Path) -> Workload:
    """Read a workload file; every mistake in it is reported with file and line."""
    return load_model(path, Workload)


def _one_line(problem: Any) -> str:
    name = ".".join(str(part) for part in problem["loc"]) or "settings"
    message = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        return f"unknown setting '{name}'"
    shown = problem.get("input")
    return f"{name}: {message}" + (
        f" (got {shown!r})" if isinstance(shown, str | int | float | bool) else ""
    )
