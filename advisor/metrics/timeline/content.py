"""What a rank's recording holds: kinds of events, how much of the device's time is understood, and
whether it is training or inference. Without this, nothing found in nothing would pass for health.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from advisor.model.communication import compute_pattern
from advisor.store.columns import rows
from advisor.vocabulary.dtypes import element
from advisor.vocabulary.numbers import INT64_MAX
from advisor.vocabulary.operations import elements_in, parse_json

# Names that engines of inference leave in traces: their Python frames, operators and kernels. What
# runs kernels of others comes before those others: SGLang's for ROCm have vLLM's namespace.
ENGINES: tuple[tuple[str, str], ...] = (
    # sgl-project/sglang python/sglang, sgl-kernel
    ("SGLang", r"\bsglang(/|::|\.)|\bsgl_kernel"),
    # vllm-project/vllm csrc/torch_bindings.cpp (ops _C, _C_cache_ops) and Python paths
    ("vLLM", r"\bvllm(/|::|\.)|^_C_cache_ops::|reshape_and_cache|paged_attention_v[12]"),
    # NVIDIA/TensorRT-LLM cpp/tensorrt_llm, thop (ops trtllm::)
    ("TensorRT-LLM", r"\btensorrt_llm(/|::|\.)|^trtllm::"),
    # NVIDIA/TensorRT: the ranges that its runtime opens (NVTX)
    ("TensorRT", r"^ExecutionContext::(execute|enqueue)"),
    # huggingface/diffusers src/diffusers (pipelines' frames)
    ("diffusers", r"\bdiffusers/(pipelines|schedulers)"),
    # flashinfer-ai/flashinfer include/flashinfer/attention: attention over cached keys
    ("an engine on FlashInfer", r"Batch(Prefill|Decode)With(Paged|Ragged)?KV|BatchDecodeWith"),
)
# What only training does: pytorch/pytorch torch/csrc/autograd (nodes), torch/optim (hooks), DDP and
# FSDP; Megatron's op tables; backward kernels (not cuDNN's dgrad: transposed convolutions use it).
TRAINING = (
    r"^autograd::engine|^Optimizer\.(step|zero_grad)#|AccumulateGrad|Backward\d*$|^FSDP::\w*backward"
    r"|DistributedDataParallel\.forward|^## backward|^backward-compute$|^grads-"
    r"|(?i:_bwd|_backward|wgrad|multi_tensor_apply.*(adam|lamb|sgd))"
)
# Operators of a model: where they were recorded and nothing of TRAINING, it was a forward pass.
_MODEL = r"^aten::(\w*mm|matmul|linear|\w*convolution\w*)$"
# Frameworks of training that have settings of their own for what others write by hand, by the paths
# of their Python files and the ranges that they open.
TRAINERS: tuple[tuple[str, str], ...] = (
    # deepspeed/runtime/zero/parameter_offload.py: the nodes around each module of ZeRO-3
    ("DeepSpeed", r"\bdeepspeed/runtime/|^DeepSpeedEngine|^PreBackwardFunctionForModule"),
    # pytorch/pytorch torch/distributed/fsdp: ranges of either, around compiled modules too
    ("FSDP2", r"^FSDP::"),
    ("FSDP1", r"^FullyShardedDataParallel\."),
    # pytorch/pytorch torch/_inductor/output_code.py: the range around each compiled graph
    ("torch.compile", r"^## Call CompiledFxGraph"),
)
# What a process of a job of several ranks leaves: c10d's operators and ranges, backends' kernels,
# wrappers' ranges (pytorch/pytorch torch/csrc/distributed/c10d, torch/nn/parallel).
_OF_SEVERAL = (
    r"(?i:nccl|rccl|gloo|hccl|xccl|oneccl|nvshmem|all_?reduce|all_?gather|reduce_?scatter)"
    r"|^_?c10d|^record_param_comms$|^FSDP::|DistributedDataParallel"
)
# pytorch/pytorch torch/distributed/fsdp/_fully_shard/_fsdp_state.py: what was set to be prefetched
_PREFETCHES = r"^FSDP::forward_prefetch for "
# PyTorch's kernels, and those that Inductor writes (torch/_inductor/codegen/triton.py).
_OF_TORCH = re.compile(r"\bat::|\bc10::|_ZN2at|at_cuda_detail|\btriton_")
_MOST_NAMED = 5
# Of a kernel's name its type, its template's arguments and its own; instances count together.
_GROUP = re.compile(r"^(?:void )?((?:\(anonymous namespace\)|<unnamed>|[^<(])+)")
# Matrix products, convolutions and attention, and which of them work on 16 bits or fewer, by their
# names: cuBLAS (bf16_s16816gemm, h884gemm, hgemm), CUTLASS (cutlass::bfloat16_t), cuBLASLt's nvjet
# (nvjet_hsh for half, nvjet_tst for bfloat16), rocBLAS (Cijk_..._BBS, HHS).
MATRIX = r"(?i)gemm|nvjet|Cijk_|cutlass|flash|fmha|conv|xmma|attention"
_NARROW = (
    r"(?i)bf16|bfloat16|fp16|f16f16|half|_f16|h884|h1688|h16816|hgemm|nvjet_(sm\d+_)?[htqo]"
    r"|_(BBS|HHS|BSS|HSS|HHH|F8)|e4m3|fp8"
)

# Of fp32 and of no other type, which tensor cores (s1688gemm, tensorop, tf32) do not compute:
# cuBLAS (ampere_sgemm_128x64_tn), CUTLASS (cutlass_80_simt_sgemm), cuDNN (volta_scudnn_128x128,
# implicit_convolve_sgemm), and both on Hopper (sm80_xmma_gemm_f32f32_f32f32_f32_..._ffma_aligna4);
# names in Kineto traces of PyTorch.
_PLAIN_FP32 = r"(^|_|\b)(sgemm|scudnn)(_|\b)|implicit_convolve_sgemm|_ffma_"

_KINDS = """
    SELECT rank, count(*) FILTER (class = 'cpu_op') AS cpu_ops,
      count(*) FILTER (class = 'runtime') AS runtime_calls,
      count(*) FILTER (class = 'runtime' AND regexp_matches(name, '^(cuda|hip|cu[A-Z]).*(Launch|Memcpy|Memset)')) AS launches,
      median(dur_ns) FILTER (class = 'runtime' AND contains(name, 'LaunchKernel'))::BIGINT AS launch_ns,
      count(*) FILTER (class = 'annotation' AND category IS DISTINCT FROM 'Trace' AND dur_ns > 0) AS annotations,
      count(*) FILTER (class = 'python') AS python_calls,
      count(*) FILTER (class = 'comm' AND device IS NULL) AS backend_spans,
      count(*) FILTER (device IS NULL AND starts_with(name, 'Optimizer.step#')) AS updates,
      coalesce(bool_or(class = 'runtime' AND contains(name, 'GraphLaunch')), false) AS graphs,
      count(*) FILTER (device IS NOT NULL AND category IS DISTINCT FROM 'gpu_user_annotation') AS device_events
    FROM event WHERE run = $1 GROUP BY rank ORDER BY rank
"""  # noqa: E501
# A kernel is understood by its own name, or because an operator of PyTorch launched it: operators
# are looked for only where names say nothing.
_KERNELS = f"""
    WITH kernel AS MATERIALIZED (
      SELECT rank, name, external_id, class, dur_ns FROM event
      WHERE run = $1 AND device IS NOT NULL AND class IN ('compute', 'comm')
        AND category IS DISTINCT FROM 'gpu_user_annotation' AND dur_ns > 0),
    known AS (
      SELECT name, bool_or(class = 'comm') OR regexp_matches(name, $2) AS by_name
      FROM kernel GROUP BY name),
    asked AS MATERIALIZED (
      SELECT rank, name, external_id FROM kernel JOIN known USING (name)
      WHERE NOT by_name AND external_id > 0),
    launched AS (
      SELECT rank, name, count(*) AS calls FROM asked WHERE (rank, external_id) IN (
        SELECT (rank, external_id) FROM event
        WHERE run = $1 AND class = 'cpu_op' AND starts_with(name, 'aten::')
          AND external_id IN (SELECT external_id FROM asked))
      GROUP BY rank, name)
    SELECT rank, name, count(*), least(sum(dur_ns), {INT64_MAX})::BIGINT,
      any_value(by_name) OR coalesce(any_value(l.calls), 0) * 2 > count(*)
    FROM kernel JOIN known USING (name) LEFT JOIN launched l USING (rank, name)
    GROUP BY rank, name ORDER BY rank, 4 DESC, name
"""


# By the kernels' names, or by the types of the operators that ask for them. The patterns are tried
# on each distinct text, of which there are few.
_NARROW_KERNELS = f"""
    SELECT rank, sum(ns) FILTER (regexp_matches(name, $3)) / sum(ns),
      least(coalesce(sum(ns) FILTER (regexp_matches(name, $4)), 0), {INT64_MAX})::BIGINT FROM (
      SELECT rank, name, sum(dur_ns) AS ns FROM event
      WHERE run = $1 AND class = 'compute' AND device IS NOT NULL AND dur_ns > 0 GROUP BY ALL)
    WHERE regexp_matches(name, $2) OR regexp_matches(name, $4) GROUP BY rank
"""
_NARROW_OPERATORS = """
    SELECT rank, sum(calls) FILTER (regexp_matches(input_types, 'BFloat16|Half')) / sum(calls)
    FROM (SELECT rank, input_types, count(*) AS calls
      FROM event JOIN comm_event USING (run, rank, event_id)
      WHERE run = $1 AND class = 'cpu_op' AND starts_with(name, 'aten::')
        AND input_types IS NOT NULL GROUP BY ALL) GROUP BY rank
"""
_GRADIENTS = """
    SELECT DISTINCT rank, input_dims, input_types FROM event JOIN comm_event USING (run, rank, event_id)
    WHERE run = $1 AND name = 'torch::autograd::AccumulateGrad' AND input_dims IS NOT NULL
"""  # noqa: E501

# A launch takes microseconds: what is longer ends after it, unless the launch waits for it. The
# clocks of host and device differ by a few of them.
_BLOCKING = """
    SELECT rank, avg((l.end_ns + 5000 >= k.start_ns + k.dur_ns)::INT) > 0.9
    FROM event k JOIN (
      SELECT rank, correlation, max(start_ns + dur_ns) AS end_ns FROM event
      WHERE run = $1 AND class = 'runtime' AND correlation > 0 GROUP BY ALL) l
      USING (rank, correlation)
    WHERE run = $1 AND class = 'compute' AND device IS NOT NULL AND dur_ns > 20000 GROUP BY rank
"""


def _largest_gradients(con: Any, run: str) -> dict[int, int]:
    """rank -> bytes of its largest gradient, as far as shapes were recorded."""
    found: dict[int, int] = {}
    for rank, dims, types in rows(con, _GRADIENTS, [run]):
        elements, kinds = elements_in(parse_json(dims)), parse_json(types)
        width = element(str(kinds[0]))[1] if isinstance(kinds, list) and kinds else None
        if elements and width:
            found[rank] = max(found.get(rank, 0), elements * width)
    return found


def content_rows(con: Any, run: str) -> list[dict[str, Any]]:
    """Rows of ``rank_content``."""
    kinds = rows(con, _KINDS, [run])
    on_device = any(events for *_, events in kinds)
    kernels = _kernels(con, run) if on_device else {}
    purpose, engine, communicates, prefetches = _purpose(con, run)
    narrow, plain = _precisions(con, run, on_device=on_device)
    gradients = _largest_gradients(con, run)
    blocking = dict(rows(con, _BLOCKING, [run])) if on_device else {}
    ((torchs,),) = rows(con, "SELECT bool_or(format = 'kineto') FROM source WHERE run = $1", [run])
    found = []
    for rank, ops, runtime, launches, took, notes, python, spans, updates, graphs, events in kinds:
        all_ns, known_ns, unknown, groups, by_torch = kernels.get(rank, (0, 0, [], Counter(), None))
        found.append(
            {
                "run": run,
                "rank": rank,
                "cpu_ops": ops,
                "runtime_calls": runtime,
                "launches": launches,
                "launch_ns": took,
                "annotations": notes,
                "python_calls": python,
                "backend_spans": spans,
                "updates": updates,
                "device_events": events,
                "kernel_ns": min(all_ns, INT64_MAX),
                "known_ns": min(known_ns, INT64_MAX),
                "unknown_kernels": json.dumps(unknown[:_MOST_NAMED]) if unknown else None,
                "longest_kernels": json.dumps(
                    [{"name": name, "ns": ns} for name, ns in groups.most_common(_MOST_NAMED)]
                ),
                "narrow_share": narrow.get(rank),
                "plain_fp32_ns": plain.get(rank, 0),
                "largest_gradient_bytes": gradients.get(rank),
                "purpose": purpose,
                "engine": engine,
                "alone": not communicates,
                "by_torch": True if torchs or ops > 0 else by_torch,
                "prefetches": prefetches,
                "blocks": blocking.get(rank),
                "replays": graphs and events > 2 * launches,
            }
        )
    return found


def _precisions(con: Any, run: str, *, on_device: bool) -> tuple[dict[int, float], dict[int, int]]:
    """rank -> share of its matrix products on 16 bits or fewer, as far as names or types tell;
    rank -> ns of those in fp32 without tensor cores."""
    shares: dict[int, float] = {}
    plain: dict[int, int] = {}
    for rank, share in rows(con, _NARROW_OPERATORS, [run]):
        shares[rank] = share or 0.0
    if on_device:
        for rank, share, ns in rows(con, _NARROW_KERNELS, [run, MATRIX, _NARROW, _PLAIN_FP32]):
            shares[rank] = max(shares.get(rank, 0.0), share or 0.0)
            plain[rank] = ns
    return shares, plain


# Time in kernels, time in those understood (ns), the others by time, time by the names of groups,
# and whether one of them is PyTorch's.
_Kernels = tuple[int, int, list[dict[str, Any]], Counter[str], bool | None]


def _kernels(con: Any, run: str) -> Mapping[int, _Kernels]:
    """rank -> its kernels."""
    result: dict[int, _Kernels] = {}
    for rank, name, calls, ns, known in rows(con, _KERNELS, [run, compute_pattern()]):
        all_ns, known_ns, unknown, groups, by_torch = result.get(
            rank, (0, 0, [], Counter[str](), False)
        )
        if not known:
            unknown.append({"name": str(name)[:200], "calls": calls, "ns": ns})
        group = _GROUP.match(str(name))
        groups[(group[1] if group else str(name))[:200]] += ns
        by_torch = by_torch or _OF_TORCH.search(str(name)) is not None
        result[rank] = (all_ns + ns, known_ns + (ns if known else 0), unknown, groups, by_torch)
    return result


def _purpose(con: Any, run: str) -> tuple[str | None, str | None, bool, bool]:
    """What the recording is of, the engine's name, whether several ranks work, and whether they
    were told to prefetch."""
    names = "(SELECT DISTINCT name FROM event WHERE run = $1 AND name IS NOT NULL)"
    engines = (*ENGINES, *TRAINERS)
    patterns = [TRAINING, _OF_SEVERAL, _PREFETCHES, _MODEL, *(pattern for _, pattern in engines)]
    tests = ", ".join(f"bool_or(regexp_matches(name, ${at + 2}))" for at in range(len(patterns)))
    ((trains, several, ahead, forward, *seen),) = rows(
        con, f"SELECT {tests} FROM {names}", [run, *patterns]
    )
    found = [engine for (engine, _), one in zip(engines, seen, strict=True) if one]
    if trains:
        trainers = {name for name, _ in TRAINERS}
        trainer = next((one for one in found if one in trainers), None)
        return "training", trainer, bool(several), bool(ahead)
    engine = next((one for one in found if one in dict(ENGINES)), None)
    purpose = "inference" if engine else "forward" if forward else None
    return purpose, engine, bool(several), bool(ahead)
