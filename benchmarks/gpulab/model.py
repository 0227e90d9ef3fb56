"""The compute of a transformer: which kernels a layer launches, how long each takes alone.

Matrix products by FLOPs at the reached peak, everything else by bytes through memory. Kernel
names are those of the traces beside the project and of cuBLAS 12 and PyTorch 2.x.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from benchmarks.gpulab.job import Job
from benchmarks.gpulab.program import Kernel

_MEMORY_EFFICIENCY = 0.75
_LEAST_NS = 2_200.0
_ATTENTION_EFFICIENCY = 0.8
"""Of the matrix products' reached rate (FlashAttention-2, arXiv:2307.08691: 50-73 % of peak)."""
_SEQUENCE = 2048

_GEMM = {
    (70, "bf16"): "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn",
    (70, "fp32"): "volta_sgemm_128x64_tn",
    (80, "bf16"): "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_{}",
    (80, "fp32"): "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_{}_align4>"
    "(cutlass_80_tensorop_s1688gemm_128x128_16x5_{}_align4::Params)",
    (90, "bf16"): "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_{}",
    (90, "fp32"): "sm80_xmma_gemm_f32f32_tf32f32_f32_{}_n_tilesize128x128x32_stage3_"
    "warpsize2x2x1_tensor16x8x8_execute_kernel__5x_cublas",
    (100, "bf16"): "nvjet_sm100_hsh_256x128_64x6_2x1_2cta_h_bz_{}",
    (100, "fp32"): "nvjet_sm100_sss_128x128_32x6_2x1_h_bz_{}",
}
_ELEMENT = {"bf16": "c10::BFloat16", "fp32": "float"}


@dataclass(frozen=True)
class Step:
    """One operator: its name, its kernels, and the shapes of its inputs."""

    op: str
    kernels: tuple[Kernel, ...]
    dims: tuple[tuple[int, ...], ...] = ()


class Model:
    """Kernels of one rank. ``scale`` is how many times the job's tokens it has."""

    def __init__(self, job: Job, rank: int, scale: float = 1.0) -> None:
        self.job = job
        self.rank = rank
        self.tokens = max(64, round(job.tokens * scale / 16) * 16)
        self.flops = job.hw.flops(job.dtype)
        self.memory = job.hw.memory_rate * _MEMORY_EFFICIENCY
        self.dtype = _ELEMENT[job.dtype]

    def gemm(self, m: int, n: int, k: int, layout: str = "tn") -> Kernel:
        """A matrix product m x k by k x n."""
        capability = self.job.hw.capability // 10 * 10
        name = _GEMM[capability, self.job.dtype].format(layout, layout)
        ns = max(_LEAST_NS * 2, 2.0 * m * n * k / self.flops)
        grid = (max(1, m // 256), max(1, n // 128), 1)
        return Kernel(name, ns, grid=grid, block=(384 if capability == 90 else 256, 1, 1))

    def pointwise(self, what: str, size: int, passes: int = 3) -> Kernel:
        """An elementwise kernel over ``size`` elements; ``passes`` reads and writes."""
        name = (
            f"void at::native::vectorized_elementwise_kernel<4, at::native::{what}, "
            f"std::array<char*, 3ul> >(int, at::native::{what}, std::array<char*, 3ul>)"
        )
        return self._memory_kernel(name, size, passes)

    def norm(self, backward: bool = False) -> Kernel:
        """Layer norm of the hidden state."""
        what = (
            "layer_norm_grad_input_kernel_vectorized"
            if backward
            else ("vectorized_layer_norm_kernel")
        )
        name = (
            f"void at::native::(anonymous namespace)::{what}<{self.dtype}, float>(int, float, "
            f"{self.dtype} const*, {self.dtype} const*, {self.dtype} const*, float*, float*, "
            f"{self.dtype}*)"
        )
        return self._memory_kernel(name, self.tokens * self.job.hidden, 4 if backward else 2)

    def attention(self, backward: bool = False) -> Kernel:
        """Flash attention; backward does 2.5 times the work."""
        what = "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel" if backward else "flash_fwd_kernel"
        name = (
            f"void pytorch_flash::{what}<Flash_{'bwd' if backward else 'fwd'}_kernel_traits<128, "
            "128, 32, 4, false, false, cutlass::bfloat16_t> >(pytorch_flash::Flash_"
            f"{'bwd' if backward else 'fwd'}_params)"
        )
        sequence = min(_SEQUENCE, self.tokens)
        work = 4.0 * self.tokens * sequence * self.job.hidden / self.job.tp * 0.5
        ns = work * (2.5 if backward else 1.0) / (self.flops * _ATTENTION_EFFICIENCY)
        grid = (max(1, sequence // 128), max(1, self.tokens // sequence), 16)
        return Kernel(name, max(_LEAST_NS * 2, ns), grid=grid, block=(128, 1, 1))

    def _memory_kernel(self, name: str, size: int, passes: int) -> Kernel:
        ns = max(_LEAST_NS, size * self.job.element_bytes * passes / self.memory)
        return Kernel(name, ns, grid=(max(1, size // 1024), 1, 1), block=(128, 1, 1))

    @cached_property
    def forward(self) -> list[list[Step]]:
        """One layer's operators, in two halves: attention and MLP (TP communicates after each)."""
        t, h, w = self.tokens, self.job.hidden, self.job.hidden // self.job.tp
        return [
            [
                Step("aten::layer_norm", (self.norm(),), ((t, h), (h,))),
                Step("aten::mm", (self.gemm(t, 3 * w, h),), ((t, h), (h, 3 * w))),
                Step("aten::scaled_dot_product_attention", (self.attention(),)),
                Step("aten::mm", (self.gemm(t, h, w),), ((t, w), (w, h))),
                Step("aten::add", (self.pointwise("CUDAFunctor_add<c10::BFloat16>", t * h),)),
            ],
            [
                Step("aten::layer_norm", (self.norm(),), ((t, h), (h,))),
                Step("aten::mm", (self.gemm(t, 4 * w, h),), ((t, h), (h, 4 * w))),
                Step("aten::gelu", (self.pointwise("GeluCUDAKernelImpl", 4 * t * w, 2),)),
                Step("aten::mm", (self.gemm(t, h, 4 * w),), ((t, 4 * w), (4 * w, h))),
                Step("aten::add", (self.pointwise("CUDAFunctor_add<c10::BFloat16>", t * h),)),
            ],
        ]

    @cached_property
    def backward(self) -> list[list[Step]]:
        """One layer's autograd nodes, MLP half first."""
        t, h, w = self.tokens, self.job.hidden, self.job.hidden // self.job.tp

        def product(m: int, n: int, k: int) -> Step:
            kernels = (self.gemm(m, k, n, "nn"), self.gemm(k, n, m, "nt"))
            return Step("MmBackward0", kernels, ((m, n), (k, n)))

        return [
            [
                product(t, h, 4 * w),
                Step("GeluBackward0", (self.pointwise("GeluBackwardCUDAKernelImpl", 4 * t * w),)),
                product(t, 4 * w, h),
                Step("NativeLayerNormBackward0", (self.norm(True),)),
                Step("AddBackward0", (self.pointwise("CUDAFunctor_add<c10::BFloat16>", t * h),)),
            ],
            [
                product(t, h, w),
                Step("ScaledDotProductFlashAttentionBackward0", (self.attention(True),)),
                product(t, 3 * w, h),
                Step("NativeLayerNormBackward0", (self.norm(True),)),
                Step("AddBackward0", (self.pointwise("CUDAFunctor_add<c10::BFloat16>", t * h),)),
            ],
        ]

    def layer_ns(self) -> float:
        """Device time of a layer, forward and backward, alone."""
        return sum(
            kernel.ns
            for half in (*self.forward, *self.backward)
            for step in half
            for kernel in step.kernels
        )

    def optimizer(self, parameters: int) -> list[Kernel]:
        """Fused Adam over ``parameters``: 4 reads and 3 writes of 4 bytes, in a few launches."""
        launches = max(2, min(8, parameters // 20_000_000))
        ns = parameters * 28.0 / self.memory / launches
        name = (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::"
            "(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous "
            "namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>, float "
            "const*, double, double, double, double, double, bool, float*, float*>(...)"
        )
        return [Kernel(name, max(3_000.0, ns), grid=(320, 1, 1), block=(512, 1, 1))] * launches
