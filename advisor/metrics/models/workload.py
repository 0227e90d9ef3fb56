"""What `advisor profile` recorded of a run: its settings, and what each rank held of the model."""

from dataclasses import dataclass
from typing import Any

from advisor.model.transformer import TransformerShape
from advisor.vocabulary.operations import parse_json

FP32 = 4  # bytes of an element
_ZERO_STAGE = {
    "zero1": 1, "fsdp1-grad": 2, "fsdp2-zero2": 2, "fsdp1-full": 3, "fsdp2": 3, "hsdp": 3,
    "deepspeed-zero1": 1, "deepspeed-zero2": 2, "deepspeed-zero3": 3,
}  # fmt: skip
_NOT_DATA = ("tp", "tp-sp", "pp", "pp-gpipe", "pp-interleaved", "ep")


@dataclass(frozen=True)
class Rank:
    """The recorded sizes of one rank: parameters by how they are reduced, and the degrees."""

    shared: float
    experts: float
    outside: float
    layers: int
    pipeline: int
    tensor: int
    data: int
    expert: int
    shard: int
    has_embedding: bool
    has_head: bool

    @property
    def data_group(self) -> int:
        """Ranks over which FSDP shards: all data-parallel ones, or HSDP's inner group."""
        return self.shard if self.shard > 1 else self.data


@dataclass(frozen=True)
class Recorded:
    """One run: strategies joined in its name, the workload's settings, its ranks."""

    names: list[str]
    workload: dict[str, Any]
    ranks: list[Rank]
    shape: TransformerShape | None

    @property
    def data_strategy(self) -> str:
        """The data-parallel part of the strategy; DDP where none is named."""
        return next((name for name in self.names if name not in _NOT_DATA), "ddp")

    @property
    def zero_stage(self) -> int:
        """What is sharded: 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too."""
        return _ZERO_STAGE.get(self.data_strategy, 0)

    @property
    def micro_batches(self) -> int:
        """Micro-batches per step and data-parallel rank."""
        return int(self.workload["gradient_accumulation"])

    @property
    def micro_batch(self) -> int:
        """Sequences in one of them."""
        return int(self.workload["micro_batch"])

    @property
    def sequence(self) -> int:
        """Tokens in a sequence."""
        return int(self.workload["sequence_length"])

    @property
    def tokens_per_step(self) -> int:
        """Of the whole job."""
        return self.micro_batch * self.sequence * self.micro_batches * self.ranks[0].data

    @property
    def syncs(self) -> int:
        """How often per step gradients are reduced over the data-parallel ranks."""
        return self.micro_batches if self.workload["sync_every_micro_batch"] else 1

    @property
    def is_checkpointed(self) -> bool:
        """Whether every layer's forward pass runs again in backward."""
        return bool(self.workload["activation_checkpointing"] == "full")

    @property
    def compute_width(self) -> int:
        """Bytes of an element where the model computes."""
        return 2 if self.workload["precision"] == "bf16" else FP32

    @property
    def stream_width(self) -> int:
        """Bytes of an element of the residual stream: autocast keeps it in float32, FSDP casts."""
        return self.compute_width if self.zero_stage >= 2 else FP32

    @property
    def reduce_width(self) -> int:
        """Bytes of an element in which FSDP reduces gradients."""
        return 2 if self.workload["reduce_precision"] == "bf16" else FP32


def read(rows: list[Any]) -> Recorded | None:
    """From rows of (strategy, workload, metadata) by rank; None for anybody else's run."""
    workload = parse_json(rows[0][1]) if rows else None
    if not isinstance(workload, dict):
        return None
    return described(str(rows[0][0]), workload, [said_of_itself(row[2]) for row in rows])


def described(strategy: str, workload: dict[str, Any], ranks: list[dict[str, Any]]) -> Recorded:
    """From what each rank says of itself (advisor.profile.sizes.held, rank and world_size)."""
    shape = ranks[0].get("transformer")
    return Recorded(
        names=strategy.split("+"),
        workload=workload,
        ranks=[_rank(document) for document in ranks],
        shape=None if shape is None else TransformerShape(**shape),
    )


def world_size_said(metadata: str | None) -> int | None:
    """What a recording says of its ranks; one without a process group is told by nothing else."""
    said = said_of_itself(metadata).get("world_size")
    return said if isinstance(said, int) else None


def said_of_itself(metadata: str | None) -> dict[str, Any]:
    """What a recording of ours adds to the profiler's metadata; empty of any other."""
    document = (parse_json(metadata) or {}).get("advisor")
    found = parse_json(document) if isinstance(document, str) else document
    return dict(found or {})


def _rank(document: dict[str, Any]) -> Rank:
    sizes = document["held_parameters"]
    names = ("pipeline", "tensor", "data", "expert", "shard")
    degrees = {name: max(1, int(document["degrees"][name])) for name in names}
    # Pipeline stages are outermost in the order of ranks.
    stages, number = degrees["pipeline"], int(document.get("rank", 0))
    stage = number * stages // max(1, int(document.get("world_size", 1)))
    return Rank(
        shared=float(sizes["shared"]),
        experts=float(sizes["experts"]),
        outside=float(sizes["outside_layers"]),
        layers=int(document["layers_held"]),
        has_embedding=stage == 0,
        has_head=stage == stages - 1,
        **degrees,
    )
