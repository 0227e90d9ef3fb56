"""Collectives and messages as c10d runs them on the host: operators, record_param_comms with its
arguments, events between streams, NCCL's kernel with the name of its release.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.gpulab import transports
from benchmarks.gpulab.job import Group, Job
from benchmarks.gpulab.program import COMPUTE, NODE, Call, Kernel, Program

_C10D = {
    "all_reduce": ("c10d::allreduce_", "allreduce", "nccl:all_reduce"),
    "all_gather": ("c10d::_allgather_base_", "_allgather_base", "nccl:_all_gather_base"),
    "reduce_scatter": (
        "c10d::_reduce_scatter_base_", "_reduce_scatter_base", "nccl:_reduce_scatter_base"
    ),
    "broadcast": ("c10d::broadcast_", "broadcast", "nccl:broadcast"),
    "all_to_all": ("c10d::alltoall_base_", "all_to_allv", "nccl:all_to_all"),
    "barrier": ("c10d::barrier", "allreduce", "nccl:all_reduce_barrier"),
}  # fmt: skip
_DTYPES = {
    "bf16": ("BFloat16", "bf16", "c10::BFloat16"),
    "fp32": ("Float", "f32", "float"),
    "uint8": ("Byte", "u8", "unsigned char"),
    "int64": ("Long", "i64", "long int"),
    "int32": ("Int", "u32", "int"),  # signed sums run as unsigned ones
}
_WIDTH = {"bf16": 2, "fp32": 4, "uint8": 1, "int64": 8, "int32": 4}
_MANY = 30
"""Kineto cuts lists of more ranks (libkineto/src/output_json.cpp)."""


def quoted(args: dict[str, Any]) -> str:
    """Arguments as JSON text that follows others."""
    return ", " + json.dumps(args)[1:-1] if args else ""


def ranks_text(ranks: tuple[int, ...]) -> str:
    """A list as Kineto writes it, cut beyond 30 entries."""
    if len(ranks) <= _MANY:
        return str(list(ranks))
    return f"[{', '.join(map(str, ranks[: _MANY - 1]))}, ..., {ranks[-1]}]"


class Communicator:
    """The part of a rank's emitter that communicates."""

    job: Job
    rank: int
    program: Program
    torch: tuple[int, ...]

    def collective(
        self,
        op: str,
        group: Group,
        elements: int,
        dtype: str = "",
        *,
        after: bool = True,
        splits: dict[tuple[int, int], int] | None = None,
        received: list[int] | None = None,
        note: str = "",
    ) -> int:
        """Launch a collective of ``elements`` (all ranks' together for gather and scatter).

        Returns the event that its end records. ``after``: it waits for the compute stream.
        ``splits`` (bytes sent, from and to) and ``received`` (bytes, by peer) of an uneven one.
        """
        job, program = self.job, self.program
        dtype = dtype or job.dtype
        ctype, short, dims_type = _DTYPES[dtype]
        op_name, collective, annotation = _C10D[op]
        n = len(group.ranks)
        into = elements // n if op == "all_gather" else elements
        out = elements // n if op == "reduce_scatter" else elements
        if received is not None:
            out = sum(received) // _WIDTH[dtype]
        number = program.next_in(group.name)
        meta = self._metadata(collective, group, into, out, ctype, number, splits)
        if received is not None and meta:
            meta["Out split size"] = ranks_text(tuple(size // _WIDTH[dtype] for size in received))
        stream = COMPUTE if not job.overlap else group.stream
        args = {"Input Dims": [[out], [into], [], [], []] if op in ("all_gather", "reduce_scatter")
                else [[[into]], [], [], [], []]}  # fmt: skip
        program.begin(op_name, "cpu_op", quoted(args))
        program.begin("record_param_comms", "cpu_op", quoted(self._own(meta, group)))
        program.api("cudaStreamIsCapturing")
        if stream != COMPUTE and after:
            program.wait(program.record(COMPUTE), stream)
        program.begin(annotation, "user_annotation",
                      quoted({"Input type": [dims_type], "Input Dims": [[into]]}))  # fmt: skip
        kernel = Kernel(self._kernel_name(op, short), 0.0, self._grid(group, elements),
                        (544, 1, 1), scales=False, args=quoted(meta) + note)  # fmt: skip
        total = elements * _WIDTH[dtype]
        if job.transport == "copies" and op == "all_gather":
            # NCCL_CTA_POLICY=2 (2.28 and later): copy engines move the data, no kernel runs.
            name = "Memcpy PtoP (Device -> Device)"
            kernel = Kernel(name, 0.0, scales=False, args=str(total // n * (n - 1)))
        real = "all_reduce" if op == "barrier" else op
        call = Call((group.name, number), real, group.ranks, total, sends=splits)
        program.call(stream, kernel, [call])
        program.end()
        done = program.record(stream)
        program.end()
        program.end()
        return done

    def reduce_gradient(self, group: Group, elements: int) -> int:
        """An all-reduce in the hook of the parameter whose gradient is complete."""
        self.program.begin(f"{NODE}: torch::autograd::AccumulateGrad")
        done = self.collective("all_reduce", group, elements, self.job.grad_dtype)
        self.program.end()
        return done

    def direct(self, op: str, group: Group, elements: int) -> None:
        """An all-reduce over peer memory."""
        transports.direct(self.job, self.program, group, elements)

    def deepep(self, what: str, group: Group, splits: dict[tuple[int, int], int]) -> None:
        """DeepEP's dispatch or combine."""
        transports.deepep(self.job, self.program, group, what, splits)

    def wait(self, event: int, group: Group | None = None) -> None:
        """work.wait(): the compute stream waits, not the host."""
        if not self.job.overlap:
            return
        program = self.program
        meta: dict[str, Any] = {"Collective name": "wait", "dtype": "Byte", "In msg nelems": 0,
                "Out msg nelems": 0, "Group size": 1, "Process Group Ranks": "[]",
                "In split size": "[]", "Out split size": "[]"}  # fmt: skip
        if group is not None and self.torch >= (2, 5):
            meta |= {"Rank": self.rank, "Process Group Name": group.name,
                     "Process Group Description": group.description}  # fmt: skip
        program.begin("record_param_comms", "cpu_op", quoted(meta if self.job.metadata else {}))
        program.wait(event, COMPUTE)
        program.end()

    def peers(self, group: Group, parts: list[tuple[int, int, int]], shift: int = 0) -> int:
        """One kernel of sends and receives: (from, to, bytes), batched where there are several.

        A batch's kernel carries no metadata, as PyTorch leaves it out for coalesced calls.
        ``shift``: a stream of its own for forward (1, 2) and backward messages (3, 4).
        """
        program, job = self.program, self.job
        batched = len(parts) > 1
        if batched:
            program.begin("c10d::_start_coalescing" if self.torch >= (2, 8) else
                          "record_param_comms", "cpu_op", "")  # fmt: skip
            program.end()
        calls, meta = [], {}
        for source, target, size in parts:
            sends = source == self.rank
            what = "send" if sends else "recv"
            pair = f"{source}>{target}" + (f"/{(shift - 1) // 2}" if shift else "")
            number = program.next_in(f"{group.name}/{pair}")
            elements = size // job.element_bytes
            meta = self._metadata(what, group, elements, elements, "BFloat16", number, None)
            if self.torch >= (2, 5) and meta:
                meta |= {"Src Rank": source, "Dst Rank": target}
            if batched:
                program.begin(f"c10d::{what if sends else 'recv_'}", "cpu_op",
                              quoted({"Input Dims": [[[elements]], [], [], []]}))  # fmt: skip
                program.begin("record_param_comms", "cpu_op",
                              quoted(self._own(meta, group)))  # fmt: skip
                program.end()
                program.end()
            calls.append(Call((group.name, pair, number), "send_recv", (source, target),
                              size, sends={(source, target): size}))  # fmt: skip
        stream = COMPUTE if not job.overlap else group.stream + 40 * shift
        first = parts[0]
        what = "send" if first[0] == self.rank else "recv"
        if not batched:
            program.begin(f"c10d::{'send' if what == 'send' else 'recv_'}", "cpu_op",
                          quoted({"Input Dims": [[[first[2] // 2]], [], [], []]}))  # fmt: skip
            program.begin("record_param_comms", "cpu_op", quoted(self._own(meta, group)))
        if stream != COMPUTE:
            program.wait(program.record(COMPUTE), stream)
        local = {rank: i for i, rank in enumerate(group.ranks)}
        arrow = f"{local[first[0]]}->{local[first[1]]}" if what == "send" else (
            f"{local[first[1]]}<-{local[first[0]]}")  # fmt: skip
        program.begin("nccl:coalesced" if batched else f"nccl:{what} {arrow}", "user_annotation")
        kernel = Kernel(self._kernel_name("all_to_all", ""), 0.0, (2, 1, 1), (544, 1, 1),
                        scales=False, args="" if batched else quoted(meta))  # fmt: skip
        program.call(stream, kernel, calls)
        program.end()
        done = program.record(stream)
        if not batched:
            program.end()
            program.end()
        return done

    def _metadata(
        self,
        collective: str,
        group: Group,
        into: int,
        out: int,
        ctype: str,
        number: int,
        splits: dict[tuple[int, int], int] | None,
    ) -> dict[str, Any]:
        if not self.job.metadata:
            return {}
        n = len(group.ranks)
        meta: dict[str, Any] = {
            "Collective name": collective, "In msg nelems": into, "Out msg nelems": out,
            "Group size": n, "dtype": ctype, "In split size": "[]", "Out split size": "[]",
        }  # fmt: skip
        if splits is not None:
            width = self.job.element_bytes
            mine = [splits.get((self.rank, peer), 0) // width for peer in group.ranks]
            meta["In split size"] = ranks_text(tuple(mine))
        meta |= {"Process Group Name": group.name, "Process Group Description": group.description,
                 "Process Group Ranks": ranks_text(group.ranks)}  # fmt: skip
        if self.torch >= (2, 12):
            meta["Seq"] = number
        return meta

    def _own(self, meta: dict[str, Any], group: Group) -> dict[str, Any]:
        """What record_param_comms itself has beyond the kernel's arguments."""
        if not meta:
            return {}
        n = len(group.ranks)
        stride = group.ranks[1] - group.ranks[0] if n > 1 else 0
        rank = {"Rank": self.rank} if self.torch >= (2, 5) else {}
        return meta | rank | {"Global rank start": group.ranks[0], "Global rank stride": stride}

    def _kernel_name(self, op: str, short: str) -> str:
        version = tuple(int(part) for part in self.job.nccl.split("."))
        storage = ("ncclDevKernelArgsStorage<4096ul>" if version >= (2, 22)
                   else "ncclDevComm*, unsigned long, ncclWork*")  # fmt: skip
        reduced = f"Sum_{short}_" if op in ("all_reduce", "reduce_scatter", "barrier") else ""
        stem = {"all_reduce": "AllReduce", "barrier": "AllReduce", "all_gather": "AllGather",
                "reduce_scatter": "ReduceScatter", "broadcast": "Broadcast"}.get(op)  # fmt: skip
        if version < (2, 19):
            long = {"bf16": "__nv_bfloat16", "f32": "float", "u8": "uint8_t",
                    "i64": "int64_t", "u32": "uint32_t"}.get(short, "int8_t")  # fmt: skip
            if stem is None:
                return f"ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t({storage})"
            kind = long if reduced else "int8_t"
            return f"ncclKernel_{stem}_RING_LL_Sum_{kind}({storage})"
        if stem is None:
            return f"ncclDevKernel_SendRecv({storage})"
        return f"ncclDevKernel_{stem}_{reduced}RING_LL({storage})"

    def _grid(self, group: Group, elements: int) -> tuple[int, int, int]:
        if elements < 65_536:
            return (1, 1, 1)
        return (24 if self.job.hw.capability >= 90 else 16, 1, 1)
