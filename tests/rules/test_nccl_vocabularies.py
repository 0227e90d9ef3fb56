"""The closed vocabularies in which systems name a failure are known whole, not as they were seen.

Python's exceptions, the operating system's error numbers, exit codes, MPI's errors, the states of
Slurm and the reasons of Kubernetes, and the results of CUDA's libraries: each list is the system's.
"""

from __future__ import annotations

import builtins
import errno
import os

import pytest

from advisor.model.nccl.effects import named_by_class
from advisor.model.nccl.messages import messages, named

# They are raised for what no class tells, or for no error.
_UNTOLD = {
    "Exception",
    "ExceptionGroup",
    "BufferError",
    "ReferenceError",
    "RuntimeError",
    "OSError",
}
_UNTOLD |= {
    "SystemError",
    "ChildProcessError",
    "ProcessLookupError",
    "InterruptedError",
    "EOFError",
}
_UNTOLD |= {
    "EnvironmentError",
    "IOError",
    "AttributeError",
    "ModuleNotFoundError",
    "BlockingIOError",
}
_UNTOLD |= {"ArithmeticError", "UnicodeError", "UnicodeEncodeError", "UnicodeTranslateError"}
EXCEPTIONS = [
    name
    for name, item in vars(builtins).items()
    if isinstance(item, type) and issubclass(item, Exception) and name.endswith("Error")
]
FORM_ONLY = {None, "exception", "logged-error", "cpp-exception"}


def test_the_class_of_an_exception_tells_what_happened() -> None:
    found = {name: named(f"{name}: something", is_warning=False) for name in EXCEPTIONS}
    assert {name for name, message in found.items() if message in FORM_ONLY} <= _UNTOLD
    assert found["KeyError"] == "key-missing"
    assert found["ZeroDivisionError"] == "count-zero"
    assert found["UnboundLocalError"] == found["IndentationError"] == "code-fault"
    assert found["BrokenPipeError"] == "connection-ended"


def test_a_text_that_tells_more_than_the_class_is_asked_first() -> None:
    lines = {
        "AttributeError: 'NoneType' object has no attribute 'step'": "value-none",
        "AttributeError: 'DistributedDataParallel' object has no attribute 'loss'": "model-wrapped",
        "AttributeError: 'GPT2LMHeadModel' object has no attribute 'model'": "attribute-missing",
        "AttributeError: module 'torch' has no attribute 'compiler'": "api-differs",
        "EOFError: EOF when reading a line": "input-asked",
        "RuntimeError: Using async gradient all reduce requires setting the environment variable "
        "CUDA_DEVICE_MAX_CONNECTIONS to 1": "environment-asked",
        "RuntimeError: NVSHMEM_MAX_CTAS must be set to '2' here": "environment-asked",
        "AssertionError: linear_key_head_dim must be set for gated delta net.": "option-unfit",
        "ValueError: loss is NaN": "not-finite",
    }
    assert {line: named(line, is_warning=False) for line in lines} == lines


NUMBERS = [
    *(errno.EPERM, errno.ENOENT, errno.EINTR, errno.EIO, errno.ENXIO, errno.EAGAIN, errno.ENOMEM),
    *(errno.EACCES, errno.EBUSY, errno.EEXIST, errno.ENODEV, errno.ENOTDIR, errno.EISDIR),
    *(
        errno.EINVAL,
        errno.EMFILE,
        errno.ENOTTY,
        errno.EFBIG,
        errno.ENOSPC,
        errno.EROFS,
        errno.EPIPE,
    ),
    *(errno.ENAMETOOLONG, errno.ENOLCK, errno.ENOSYS, errno.ENOTEMPTY, errno.ELOOP),
    *(errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.ENETDOWN, errno.ENETUNREACH, errno.ECONNRESET),
    *(errno.ENOBUFS, errno.ETIMEDOUT, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ESTALE),
    *(errno.EREMOTEIO, errno.EDQUOT, errno.ETXTBSY),
]


def test_a_number_of_the_operating_system_has_a_name() -> None:
    """The class is Python's own for it: FileNotFoundError, ConnectionResetError and the like."""
    for number in NUMBERS:
        raised = OSError(number, os.strerror(number), "/data/x")
        line = f"{type(raised).__name__}: {raised}"
        assert named(line, is_warning=False) not in FORM_ONLY, line


EXITS = [
    "  exitcode  : {code} (pid: 6421)",
    "failed (exitcode: {code}) local_rank: 0 (pid: 6421) of binary: /usr/bin/python",
    "exits with return code = {code}",
    "srun: error: n1: task 3: Exited with exit code {code}",
    "    Exit Code:    {code}",
    "ProcessExitedException: process 0 terminated with exit code {code}",
    "Exit code: {code}",
    "returned non-zero exit status {code}.",
]
CODES = {
    "exit-usage": [2],
    "exit-start": [126, 127],
    "rank-killed": [-9, 137, 247],
    "loader-shared-memory": [-7, 135, 249],
    "segmentation-fault": [-11, 139, 245],
    "aborted": [-6, 134, 250],
    "stopped": [-15, 143],
    "child-failed": [1, 3, 255],
}


@pytest.mark.parametrize("message", CODES)
def test_an_exit_code_tells_what_it_means(message: str) -> None:
    lines = [form.format(code=code) for form in EXITS for code in CODES[message]]
    assert {line: named(line, is_warning=False) for line in lines} == dict.fromkeys(lines, message)


def test_no_end_is_told_by_a_code_of_nought() -> None:
    lines = ("exits with return code = 0", "Exit code: 0", "    Exit Code:    0", "exit status 0")
    assert {named(line, is_warning=False) for line in lines} == {None}


WORDS = {
    "pod-evicted": ["  Reason:       Evicted", "Warning  Preempting  2m  kubelet  text",
                    "pod/worker-0   0/1   NodeShutdown   0   3m"],
    "container-start": ["pyxis:     [ERROR] Command not found: nvidia-container-cli, see x",
                        "  Reason:       ContainerCannotRun", "RunContainerError: failed",
                        "pod/worker-0   0/1   CreateContainerConfigError   0   3m"],
    "image-pull": ["  Reason:       InvalidImageName", "pyxis: failed to import docker image"],
    # Pyxis' own lines tell nothing, those of enroot's log below do.
    "container-ended": ["slurmstepd: error: pyxis: container start failed with error code: 1",
                        "slurmstepd: error: spank: required plugin spank_pyxis.so: init"],
    "ray-worker-refused": ["Failed to register worker 2ea0a7 to Raylet. Invalid: Unknown worker"],
    "time-limit": ["JobState=TIMEOUT Reason=TimeLimit Dependency=(null)",
                   "12345.0  train  gpu  acct  64  TIMEOUT  0:0",
                   "  Reason:       DeadlineExceeded"],
    "node-failure": ["JobState=NODE_FAIL Reason=None", "12345.0  train  gpu  BOOT_FAIL  0:0"],
    "host-memory-killed": ["JobState=OUT_OF_MEMORY Reason=OutOfMemory",
                           "12345.0  train  gpu  OUT_OF_ME+  0:125"],
    "preempted": ["12345.0  train  gpu  acct  64  PREEMPTED  0:0"],
    "cancelled": ["12345.0  train  gpu  acct  64  CANCELLED by 1000  0:0"],
    "peer-closed": ["An MPI communication peer process has unexpectedly disconnected.  This",
                    "[mpiexec@n1] HYD_sock_write: write error (Bad file descriptor)"],
    "mpi-daemon-lost": ["ORTE has lost communication with a remote daemon."],
    "mpi-tcp": ["WARNING: Open MPI failed to TCP connect to a peer MPI process.  This"],
    "program-missing": ["mpirun was unable to launch the specified application as it could not",
                        "mpirun was unable to find the specified executable file, and therefore",
                        "pyxis:     enroot-switchroot: failed to execute: /bin/bash: No such file"],
    "container-restarts": ["Warning  BackOff  2m  kubelet  Back-off restarting failed container",
                           "pod/worker-0   0/1   CrashLoopBackOff   4   3m"],
    "no-cuda-device": ["XlaRuntimeError: FAILED_PRECONDITION: No visible GPU devices."],
    "too-many-files": ["OSError: [Errno 28] inotify watch limit reached"],
    "ptx-unsupported": ["INTERNAL: Failed to launch ROCm kernel: f: hipError_t(303)"],
    "threads": ["RuntimeError: Resource temporarily unavailable"],
    "sizes-do-not-divide": ["ValueError: World size (2) is insufficient for PP=2, TP=2"],
    # What an engine or a launcher says of a process of its own.
    "child-failed": ["[2026-01-01 10:00:00 TP5] Scheduler hit an exception: Traceback (most recent",
                     "Child process with PID 652 terminated with code 1. Forcefully terminating",
                     "ERROR text_generation_launcher: Shard 1 failed to start"],
    "cublas-start": ["cusolver error: CUSOLVER_STATUS_NOT_INITIALIZED, when calling `x`",
                     "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED"],
    "cudnn-failed": ["RuntimeError: cuFFT error: CUFFT_INTERNAL_ERROR",
                     "cusparse error: CUSPARSE_STATUS_EXECUTION_FAILED, when calling `x`"],
    "jax-coordination": ["jax.errors.JaxRuntimeError: UNAVAILABLE: connection reset"],
    "container-kernel": ["slurmstepd: error: pyxis: seccomp filter failed: Not permitted"],
    "no-route": ["OSError: [Errno 113] No route to host"],
    # A number of the system's in each form: Python's, Rust's for people and for programmers.
    "disk-full": ["OSError: [Errno 28] No space left on device",
                  "No space left on device (os error 28)",
                  'IoError(Os { code: 28, kind: StorageFull, message: "No space left" })'],
    "device-absent": ["OSError: [Errno 16] Device or resource busy: 'a'",
                      'Os { code: 16, kind: ResourceBusy, message: "Device or resource busy" }'],
}  # fmt: skip


@pytest.mark.parametrize("message", WORDS)
def test_a_schedulers_and_a_librarys_words_are_known(message: str) -> None:
    lines = WORDS[message]
    assert {line: named(line, is_warning=False) for line in lines} == dict.fromkeys(lines, message)


def test_the_same_words_in_other_sentences_name_nothing() -> None:
    lines = (
        "epoch 3 TIMEOUT margin 0.2",
        "2 pods were Evicted from the cache of samples",
        "INFO: exit code 127 handled",
        "FAILED 0 of 12 checks",
        "loading module errno",
    )
    ends = {item.id for item in messages() if item.effect in {"dies", "waits", "ended"}}
    assert {named(line, is_warning=False) for line in lines} & ends <= {"exit-start"}


def test_what_only_the_class_names_is_asked_after_the_calls() -> None:
    by_class = named_by_class()
    assert {"exception", "key-missing", "assertion", "value-refused"} <= by_class
    assert by_class.isdisjoint({"module-missing", "out-of-memory", "checkpoint-differs"})


# Of slurm_errno.c, whose texts its commands print behind what they could not do.
SLURMS_ERRORS = {
    "Message receive failure": "slurm-no-answer",
    "Connection timed out reading": "slurm-no-answer",
    "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)":
        "slurm-account",
    "Invalid account or account/partition combination specified": "slurm-account",
    "User's group not permitted to use this partition": "slurm-account",
    "Incompatible versions of client and server code": "slurm-versions",
    "Invalid generic resource (gres) specification": "slurm-gres",
    "Requested node configuration is not available": "step-refused",
}  # fmt: skip


@pytest.mark.parametrize("said", SLURMS_ERRORS)
def test_an_error_of_slurms_is_known_behind_what_failed(said: str) -> None:
    failed = (
        "srun: error: Unable to allocate resources: ",
        "sbatch: error: Batch job submission failed: ",
        "salloc: error: Job submit/allocate failed: ",
    )
    assert {named(f"{head}{said}", is_warning=False) for head in failed} == {SLURMS_ERRORS[said]}
