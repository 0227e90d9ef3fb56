"""The forms in which launchers, shells and programs write one and the same end or error.

Each form is that of a tool (torchrun, DeepSpeed, Slurm, Hydra, Ray, SGLang, TGI, Composer, Paddle,
Go's and Python's runtimes, spconv, Kaldi, Paddle, TensorRT): the number is put in by the test.
"""

from __future__ import annotations

import pytest

from advisor.ingest.readers.nccl_log.whence import whence
from advisor.model.nccl.messages import named

CODES = [
    "Rank 2 crashed with exit code {code}",
    "process exited with code {code}",
    "returned non-zero exit status {code}.",
    "=   EXIT CODE: {code}",
    "    Exit Code:    {code}",
    "ExitCode={code}",
    "exitcode={code}",
    "  exitcode  : {code} (pid: 6421)",
    "Rank 0 scheduler died (exit code: {code})",
    "Worker proc VllmWorker-1 died unexpectedly (exit code {code}).",
    "child process 3312 exited with exit status {code}",
    "AlgorithmError: Exit Code: {code}",
    "exits with return code = {code}",
]
SIGNALS = [
    "=   KILLED BY SIGNAL: {number} ({words})",
    "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: {words} (signal {number})",
    "Process 3 was killed by signal {number}",
    "text_generation_launcher: Shard process was signaled to shutdown with signal {number} rank=1",
    "Received signal {number} ({name})",
    "terminated by signal {name}",
    "signal {number} ({words}).",
    "Process SpawnProcess-1 died: {name}",
    "FatalError: `{words}` is detected by the operating system.",
    "run.sh: line 12: 3456 {words}                  (core dumped) python train.py",
    "srun: error: gpu01: task 3: {words}",
]
ENDED = {
    "illegal-instruction": (4, "SIGILL", "Illegal instruction"),
    "loader-shared-memory": (7, "SIGBUS", "Bus error"),
    "rank-killed": (9, "SIGKILL", "Killed"),
    "segmentation-fault": (11, "SIGSEGV", "Segmentation fault"),
}


@pytest.mark.parametrize("message", ENDED)
def test_a_signal_is_known_however_a_launcher_writes_it(message: str) -> None:
    number, name, words = ENDED[message]
    lines = [form.format(number=number, name=name, words=words) for form in SIGNALS]
    lines += [form.format(code=code) for form in CODES for code in (-number, 128 + number)]
    assert {line: named(line, is_warning=False) for line in lines} == dict.fromkeys(lines, message)


@pytest.mark.parametrize("words", ["Illegal instruction", "Killed", "Segmentation fault"])
def test_a_loader_worker_that_a_signal_ended_is_no_rank(words: str) -> None:
    line = f"DataLoader worker (pid 77) is killed by signal: {words}."
    assert named(line, is_warning=False) == "loader-worker-ended"


def test_what_tells_of_no_end_by_a_signal_is_not_read_as_one() -> None:
    lines = [
        "Sending signal 9 to process 4711",
        "exited with code 0",
        "epoch 137 step 139: loss 1.35",
        "[INFO] Killing subprocess 2201",
        "signal 9 of 11 channels",
        "INFO: 10.0.0.1:48606 - GET /health 200 OK, exit code: 0",
    ]
    ended = {named(line, is_warning=False) for line in lines} & {*ENDED, "child-failed"}
    assert not ended


NUMBERED = [
    "cuda execution failed with error {number}",
    "CUDA error({number}).",
    "RuntimeError: cuda runtime error ({number}) at /pytorch/aten/src",
    "CUDA error {number}",
    "cudaError_t {number} returned from 'cudaMemcpy'",
    "CUDA_CHECK failed: cudaError{name}",
    "CUDA error at line 3 code={number}(cudaError{name})",
    "an error occurred: hipError{name}",
]
RETURNED = {
    "out-of-memory": (2, "MemoryAllocation"),
    "driver-too-old": (35, "InsufficientDriver"),
    "devices-busy": (46, "DevicesUnavailable"),
    "ptx-unsupported": (209, "NoKernelImageForDevice"),
    "no-cuda-device": (100, "NoDevice"),
    "invalid-device": (101, "InvalidDevice"),
    "gpu-memory-error": (214, "ECCUncorrectable"),
    "nvlink-error": (220, "NvlinkUncorrectable"),
    "illegal-access": (719, "LaunchFailure"),
    "fabric-manager": (802, "SystemNotReady"),
    "launch-refused": (720, "CooperativeLaunchTooLarge"),
    "peer-access": (217, "PeerAccessUnsupported"),
    "mps": (805, "MpsConnectionFailed"),
    "not-supported": (801, "NotSupported"),
    "capture-call": (900, "StreamCaptureUnsupported"),
    "driver-state": (999, "Unknown"),
}


@pytest.mark.parametrize("message", RETURNED)
def test_an_error_of_cudas_is_known_by_its_number_or_its_name(message: str) -> None:
    number, name = RETURNED[message]
    lines = [form.format(number=number, name=name) for form in NUMBERED]
    assert {line: named(line, is_warning=False) for line in lines} == dict.fromkeys(lines, message)


def test_another_number_is_another_error() -> None:
    assert named("cuda execution failed with error 98", is_warning=False) == "ptx-unsupported"
    assert named("cuda execution failed with error 9", is_warning=False) != "ptx-unsupported"
    assert named("cudaErrorInvalidDeviceFunction", is_warning=False) == "ptx-unsupported"


# CUDA's own sentences, which DeepEP, FlashInfer and others print behind a file and a line.
CUDAS_WORDS = {
    "exclusive-thread device already in use by a different thread": "devices-busy",
    "a PTX JIT compilation failed": "ptx-unsupported",
    "too many blocks in cooperative launch": "launch-refused",
    "operation not supported": "not-supported",
    "operation not supported on global/shared address space": "illegal-access",
    "initialization error": "initialisation-error",
    "unknown error": "driver-state",
    "operation would make the legacy stream depend on a capturing blocking stream": "capture-call",
    "invalid resource handle": "cuda-error",
}


@pytest.mark.parametrize("said", CUDAS_WORDS)
def test_a_sentence_of_cudas_is_known_behind_a_place_and_without_one(said: str) -> None:
    lines = [f"CUDA error: {said}", f"Failed: CUDA error /w/csrc/kernels/launch.cu:123 '{said}'"]
    assert [named(line, is_warning=False) for line in lines] == [CUDAS_WORDS[said]] * 2


OTHERS = {
    "threads": [
        "what():  thread: Resource temporarily unavailable",
        "OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 64: Resource temporarily "
        "unavailable",
        "fork: retry: Resource temporarily unavailable",
        "OMP: Error #34: System unable to allocate necessary resources for OMP thread:",
    ],
    "module-missing": [
        "/opt/py: Error while finding module specification for 'a.cli' "
        "(ModuleNotFoundError: No module named 'a')",
        "/usr/bin/python3: No module named torch.distributed",
        "ImportError: No module named horovod.torch",
    ],
    "launcher-missing": [
        "/bin/sh: 1: torchrun: not found",
        "slurm_script: line 12: torchrun: command not found",
        "FileNotFoundError: [Errno 2] No such file or directory: 'torchrun'",
        'exec: "torchrun": executable file not found in $PATH',
        "RuntimeError: launcher 'pdsh' not installed.",
    ],
    "host-memory": [
        "  what():  std::bad_alloc",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 12.0 GiB for an array",
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1073741824 bytes.",
    ],
    "child-failed": [
        "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
        "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD",
        "ABORT!!! Out of all 4 trainers, the trainer process with rank=[0, 3] was aborted.",
        "Rank 2 crashed with exit code -3",
    ],
    "address-family": ["RuntimeError: ss1.ss_family == ss2.ss_family. 2 vs 10"],
    "gloo": ["[../third_party/gloo/gloo/transport/tcp/pair.cc:536] : Connection refused"],
    "parallel-sizes": [
        "AssertionError: Number of layers should be divisible by the pipeline-model-parallel size",
        "decoder world_size (4) is not divisible by expert_tensor_model_pipeline_parallel size (8)",
    ],
}


def test_known_causes_are_named_in_the_words_of_other_programs() -> None:
    assert {line: named(line, is_warning=False) for lines in OTHERS.values() for line in lines} == {
        line: cause for cause, lines in OTHERS.items() for line in lines
    }


SAID = {
    "host-memory-killed": [
        "slurmstepd: error: Exceeded step memory limit at some point.",
        "slurmstepd: error: Job 12 exceeded virtual memory limit (9 > 8), being killed",
        "srun: error: gpu01: tasks 0-3,7: Out Of Memory",
        "[12.5] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python,pid=12,uid=1",
        "Killed process 12 (python), UID 1000, total-vm:9kB, anon-rss:8kB",
        "slurmstepd: error: *** JOB 12 ON gpu01 CANCELLED AT 2026-01-02T03:04:05 DUE TO MEMORY ***",
    ],
    "slurm-gres": [
        "sbatch: error: Invalid generic resource (gres) specification",
        "srun: error: Unable to create step: Invalid generic resource (gres) specification",
        "srun: error: Invalid GRES specification (with and without type identification)",
        "slurmstepd: error: gres/gpu: unable to set CUDA_VISIBLE_DEVICES, no device files",
    ],
    "step-refused": [
        "salloc: error: Job submit/allocate failed: Requested node configuration is not available",
        "srun: fatal: SLURM_MEM_PER_CPU and SLURM_MEM_PER_NODE are mutually exclusive.",
    ],
    "step-waits": [
        "srun: Job 12 step creation temporarily disabled, retrying (Requested nodes are busy)"
    ],
    "host-name": [
        "HYDU_sock_connect: unable to get host address for node7 (1)",
        "dial tcp: lookup node7 on 10.96.0.10:53: no such host",
        "socket.gaierror: [Errno -5] No address associated with hostname",
    ],
    "ray-resources": ["ValueError: The number of required GPUs exceeds the total number of GPUs."],
    "engine-pools": ["RuntimeError: Prefill out of memory. Try to lower your batch size."],
    "options-refused": ["ValueError: Hostfile contains a bad entry: n1, unable to proceed"],
    "own-fault": ["AssertionError: this is a bug, please file an issue"],
    "ib-retry-exceeded": ["E0325 worker_pool.cpp:294] slice: transport retry counter exceeded"],
    "ib-rnr": ["E0325 worker_pool.cpp:294] slice: RNR retry counter exceeded"],
    "ib-local-protection": ["E0325 worker_pool.cpp:294] slice: local protection error"],
    "ib-remote-access": ["E0325 worker_pool.cpp:294] slice: remote access error"],
    "ib-flushed": ["E0325 worker_pool.cpp:294] slice: Work Request Flushed Error"],
    "shm-full": ["W store_runner.cc:83: memory request exceeds memory available in /dev/shm."],
    "dataset-helpers": [
        "ERROR:megatron.core.datasets.utils:Failed to compile the C++ dataset helper functions",
        "ImportError: cannot import name 'helpers' from 'megatron.data' (./__init__.py)",
        "ModuleNotFoundError: No module named 'megatron.core.datasets.helpers_cpp'",
    ],
    "ibverbs-driver": [
        "libibverbs: Warning: no userspace device-specific driver found for /sys/class/x",
        "libibverbs: Warning: couldn't load driver 'libi40iw-rdmav34.so': not found",
    ],
    "swap-file-short": ["/nvme/rank3/1_param.tensor.swp: buffer nbytes != file bytes 16 != 8"],
}


@pytest.mark.parametrize("message", SAID)
def test_what_a_scheduler_or_engine_refuses_is_known_in_all_its_words(message: str) -> None:
    lines = SAID[message]
    assert {line: named(line, is_warning=False) for line in lines} == dict.fromkeys(lines, message)


def test_a_short_wait_for_a_placement_group_is_nothing() -> None:
    waits = (
        "INFO ray_utils.py:214] Waiting for creating a placement group of specs for {n} seconds."
    )
    assert named(waits.format(n=10), is_warning=False) is None
    assert named(waits.format(n=70), is_warning=False) == "ray-waits"


@pytest.mark.parametrize("said", ["python3: a.cpp:2: f(): Assertion `x' failed.", "python3.11: x"])
def test_the_name_of_a_program_is_no_host(said: str) -> None:
    program, text = said.split(" ", 1)
    assert whence(f"{program} ", text).host is None


def test_a_setting_that_rccl_misses_is_named_and_one_that_is_set_is_not() -> None:
    line = "hipify/src/init.cc:155 NCCL WARN HSA_NO_SCRATCH_RECLAIM is not set with rocm older"
    assert named(line, is_warning=True) == "rccl-host-settings"
    assert named("HSA_NO_SCRATCH_RECLAIM set by user to 1", is_warning=False) is None


CXI = "libfabric:507357:1741146011::cxi:"
SLINGSHOTS = {
    f"{CXI}fabric:cxip_nic_get_rgroup_vni():253<warn> : no valid default rgroup and vni":
        "cxi-vni",
    f"{CXI}domain:cxip_cp_get():137<warn> Failed to allocate CP, ret: -28 VNI: 10": "cxi-vni",
    f"{CXI}ep_data:cxip_recv_cb():30<warn> nid1: LE resources not recovered during flow control":
        "cxi-messages",
    f"{CXI}mr:cxip_do_map():513<warn> cxil_map failed: -12:Cannot allocate memory": "cxi",
}  # fmt: skip


@pytest.mark.parametrize("line", SLINGSHOTS)
def test_what_slingshots_adapter_lacks_is_told_apart(line: str) -> None:
    assert named(line, is_warning=False) == SLINGSHOTS[line]
