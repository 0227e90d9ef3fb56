"""Communication that is no NCCL kernel: one- and two-shot all-reduces over peer memory (PyTorch's
symmetric memory, vLLM's custom all-reduce) and DeepEP's dispatch and combine.

Kernel names as in pytorch/pytorch torch/csrc/distributed/c10d/symm_mem, vllm-project/vllm
csrc/custom_all_reduce.cuh and deepseek-ai/DeepEP csrc/kernels. None of them carries metadata.
"""

from __future__ import annotations

from benchmarks.gpulab.job import Group, Job
from benchmarks.gpulab.program import COMPUTE, Call, Kernel, Program


def direct(job: Job, program: Program, group: Group, elements: int) -> None:
    """An all-reduce on the compute stream."""
    n = len(group.ranks)
    number = program.next_in(f"{group.name}/direct")
    if job.transport == "custom":
        op, name = (
            "_C_custom_ar::all_reduce",
            (
                f"void vllm::cross_device_reduce_2stage<__nv_bfloat16, {n}>(vllm::RankData*, "
                "vllm::RankSignals, vllm::Signal*, __nv_bfloat16*, int, int)"
            ),
        )
    elif job.hw.capability >= 90:
        op, name = "symm_mem::multimem_all_reduce_", (
            f"void c10d::symmetric_memory::(anonymous namespace)::multimem_all_reduce_kernel"
            f"<c10::BFloat16, 16, {n}>(c10::BFloat16*, unsigned long, unsigned int**, "
            "unsigned long, unsigned long)"
        )  # fmt: skip
    else:
        op, name = "symm_mem::two_shot_all_reduce_", (
            "void c10d::symmetric_memory::(anonymous namespace)::two_shot_all_reduce_kernel_inplace"
            f"<c10::BFloat16, 16, {n}>(c10::BFloat16**, unsigned long, unsigned long, "
            "unsigned int**, unsigned long, unsigned long)"
        )  # fmt: skip
    program.begin(op)
    program.work(5_000)
    kernel = Kernel(name, 0.0, (36, 1, 1), (512, 1, 1), scales=False)
    call = Call((group.name, "direct", number), "all_reduce", group.ranks, elements * 2, "direct")
    program.call(COMPUTE, kernel, [call])
    program.end()


def deepep(
    job: Job, program: Program, group: Group, what: str, splits: dict[tuple[int, int], int]
) -> None:
    """Dispatch or combine: a notify kernel, then the one that moves the tokens."""
    across = len({job.host_of(rank) for rank in group.ranks}) > 1
    space = "internode" if across else "intranode"
    n = len(group.ranks)
    number = program.next_in(f"{group.name}/{what}")
    program.begin("FusedDispatch" if what == "dispatch" else "FusedCombine")
    program.work(25_000)
    notify = "notify_dispatch" if what == "dispatch" else "cached_notify_combine"
    for part, name in (("notify", f"{notify}<{n}>"), ("move", f"{what}<{n}, 768, 8192>")):
        tail = "(int4*, float*, long*, int*, int const*, int)"
        kernel = Kernel(f"void deep_ep::{space}::{name}{tail}", 0.0, (20, 1, 1), (768, 1, 1),
                        scales=False)  # fmt: skip
        moved = splits if part == "move" else dict.fromkeys(splits, 64)
        call = Call((group.name, what, part, number), "all_to_all", group.ranks,
                    sum(moved.values()), "deepep", moved)  # fmt: skip
        program.call(COMPUTE, kernel, [call])
    program.end()
