"""Host code as a training script runs it: operators, loaders, syncs, pauses, the optimizer.

Every range, runtime call and argument is one that real traces hold (see compare.py).
"""

from __future__ import annotations

import random

from benchmarks.gpulab import program as p
from benchmarks.gpulab.comms import Communicator, quoted
from benchmarks.gpulab.job import Group, Job, Layout
from benchmarks.gpulab.model import Model, Step
from benchmarks.gpulab.program import COMPUTE, Kernel, Program


class Emitter(Communicator):
    """Writes one rank's program."""

    def __init__(self, job: Job, rank: int, layout: Layout) -> None:
        self.job, self.rank, self.layout = job, rank, layout
        self.program = Program(rank)
        self.torch = tuple(int(part) for part in job.torch.split("."))
        scale = job.factor("work_factor", rank)
        self.model = Model(job, rank, scale)
        self.scale = scale
        self.tape: list[int] = []
        self.taped = 0

    def group(self, dimension: str) -> Group:
        """This rank's group in a dimension."""
        return self.layout.of[dimension][self.rank]

    # Compute.

    def forward_half(self, steps: list[Step]) -> None:
        """Operators of a forward pass."""
        self._compute(steps, "")

    def backward_half(self, steps: list[Step]) -> None:
        """Nodes of autograd's engine."""
        self._compute(steps, "autograd::engine::evaluate_function: ")

    def _compute(self, steps: list[Step], prefix: str) -> None:
        program = self.program
        if self.job.compile == "graph":
            program.graph([kernel for step in steps for kernel in step.kernels])
            return
        if self.job.compile == "inductor":
            self._inductor(steps, backward=bool(prefix))
            return
        for step in steps:
            if prefix:
                # A node of autograd's tape names the forward operator that made it.
                number = self.tape.pop() if self.tape else 0
                tape = f', "Sequence number": {number}, "Fwd thread id": 1'
                program.begin(prefix + step.op, "cpu_op", tape)
                program.work(5_000)
            else:
                self.taped += 1
                self.tape.append(self.taped)
                tape = f', "Sequence number": {self.taped}, "Fwd thread id": 0'
            args = quoted({"Input Dims": [list(dim) for dim in step.dims]}) if step.dims else ""
            program.begin(step.op, "cpu_op", tape + args)
            program.work(15_000)
            for kernel in step.kernels:
                if prefix and step.dims:
                    program.begin("aten::mm", "cpu_op", args)
                    program.kernel(kernel)
                    program.end()
                else:
                    program.kernel(kernel)
            program.end()
            if prefix:
                program.end()
            else:
                self.maybe_item("operator")
        if not prefix:
            self.maybe_item("half")

    def _inductor(self, steps: list[Step], *, backward: bool) -> None:
        """One compiled region: Triton kernels launched by the driver interface, fewer of them."""
        program = self.program
        program.begin("CompiledFunctionBackward" if backward else "Torch-Compiled Region: 0/0",
                      "cpu_op")  # fmt: skip
        for i, step in enumerate(steps):
            for kernel in step.kernels:
                made = kernel
                if "elementwise" in kernel.name or "layer_norm" in kernel.name:
                    made = Kernel(f"triton_poi_fused_{step.op.rpartition(':')[2].lower()}_{i}",
                                  kernel.ns * 0.6, kernel.grid, kernel.block)  # fmt: skip
                program.work(1_200)
                program.kernel(made)
        program.end()

    def layer_forward(self, factor: float = 1.0) -> None:
        """A whole layer, without communication."""
        for half in self.model.forward:
            self.forward_half(self.scaled(half, factor))

    def scaled(self, steps: list[Step], factor: float) -> list[Step]:
        """The same operators on ``factor`` times as many rows, and as long."""
        if factor == 1.0:
            return steps
        made = []
        for step in steps:
            kernels = tuple(Kernel(k.name, k.ns * factor, k.grid, k.block) for k in step.kernels)
            dims = step.dims
            if dims:
                dims = ((round(dims[0][0] * factor), *dims[0][1:]), *dims[1:])
            made.append(Step(step.op, kernels, dims))
        return made

    # The rest of a script.

    def loader(self, step: int) -> None:
        """next(dataloader), and the batch's copy to the device."""
        job, program = self.job, self.program
        if job.length_spread:
            draw = random.Random(f"{job.seed}/{self.rank}/{step}/length")
            scale = self.scale * max(0.5, draw.gauss(1.0, job.length_spread))
            self.model = Model(job, self.rank, scale)
        stall = dict(job.loader_ns)
        wait = stall.get(self.rank, stall.get(-1, 0))
        program.begin("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
                      "user_annotation")  # fmt: skip
        program.work(60_000)
        if wait and (step + 1) % job.loader_every == 0:
            program.work(float(wait))
        program.end()
        if job.host_ns:
            program.work(float(job.host_ns))
        program.begin("aten::copy_")
        program.copy("HtoD", self.model.tokens * 8)
        program.end()
        if job.copies_bytes:
            program.begin("aten::copy_")
            program.copy("HtoD", job.copies_bytes, pinned=False)
            program.end()

    def item(self) -> None:
        """loss.item(): a copy to the host and a wait for it."""
        program = self.program
        program.begin("aten::item")
        program.begin("aten::_local_scalar_dense")
        program.code.append((p.COPY, COMPUTE, "DtoH", 4, True))
        program.synchronise(COMPUTE)
        program.end()
        program.end()

    def barrier(self, group: Group) -> None:
        """dist.barrier(): an all-reduce of one byte that the host waits for."""
        self.wait(self.collective("barrier", group, 1, "uint8"), group)
        self.program.synchronise(COMPUTE)

    def maybe_item(self, where: str) -> None:
        """The script's blocking calls."""
        if self.job.blocking_every == where:
            self.item()

    def pause(self, step: int) -> None:
        """Another rank stops each time, or all do: garbage collection."""
        job = self.job
        if job.pause_ns and (step + 1) % job.pause_every == 0:
            turn = (step // job.pause_every) * 7 + job.seed
            if job.pause_all or turn % job.ranks == self.rank:
                self.program.work(float(job.pause_ns))

    def checkpoint(self, step: int) -> None:
        """One rank writes the state every n steps: copies to the host, then the file system."""
        job, program = self.job, self.program
        if job.checkpoint_every and step % job.checkpoint_every == job.checkpoint_every - 1 and (
            job.checkpoint_rank == self.rank
        ):  # fmt: skip
            program.begin("aten::to")
            program.copy("DtoH", 64 << 20, pinned=False)
            program.end()
            program.work(float(job.checkpoint_ns))

    def optimizer(self, parameters: int) -> None:
        """A fused step."""
        program = self.program
        program.begin("Optimizer.step#AdamW.step", "user_annotation")
        program.begin("aten::_fused_adamw_")
        program.work(40_000)
        for kernel in self.model.optimizer(parameters):
            program.kernel(kernel)
        program.end()
        program.end()
        program.begin("Optimizer.zero_grad#AdamW.zero_grad", "user_annotation")
        program.work(30_000)
        program.end()
