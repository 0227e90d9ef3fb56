"""Bytes on the wire, memory and FLOPs that theory gives for a recorded run, beside the measured.

METRICS section 7 has the traffic of each strategy in closed form; the recording (`advisor profile`)
says what was cut how, so the formulas need no guess. Where an implementation is known to move more
or less than the textbook, that is a named correction with its own bytes: a measured figure equals
theory, or the corrections explain the difference, or it stays unexplained and is shown as such.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from advisor.config.hardware import peak_flops
from advisor.metrics.operations import bus_factor, parse_json
from advisor.model import plan_traffic as traffic
from advisor.model.transformer import (
    ADAM_BYTES,
    TransformerShape,
    activation_bytes,
    flops_per_token,
    output_activation_bytes,
)

_TOLERANCE = 0.02
_ZERO_STAGE = {
    "zero1": 1, "fsdp1-grad": 2, "fsdp2-zero2": 2, "fsdp1-full": 3, "fsdp2": 3, "hsdp": 3,
}  # fmt: skip
_WIRE_WIDTH = {"ddp-fp16": 2, "ddp-bf16": 2}
_FP32 = 4


@dataclass
class OpTheory:
    """One operation: bytes each rank sends per step (mean over ranks), by theory and measured."""

    op: str
    theory_bytes: float = 0.0
    formulas: list[str] = field(default_factory=list)
    corrections: list[tuple[str, float]] = field(default_factory=list)
    measured_bytes: float | None = None
    unpredictable: str = ""

    @property
    def expected_bytes(self) -> float:
        """Theory and its corrections."""
        return self.theory_bytes + sum(size for _, size in self.corrections)

    @property
    def verdict(self) -> str:
        """``equal``, ``explained``, ``not predicted``, ``not measured`` or ``differs``."""
        if self.measured_bytes is None:
            return "not measured"
        if _close(self.measured_bytes, self.theory_bytes):
            return "equal"
        if self.unpredictable:
            return "not predicted"
        return "explained" if _close(self.measured_bytes, self.expected_bytes) else "differs"

    @property
    def explanation(self) -> str:
        """Why theory and measurement differ; empty where they do not."""
        if self.verdict == "not predicted":
            return self.unpredictable
        if self.verdict == "explained":
            return "; ".join(
                f"{'+' if size > 0 else '-'}{abs(size) / 1e6:.3g} MB: {why}"
                for why, size in self.corrections
            )
        if self.verdict == "differs" and self.measured_bytes is not None:
            rest = self.measured_bytes - self.expected_bytes
            return f"{rest / 1e6:+.3g} MB are not explained"
        return ""


@dataclass(frozen=True)
class Theory:
    """What theory says of one run; ``memory_bytes`` is the largest rank's estimate."""

    ops: list[OpTheory]
    memory_bytes: float | None
    flops_per_step: float | None
    peak_flops: float | None
    peak_source: str | None

    def mfu(self, step_ns: float) -> float | None:
        """Model FLOPs utilisation of the whole job; None where no peak is known."""
        if not self.flops_per_step or not self.peak_flops or not step_ns:
            return None
        return self.flops_per_step / (step_ns * 1e-9) / self.peak_flops


@dataclass(frozen=True)
class _Rank:
    """The recorded sizes of one rank."""

    shared: float
    experts: float
    outside: float
    layers: int
    pipeline: int
    tensor: int
    data: int
    expert: int
    shard: int


def theory(con: Any, run: str) -> Theory | None:
    """Theory for a run that `advisor profile` recorded; None for any other."""
    rows = con.execute(
        "SELECT r.strategy, r.workload, k.metadata, k.device_name FROM run r JOIN rank k USING "
        "(run) WHERE r.run = ? ORDER BY k.rank",
        [run],
    ).fetchall()
    workload = parse_json(rows[0][1]) if rows else None
    if not isinstance(workload, dict):
        return None
    try:
        recorded = [_advisor(row[2]) for row in rows]
        ranks = [_rank(document) for document in recorded]
        shape = _shape(recorded[0].get("transformer"))
        names = str(rows[0][0]).split("+")
        ops = _traffic(names, workload, ranks, shape)
        memory = max(_memory(names, workload, rank, shape) for rank in ranks)
        flops = _flops(workload, ranks[0], shape)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        return None  # recorded by an older version, or damaged: no theory rather than a wrong one
    _measure(con, run, ops)
    peak = peak_flops(str(rows[0][3] or ""), str(workload.get("precision")))
    return Theory(
        ops=sorted(ops.values(), key=lambda item: -(item.measured_bytes or 0)),
        memory_bytes=memory,
        flops_per_step=flops,
        peak_flops=None if peak is None else peak[0] * len(ranks),
        peak_source=None if peak is None else peak[1],
    )


def _close(left: float, right: float) -> bool:
    return abs(left - right) <= _TOLERANCE * max(left, right)


def _advisor(metadata: str | None) -> dict[str, Any]:
    document = (parse_json(metadata) or {}).get("advisor")
    found = parse_json(document) if isinstance(document, str) else document
    return dict(found or {})


def _rank(document: dict[str, Any]) -> _Rank:
    sizes, degrees = document["held_parameters"], document["degrees"]
    return _Rank(
        shared=float(sizes["shared"]),
        experts=float(sizes["experts"]),
        outside=float(sizes["outside_layers"]),
        layers=int(document["layers_held"]),
        **{name: max(1, int(degrees[name])) for name in
           ("pipeline", "tensor", "data", "expert", "shard")},
    )  # fmt: skip


def _shape(document: dict[str, Any] | None) -> TransformerShape | None:
    return None if document is None else TransformerShape(**document)


def _traffic(
    names: list[str],
    workload: dict[str, Any],
    ranks: list[_Rank],
    shape: TransformerShape | None,
) -> dict[str, OpTheory]:
    ops: dict[str, OpTheory] = {}
    for rank in ranks:
        for op, formula, size in _terms(names, workload, rank, shape):
            entry = ops.setdefault(op, OpTheory(op))
            entry.theory_bytes += size / len(ranks)
            if formula not in entry.formulas:
                entry.formulas.append(formula)
        for op, why, size in _corrections(names, workload, rank, shape):
            entry = ops.setdefault(op, OpTheory(op))
            known = dict(entry.corrections)
            known[why] = known.get(why, 0.0) + size / len(ranks)
            entry.corrections = list(known.items())
    if "ddp-powersgd" in names and "all_reduce" in ops:
        ops[
            "all_reduce"
        ].unpredictable = (
            "PowerSGD sends low-rank factors of the matrices: theory is what it saves against"
        )
    if "all_to_all" in ops:
        ops["all_to_all"].unpredictable = (
            "the router decides how many tokens travel: theory is an even spread, without the "
            "counts that are exchanged first"
        )
    return ops


_Terms = list[tuple[str, str, float]]


def _terms(
    names: list[str], workload: dict[str, Any], rank: _Rank, shape: TransformerShape | None
) -> _Terms:
    """(operation, formula, bytes this rank sends per step), as METRICS section 7 has them."""
    terms: _Terms = []
    count = int(workload["gradient_accumulation"])
    batch, sequence = int(workload["micro_batch"]), int(workload["sequence_length"])
    width = _compute_width(workload)
    kind = _data_strategy(names)
    n = rank.data
    if n > 1 and kind in ("fsdp2", "fsdp1-full", "hsdp", "fsdp2-zero2", "fsdp1-grad"):
        inner = rank.shard if kind == "hsdp" else n
        passes = 2 if _ZERO_STAGE[kind] == 3 else 1
        rounds = 1 if kind == "fsdp1-grad" and not workload["sync_every_micro_batch"] else count
        gathered = traffic.gather_bytes(passes * rank.shared * width, inner) * rounds
        times = f" x {rounds} micro-batches" if rounds > 1 else ""
        terms.append(("all_gather", f"(n-1)/n {passes}P{times}", gathered))
        gradients = rank.shared * _reduce_width(workload) * _syncs(workload)
        terms.append(("reduce_scatter", "(n-1)/n G", traffic.gather_bytes(gradients, inner)))
        if kind == "hsdp":
            size = traffic.all_reduce_bytes(gradients / inner, n // inner)
            terms.append(("all_reduce", "2(r-1)/r of the shard", size))
    elif n > 1:
        gradients = rank.shared * _WIRE_WIDTH.get(kind, _FP32) * _syncs(workload)
        terms.append(("all_reduce", "2(n-1)/n G", traffic.ddp_bytes(gradients, n)))
    if rank.expert > 1 and n > rank.expert:
        size = traffic.all_reduce_bytes(rank.experts * _FP32, n // rank.expert)
        terms.append(("all_reduce", "experts' replicas 2(r-1)/r", size))
    if shape is None:
        return terms
    if rank.tensor > 1:
        layer = traffic.tensor_parallel_layer_bytes(
            batch, sequence, shape.hidden, rank.tensor, width
        )
        total = layer * rank.layers * count
        if "tp-sp" in names:
            terms.append(("all_gather", "4 per layer, (t-1)/t bsh", total / 2))
            terms.append(("reduce_scatter", "4 per layer, (t-1)/t bsh", total / 2))
        else:
            terms.append(("all_reduce", "4 per layer, 2(t-1)/t bsh", total))
    if rank.pipeline > 1:
        chunks = int(workload["virtual_stages"]) if "pp-interleaved" in names else 1
        boundaries = rank.pipeline * chunks - 1
        size = traffic.pipeline_boundary_bytes(batch, sequence, shape.hidden, width)
        terms.append(("send", "2bsh per boundary and micro-batch",
                      size * count * boundaries / rank.pipeline))  # fmt: skip
    if rank.expert > 1:
        size = traffic.expert_parallel_layer_bytes(
            batch, sequence, shape.hidden, shape.experts_per_token, rank.expert, width
        )
        terms.append(("all_to_all", "4 per layer, (e-1)/e k bsh", size * rank.layers * count))
    return terms


def _corrections(
    names: list[str], workload: dict[str, Any], rank: _Rank, shape: TransformerShape | None
) -> _Terms:
    """(operation, reason, bytes) by which torch is known to move more or less than the formulas."""
    terms: _Terms = []
    count = int(workload["gradient_accumulation"])
    kind = _data_strategy(names)
    if rank.data > 1 and kind == "zero1":
        why = "torch keeps DDP's all-reduce, and owners broadcast the updated parameters"
        terms.append(("broadcast", why, rank.shared * _FP32))
    if rank.data > 1 and kind in ("fsdp2", "fsdp1-full", "hsdp"):
        inner = rank.shard if kind == "hsdp" else rank.data
        root = rank.shared if workload["wrap_layers"] == 0 else rank.outside
        size = traffic.gather_bytes(root * _compute_width(workload), inner) * count
        why = "embedding and head stay gathered from forward to backward"
        terms.append(("all_gather", why, -size))
    if rank.pipeline > 1 and shape is not None and shape.tied_embeddings:
        # Two ranks of each pipeline take part, with a factor of 2(2-1)/2.
        size = shape.vocab * shape.hidden * _FP32 * 2 / rank.pipeline
        if kind in _ZERO_STAGE and _ZERO_STAGE[kind] >= 2:
            size /= rank.shard if kind == "hsdp" else rank.data
        terms.append(("all_reduce", "tied embedding: first and last stage add gradients", size))
    return terms


def _data_strategy(names: list[str]) -> str:
    others = ("tp", "tp-sp", "pp", "pp-gpipe", "pp-interleaved", "ep")
    return next((name for name in names if name not in others), "ddp")


def _syncs(workload: dict[str, Any]) -> int:
    return int(workload["gradient_accumulation"]) if workload["sync_every_micro_batch"] else 1


def _compute_width(workload: dict[str, Any]) -> int:
    return 2 if workload["precision"] == "bf16" else _FP32


def _reduce_width(workload: dict[str, Any]) -> int:
    return 2 if workload["reduce_precision"] == "bf16" else _FP32


def _memory(
    names: list[str], workload: dict[str, Any], rank: _Rank, shape: TransformerShape | None
) -> float:
    """State of the optimizer's kind, sharded as the strategy does, and activations."""
    stage, n = _ZERO_STAGE.get(_data_strategy(names), 0), rank.data
    shards = rank.shard if rank.shard > 1 else n
    weights, gradients, moments = ADAM_BYTES["fp32"]  # what autocast and FSDP keep as well
    parts = (weights, gradients, 0 if workload["optimizer"] == "sgd" else moments)
    first_sharded: tuple[int, int, int] = (3, 2, 1)
    state = sum(
        size * rank.shared / (shards if stage >= from_stage else 1)
        for size, from_stage in zip(parts, first_sharded, strict=True)
    ) + rank.experts * sum(parts)
    if shape is None:
        return state
    batch, sequence = int(workload["micro_batch"]), int(workload["sequence_length"])
    in_flight = 1
    if rank.pipeline > 1:
        count = int(workload["gradient_accumulation"])
        in_flight = count if "pp-gpipe" in names else min(count, rank.pipeline)
    layers = activation_bytes(
        shape,
        batch,
        sequence,
        recompute="full" if workload["activation_checkpointing"] == "full" else "none",
        tensor_parallel=rank.tensor,
        sequence_parallel="tp-sp" in names,
        layers=rank.layers,
    )
    # The formula counts 2-byte activations.
    layers *= _compute_width(workload) / 2
    output = output_activation_bytes(shape, batch, sequence) if rank.outside else 0.0
    return state + layers * in_flight + output


def _flops(workload: dict[str, Any], rank: _Rank, shape: TransformerShape | None) -> float | None:
    if shape is None:
        return None
    sequence = int(workload["sequence_length"])
    tokens = (
        int(workload["micro_batch"]) * sequence * int(workload["gradient_accumulation"]) * rank.data
    )
    return float(flops_per_token(shape, sequence)) * tokens


def _measure(con: Any, run: str, ops: dict[str, OpTheory]) -> None:
    """Add the measured bytes: those each rank sends in a complete step, mean over ranks."""
    rows = con.execute(
        "WITH s AS (SELECT rank, step FROM step WHERE run = ? AND complete) "
        "SELECT c.op, c.group_size, sum(c.bytes) / (SELECT count(*) FROM s) FROM collective c "
        "JOIN s USING (rank, step) WHERE c.run = ? AND c.op NOT IN ('recv', 'barrier') "
        "GROUP BY c.op, c.group_size",
        [run, run],
    ).fetchall()

    for op, size, total in rows:
        share = bus_factor(str(op), size)
        if total is None or share is None:
            continue
        entry = ops.setdefault(str(op), OpTheory(str(op)))
        entry.measured_bytes = (entry.measured_bytes or 0.0) + float(total) * share
