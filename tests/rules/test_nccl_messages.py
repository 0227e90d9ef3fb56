"""Lines as NCCL, its plugins and torch print them in public reports: the cause is named first.

Each case is what the report at its address shows, with hosts and numbers of our own; the cause is
what was found there, or what its maintainers say.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.config.loader import read_plain
from advisor.findings import Finding
from advisor.model.nccl.messages import messages, named
from tests.rules.outputs import LOGS, first_causes, first_named, what_differs
from tests.support.marks import thinned

_NCCL = "https://github.com/NVIDIA/nccl/issues/"
_TESTS = "https://github.com/NVIDIA/nccl-tests/issues/"
_RCCL = "https://github.com/ROCm/rccl/blob/develop/src/"
_OFI = "https://github.com/aws/aws-ofi-nccl/blob/master/src/"
WARN = "node1:301:398 [2] "
SAYS: list[tuple[str, str, str]] = [
    ("https://github.com/horovod/horovod/issues/3929", "duplicate-gpu",
     "init.cc:497 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000"),
    (_NCCL + "525", "shm-full",
     "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device"),
    (_TESTS + "166", "shm-full",
     "misc/shmutils.cc:71 NCCL WARN Error: failed to extend /dev/shm/nccl-fjwOOB to 5967876 bytes"),
    (_NCCL + "1518", "shm-create",
     "misc/shmutils.cc:114 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-N "
     "(size 9637888)"),
    (_NCCL + "1589", "shm-attach",
     "misc/shmutils.cc:129 NCCL WARN Error while attaching to shared memory segment "
     "/dev/shm/nccl-glnlGK (size 14156128), error: No such file or directory (2)"),
    (_NCCL + "1838", "cumem-host",
     "transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not supported between these "
     "two devices'"),
    (_NCCL + "1405", "ib-retry-exceeded",
     "ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<54862> with status=12 "
     "opcode=0 len=0 vendor err 129 (Recv) localGid fd00::1 remoteGidsfd00::2"),
    (_NCCL + "928", "ib-local-protection",
     "transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer fe80::1%ib0<33397> with "
     "error 4, opcode 32611, len 32611, vendor err 81 (Send)"),
    (_NCCL + "1814", "ib-flushed",
     "ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<44206> with status=5 "
     "opcode=32656 len=32659 vendor err 249 (Recv)"),
    (_NCCL + "1837", "address-garbled",
     "misc/socket.cc:560 NCCL WARN ncclSocketInit: connecting to address  with family 59936 is "
     "neither AF_INET(2) nor AF_INET6(10)"),
    ("https://github.com/marin-community/marin/issues/6940", "no-socket-interface",
     "bootstrap.cc:80 NCCL WARN Bootstrap : no socket interface found"),
    (_NCCL + "210", "address-family",
     "include/socket.h:344 NCCL WARN Socket creation failed : Address family not supported by "
     "protocol"),
    (_TESTS + "188", "socket-magic",
     "misc/socket.cc:441 NCCL WARN socketFinalizeAccept: wrong type 4 != 3"),
    (_TESTS + "15", "connection-timed-out",
     "include/socket.h:360 NCCL WARN Call to connect failed : Connection timed out"),
    ("https://github.com/espnet/espnet/issues/1940", "connection-refused",
     "include/socket.h:390 NCCL WARN Connect to 10.0.0.2<21724> failed : Connection refused"),
    (_NCCL + "1232", "peer-closed",
     "misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node2<42830>"),
    ("https://github.com/ray-project/ray_lightning/issues/24", "peer-access",
     "transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : 217 peer access is not "
     "supported between these two devices"),
    (_TESTS + "324", "peer-mappings",
     "allocator.cc:79 NCCL WARN Cuda failure 711 'peer mapping resources exhausted'"),
    (_NCCL + "1672", "nvls-failed",
     "transport/nvls.cc:598 NCCL WARN Cuda failure 1 'invalid argument'"),
    (_NCCL + "1788", "nvls-failed",
     "transport/nvls.cc:254 NCCL WARN Cuda failure 401 'the operation cannot be performed in the "
     "present state'"),
    (_TESTS + "206", "ib-register-memory",
     "misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate "
     "memory"),
    (_NCCL + "296", "mismatched-collective",
     "init.cc:1247 NCCL WARN Mismatched collective detected, please check your collective calls at "
     "and around rank 39."),
    (_NCCL + "1176", "truncated-bootstrap",
     "bootstrap.cc:131 NCCL WARN Message truncated : received 256 bytes instead of 4"),
    (_NCCL + "969", "ib-mismatch",
     "transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer 10.0.0.6<58683> collective "
     "mismatch error, local size 496640 remote size 65536"),
    ("https://github.com/aws/aws-ofi-nccl/issues/1020", "ofi-no-provider",
     "nccl_net_ofi_rdma_init:7978 NCCL WARN NET/OFI OFI fi_getinfo() call failed: No data "
     "available"),
    (_NCCL + "229", "ofi-no-provider",
     "get_ofi_provider:312 NCCL WARN NET/OFI Could not find any optimal provider"),
    ("https://github.com/aws/aws-ofi-nccl/issues/24", "ofi-av",
     "create_nccl_ofi_component:459 NCCL WARN NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid "
     "argument"),
    ("https://github.com/aws/aws-ofi-nccl/issues/161", "ofi-request",
     "process_completions:10 NCCL WARN NET/OFI Request completed with error. RC: 21. Error: "
     "unknown error"),
    ("https://github.com/aws/aws-ofi-nccl/issues/803", "ofi-shm",
     "nccl_net_ofi_init:1 NCCL WARN NET/OFI Disabling shared memory failed: Protocol not "
     "available"),
    ("https://github.com/NVIDIA/cuml/issues/5961", "driver-too-old",
     "misc/cudawrap.cc:182 NCCL WARN Cuda failure 'CUDA driver version is insufficient for CUDA "
     "runtime version'"),
    (_NCCL + "1029", "nvls-failed",
     "transport/nvls.cc:245 NCCL WARN Cuda failure 'initialization error'"),
    (_RCCL + "misc/msccl/msccl_lifecycle.cc", "msccl-schedules",
     "misc/msccl/msccl_lifecycle.cc:169 NCCL WARN MSCCL Internal Scheduler:  Unable to find "
     "algorithm files in /opt/rocm/lib/../share/rccl/msccl-algorithms. Please ensure that RCCL"),
    (_RCCL + "misc/rocm_smi_wrap.cc", "gpu-not-in-kfd",
     "misc/rocm_smi_wrap.cc:155 NCCL WARN ARSMI_lib: 0000:c1:00.0 device index not found"),
    (_OFI + "nccl_ofi_net.cpp", "ofi-shm",
     "get_ep:583 NCCL WARN NET/OFI fi_open_ops for EFA features failed. RC: -38, ERROR: Function "
     "not implemented"),
    (_OFI + "nccl_ofi_rdma.cpp", "ofi-register",
     "reg_mr:3102 NCCL WARN NET/OFI Could not register memory on data rail 0 with flag 0"),
    (_OFI + "nccl_ofi_rdma.cpp", "ofi-request",
     "process_err:1463 NCCL WARN NET/OFI Remote write completed with error. RC: 5. Flags: 0."),
    (_OFI + "nccl_ofi_ofiutils.cpp", "ofi-av",
     "init_connection:252 NCCL WARN NET/OFI Couldn't create domain. RC: -12, ERROR: Cannot "
     "allocate memory"),
    (_OFI + "nccl_ofi_api.cpp", "ofi-plugin-old",
     "nccl_net_ofi_init:79 NCCL WARN NET/OFI Initializing plugin failed"),
    (_TESTS + "166", "cuda-library",
     "misc/cudawrap.cc:179 NCCL WARN Failed to find CUDA library libcuda.so "
     "(NCCL_CUDA_PATH='') : "),
    (_NCCL + "1882", "ports-used-up",
     "misc/socket.cc:409 NCCL WARN Call to bind failed: Address already in use"),
]  # fmt: skip
UNMARKED = [
    ("watchdog-timeout", "[rank4]:[E1206 18:44:12.7552 ProcessGroupNCCL.cpp:607] [Rank 4] Watchdog "
     "caught collective operation timeout: WorkNCCL(SeqNum=7753, OpType=ALLREDUCE) ran for 600099 "
     "milliseconds before timing out."),
    ("ibverbs-missing", "node1:1:2 [6] NCCL INFO Failed to open libibverbs.so[.1]"),
    ("out-of-memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    # In every form in which the launcher, MPI, CUDA or an engine writes it.
    ("launcher-ssh", "pdsh@a1: b2: ssh exited with exit code 255"),
    ("child-failed", "pdsh@a1: b2: ssh exited with exit code 1"),  # of the program there
    ("mpi-fabric", "Open MPI failed an OFI Libfabric library call (fi_domain).  This is highly"),
    ("mpi-fabric", "At least one pair of MPI processes are unable to reach each other for"),
    ("mpi-program", "[proxy:0:1@b2] HYDU_create_process (create.c:74): execvp error on file train"),
    ("mpi", "It looks like MPI_INIT failed for some reason; your parallel process is"),
    ("slots", "All nodes which are allocated for this job are already filled."),
    ("mpi-options", "A request was made to bind to that would result in binding more"),
    ("step-refused", "sbatch: error: Batch script contains DOS line breaks (\\r\\n)"),
    ("fabric-handle", "[CUDA_ERROR_NOT_PERMITTED] operation not permitted in cuMemCreate(&h, n)"),
    ("cuda-error", "RuntimeError: CUDA driver error: device not ready"),
    ("hip-capture", "HIP error: operation not permitted on an event last recorded in a capturing "
     "stream"),
    ("launch-refused", "RuntimeError: CUDA error: invalid configuration argument"),
    ("device-plugin", "UnexpectedAdmissionError: Allocate failed due to requested number of "
     "devices unavailable for nvidia.com/gpu"),
    ("gpu-memory-taken", "ValueError: Memory is unbalanced. Some GPUs may be occupied by other "
     "processes."),
    ("kv-cache-space", "ValueError: No available memory for the cache blocks. Try increasing it."),
    ("ray-address", "RuntimeError: Every node should have a unique IP address. Got 2 nodes"),
    ("mesh-dimension", "ValueError: Mesh 'tp' is not available. Its dimension is 1"),
    ("parameter-in-parts", "ValueError: Trying to set a tensor (which has shape torch.Size([0]))"),
    ("crash-in-nccl", "PC: @     0xe1e2567f5014  (unknown)  ncclLocalOpAppend()"),
    # Of the program's own file, and not that shared memory is full.
    ("disk-full", "OSError: [Errno 28] No space left on device: 'checkpoint.pt'"),
]  # fmt: skip
HARMLESS = [
    "node1:1:2 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : "
    "libnccl-net.so: cannot open shared object file: No such file or directory",
    "node1:1:2 [0] NCCL INFO NET/Plugin : No plugin found, using internal implementation",
    "node1:1:2 [0] NCCL INFO Call to connect returned Connection refused, retrying",
    "node1:1:2 [0] NCCL INFO NVLS multicast support is not available on dev 5",
    "node1:1:2 [0] NCCL INFO Call to ibv_modify_qp failed with 110 Connection timed out, on dev "
    "mlx5_0:1, retrying 1/34 after 100 msec of sleep",
    # https://github.com/deepspeedai/DeepSpeed/issues/1846
    "Installed CUDA version 11.5 does not match the version torch was compiled with 11.8 but since "
    "the APIs are compatible, accepting this combination",
    "Using /root/.cache/torch_extensions/py310_cu121 as PyTorch extensions root...",
    # torch tries IPv6 first, and IPv4 then: https://github.com/microsoft/vidur/issues/49
    "[W socket.cpp:697] [c10d] The client socket cannot be initialized to connect to [node1]:50704 "
    "(errno: 97 - Address family not supported by protocol).",
]


@pytest.mark.parametrize(("source", "cause", "line"), SAYS, ids=[case[1] for case in SAYS])
def test_the_cause_of_a_reported_warning_is_named(source: str, cause: str, line: str) -> None:
    place, _, text = line.partition(" NCCL WARN ")
    assert named(f"{place} {text}", is_warning=True) == cause, source


def test_a_warning_of_nccls_monitor_is_told_from_the_jobs_own() -> None:
    """RAS of a second job on a host finds its port taken: vllm-project/vllm issue 19204."""
    said = "Call to bind failed: Address already in use"
    assert named(f"ras/client_support.cc:160 {said}", is_warning=True) == "ras-socket"


def test_lines_that_are_no_warnings_are_named_where_they_tell_of_an_error() -> None:
    for cause, line in UNMARKED:
        assert named(line, is_warning=False) == cause
    assert not any(named(line, is_warning=False) for line in HARMLESS)


# What libraries say they do without: the words of an error, and the job goes on.
DONE_WITHOUT = [
    "WARNING:root:RuntimeError: FlashAttention only supports Ampere GPUs or newer. Falling back to "
    "math attention.",
    "ImportError: apex not installed, using native LayerNorm",
    "WARNING: ValueError: --sequence-parallel must be set with tensor parallelism, ignored",
    "ValueError: options must be given at the same time; using defaults",
    "Exception: wandb is not installed, logging disabled",
    "ModuleNotFoundError: No module named 'amp_C' -- using fallback multi_tensor_apply",
]


@pytest.mark.parametrize("line", DONE_WITHOUT)
def test_an_error_that_a_program_goes_on_without_is_not_why_it_ended(line: str) -> None:
    assert named(line, is_warning=False) is None


def test_the_same_error_is_where_the_program_does_not_go_on() -> None:
    assert named("ValueError: options must be given at the same time", is_warning=False)
    assert named("ImportError: apex not installed", is_warning=False)


# How launchers write that a process was killed or crashed.
ENDS = {
    "segmentation-fault": [
        "  exitcode  : -11 (pid: 6421)",
        "subprocess.CalledProcessError: Command '['python']' died with <Signals.SIGSEGV: 11>.",
        "exited on signal 11 (Segmentation fault).",
        "srun: error: gpu01: task 3: Segmentation fault (core dumped)",
        "srun: error: gpu01: task 3: Exited with exit code 139",
        "ProcessExitedException: process 3 terminated with signal SIGSEGV",
        "['python', '-u'] exits with return code = -11",
        "run.sh: line 12: 3456 Segmentation fault      (core dumped) python train.py",
        "*** SIGSEGV received at time=1700000000 on cpu 3 ***",
        "command terminated with exit code 139",
    ],
    "rank-killed": [
        "  exitcode  : -9 (pid: 6421)",
        "died with <Signals.SIGKILL: 9>.",
        "exited on signal 9 (Killed).",
        "srun: error: gpu01: task 3: Killed",
        "srun: error: gpu01: task 3: Exited with exit code 137",
        "ProcessExitedException: process 3 terminated with signal SIGKILL",
        "run.sh: line 12: 3456 Killed                  python train.py",
        "command terminated with exit code 137",
    ],
    "loader-shared-memory": [
        "  exitcode  : -7 (pid: 6421)",
        "died with <Signals.SIGBUS: 7>.",
        "srun: error: gpu01: task 3: Bus error (core dumped)",
        "process 3 terminated with signal SIGBUS",
        "exited on signal 7 (Bus error)",
        "run.sh: line 3: 77 Bus error               (core dumped) python",
    ],
    "aborted": [
        "  exitcode  : -6 (pid: 6421)",
        "died with <Signals.SIGABRT: 6>.",
        "srun: error: gpu01: task 3: Aborted (core dumped)",
        "run.sh: line 12: 3456 Aborted                 (core dumped) python train.py",
        "command terminated with exit code 134",
    ],
    "child-failed": [
        "exits with return code = 1",
        "process 0 terminated with exit code 1",
        "Primary job  terminated normally, but 1 process returned",
    ],
}


def test_what_is_told_in_passing_is_no_cause() -> None:
    """RCCL goes on without MSCCL++, a step without a terminal; NCCL takes another value."""
    effects = {item.id: (item.effect, item.explains) for item in messages()}
    for line in (
        "init.cc:2065 MSCCL++: Cannot enable MSCCL++; environment is not MSCCL compatible",
        "srun: error: ioctl(TIOCGWINSZ): Inappropriate ioctl for device",
        "slurmstepd: error: Unable to create TMPDIR [/tmp/u]: Permission denied",
    ):
        assert effects[named(line, is_warning="MSCCL" in line) or ""] == ("explains", [])
    said = "init.cc:2168 minCTAs 64 is larger than #channels upper limit 32, cap it to 32"
    assert effects[named(said, is_warning=True) or ""] == ("degrades", [])


def test_the_ends_that_launchers_write_are_told_apart() -> None:
    assert {line: named(line, is_warning=False) for lines in ENDS.values() for line in lines} == {
        line: cause for cause, lines in ENDS.items() for line in lines
    }


BEFORE = """\
node1:301:301 [2] NCCL INFO NCCL version 2.21.5+cuda12.4
node1:301:301 [2] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation
node1:301:398 [2] NCCL INFO Call to connect returned Connection refused, retrying
node2:301:398 [2] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer node1<42830>
node2:301:398 [2] NCCL INFO misc/socket.cc:749 -> 6
"""  # noqa: E501
AFTER = """\
node1:301:398 [2] NCCL INFO init.cc:1079 -> 3
node1:301:398 [2] NCCL INFO group.cc:65 -> 3 [Async thread]
node2:301:398 [2] proxy.cc:1143 NCCL WARN Socket recv failed while polling for opId=0x7f4774cc9620
[rank2]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, unhandled system error
[rank2]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.
[rank4]:[E1206 18:44:12.7552 ProcessGroupNCCL.cpp:607] [Rank 4] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7753, OpType=ALLREDUCE) ran for 600099 milliseconds before timing out.
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""  # noqa: E501


def whole_outputs() -> list[dict[str, Any]]:
    """Those of nccl_logs.yaml, and each reported warning among what other ranks and torch print."""
    said = [
        {"log": f"{BEFORE}{WARN}{line}\n{AFTER}", "cause": cause, "source": line}
        for _, cause, line in SAYS
        if cause != "peer-closed"
    ]
    return [*LOGS, *said]


PARTS = 20
WHOLE_ROAD = 60
"""Every so manieth output is diagnosed as a user's is: two or three of each hundred forms."""


@pytest.mark.slow
@pytest.mark.parametrize("part", thinned(range(PARTS), PARTS))
def test_whole_outputs_of_reported_jobs_name_their_cause_first(part: int, tmp_path: Path) -> None:
    """All of them, read and asked for as they are; in parts, of which CI takes one."""
    assert len(LOGS) >= 40
    cases = {f"log-{number}": item for number, item in enumerate(whole_outputs()[part::PARTS])}
    assert _wrong(cases, first_named(tmp_path, cases)) == {}


@pytest.mark.long
@pytest.mark.slow
def test_whole_outputs_are_diagnosed_as_they_are_read(tmp_path: Path) -> None:
    outputs = [item for item in whole_outputs() if item["cause"] != "none"][::WHOLE_ROAD]
    cases = {f"log-{number}": item for number, item in enumerate(outputs)}
    found = first_causes(tmp_path, {name: item["log"] for name, item in cases.items()})
    assert _wrong(cases, found) == {}


def _wrong(cases: dict[str, dict[str, Any]], found: dict[str, Finding]) -> dict[str, list[str]]:
    wrong = {name: what_differs(item, found.get(name)) for name, item in cases.items()}
    return {cases[name]["source"]: why for name, why in wrong.items() if why}


@pytest.mark.slow
def test_a_log_names_its_cause_first_and_what_followed_last(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    lines = [
        "node1:301:301 [0] NCCL INFO NCCL version 2.21.5+cuda12.4",
        WARN + SAYS[15][2],
        WARN + SAYS[1][2],
        WARN + SAYS[15][2],
    ]
    log.write_text("\n".join(lines) + "\n")
    with advisor.load(str(log)) as run:
        found = [item for item in run.report.findings if item.rule == "nccl-error"]
    assert [item.evidence.facts["message"] for item in found] == ["shm-full", "peer-closed"]
    assert [item.severity.value for item in found] == ["critical", "info"]
    assert found[0].hosts == ["node1"]
    assert "node1" in found[0].where


COMM = "NCCL INFO comm 0x1 rank {rank} nranks 4 cudaDev {gpu} nvmlDev {gpu} busId {gpu}000"
TWO_HOSTS = "a1:71:71 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n" + "".join(
    f"{host}:7{gpu}:90 [{gpu}] {COMM.format(rank=rank, gpu=gpu)} commId 0x9 - Init COMPLETE\n"
    for rank, (host, gpu) in enumerate([("a1", 0), ("a1", 1), ("b2", 0), ("b2", 1)])
)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
# A line without NCCL's prefix stands behind lines of any host: it says itself who it is of.
WHENCE = [
    (OOM, [], []),
    (f"[rank1]: {OOM}", [1], ["a1"]),
    (f"(RayTrainWorker pid=99, ip=10.0.0.1) {OOM}", [], ["a1"]),
    ("a1: [rank1]: CUDA error: an illegal memory access was encountered", [1], ["a1"]),
    ("srun: error: a1.cluster.net: task 1: Out Of Memory", [], ["a1"]),
    ("slurmstepd: error: *** STEP 4.0 ON a1 CANCELLED AT 2024-04-20T09:09:37 DUE TO TIME LIMIT",
     [], ["a1"]),
    ("srun: error: Task launch for 4.0 failed on node c7: Job credential expired", [], ["c7"]),
    ("slurmstepd-b2: error: Detected 1 oom-kill event(s) in StepId=4.0.", [], ["b2"]),
    ("[1,7]<stderr>:  what():  CUDA error: an illegal memory access was encountered\n"
     "[1,7]<stderr>:[c7:71] *** Process received signal ***", [7], ["c7"]),
    ("RuntimeError: Broken pipe\n  Local host: a1\n  Peer host:  b2.example.com", [], ["b2"]),
    ("mpirun noticed that process rank 1 with PID 12 on node a1 exited on signal 9 (Killed).",
     [1], ["a1"]),
    (f"[1,3]<stderr>:{OOM}", [3], ["b2"]),
    (f"(Worker_TP2 pid=77) ERROR 11-26 10:00:00 [core.py:12] {OOM}", [2], ["b2"]),
    ("  host      : b2.example.com\n  rank      : 3 (local_rank: 1)\n  exitcode  : -9 (pid: 12)",
     [3], ["b2"]),
    ("\tip: 10.0.0.1\nThe actor is dead because its node has died.", [], ["a1"]),
    (f"[2025-02-26 12:01:56 TP2] Scheduler hit an exception: Traceback (most recent call last):\n"
     f"  File \"scheduler.py\", line 1816, in run\n{OOM}", [2], ["b2"]),
    ("[b2:8:0:9] Caught signal 11 (Segmentation fault: address not mapped)", [], ["b2"]),
    ("Nov 25 10:11:12 a1 kernel: NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.",
     [], ["a1"]),
    ("a1:71:91 [1] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'", [1], ["a1"]),
    ("[1737742661.094513] [a1:2604:0]      ib_device.c:670  UCX  ERROR ibv_query_gid(dev=mlx5_an0 "
     "port=1 index=0) failed: Invalid argument", [], ["a1"]),
    (f"(w0 WorkerDict pid=20, ip=[2605:340:cd51::1]) {OOM}", [], ["2605:340:cd51::1"]),
    ("Nov 25 10:11:12 a1 slurmd[534]: error: pyxis: couldn't execute enroot command", [], ["a1"]),
    ("a1:71:91 [1] include/alloc.h:178 WARN Cuda failure 'out of memory'", [1], ["a1"]),
    ("[1,0]<stderr>:[2019-04-13 13:53:31: W horovod/common/operations.cc:588] Broadcast_0 "
     "[missing ranks: 2, 3]", [2, 3], ["b2"]),
    ("salloc: Prolog failure on node c7", [], ["c7"]),
    ("Missing ranks:\n2: [broadcast.weight, broadcast.bias]\n3: [broadcast.bias]", [2, 3], ["b2"]),
    (f"| 2024-08-23T22:22:40.000Z | [rank3]: {OOM}", [3], ["b2"]),
    ("2026-01-17 13:40:02,101 [rank2]: ValueError: bad\n[rank0]: ncclSystemError: System call",
     [2], ["b2"]),
]  # fmt: skip


@pytest.mark.slow
def test_hosts_are_those_of_the_ranks_that_a_barrier_names(tmp_path: Path) -> None:
    """They are taken from the ranks of the run, which only the whole road fills."""
    log = tmp_path / "job.log"
    said = "XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Timed out task names:\n"
    tasks = "".join(f"/job:jax_worker/replica:0/task:{task}\n" for task in (3, 2))
    log.write_text(f"{TWO_HOSTS}{said}{tasks}")
    with advisor.load(str(log)) as run:
        found = run.diagnose(select=["nccl-error"]).findings[0]
    assert (found.ranks, found.hosts) == ([2, 3], ["b2"])


def marked(marks: list[str]) -> str:
    """The lines of TWO_HOSTS as a launcher marks them, the address first."""
    lines = TWO_HOSTS.splitlines()
    return "".join(f"{mark}{line}\n" for mark, line in zip(marks[:1] + marks, lines, strict=True))


# What a launcher puts before a line is of those of whom NCCL's lines behind the same mark are.
MARKED = [
    (["0: ", "1: ", "2: ", "3: "], f"2: {OOM}", [2], ["b2"]),
    (["0: ", "0: ", "1: ", "1: "], f"1: {OOM}", [], ["b2"]),  # a task of torchrun on each host
    (["0: ", "0: ", "1: ", "1: "], f"1: [rank3]: {OOM}", [3], ["b2"]),
    (["0: ", "0: ", "1: ", "1: "], f"7: {OOM}", [], []),
    (["w-1 | ", "w-1 | ", "w-2 | ", "w-2 | "], f"w-2 | {OOM}", [], ["b2"]),
    (["(W pid=5) ", "(W pid=6) ", "(W pid=7) ", "(W pid=8) "],
     f"(W pid=7) ERROR 11-26 10:00:00 [core.py:12] {OOM}", [2], ["b2"]),
]  # fmt: skip


# A task is a rank where torch numbers them alike.
NUMBERED = [("3: [rank3]: x", [2]), ("1: [rank3]: x", [])]

TOLD_OF: list[tuple[str, tuple[list[int], list[str]]]] = [
    *((f"{TWO_HOSTS}{line}\n", (ranks, hosts)) for line, ranks, hosts in WHENCE),
    *((f"{marked(marks)}{line}\n", (ranks, hosts)) for marks, line, ranks, hosts in MARKED),
    *((f"{told}\n2: {OOM}\n", (ranks, [])) for told, ranks in NUMBERED),
]


@pytest.mark.long
@pytest.mark.slow
def test_the_host_and_rank_are_those_that_the_line_is_of(tmp_path: Path) -> None:
    """All outputs in one store: to make one takes longer than to read and judge one of them."""
    logs = {str(number): {"log": log, "ranks": True} for number, (log, _) in enumerate(TOLD_OF)}
    found = first_named(tmp_path, logs)
    assert {
        TOLD_OF[int(number)][0]: (item.ranks, item.hosts) for number, item in found.items()
    } == dict(TOLD_OF)


# https://github.com/hiyouga/LlamaFactory/issues/7396, https://github.com/ROCm/rccl/issues/1026
BEHIND_A_PLACE = {
    "watchdog": (
        "[rank4]:[E321 02:07:08.414640780 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, "
        "NumelOut=466119168, Timeout(ms)=600000) ran for 600067 milliseconds before timing out.",
        "«WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, "
        "Timeout(ms)=600000)».",
    ),
    "built": (
        "g1:1:1 [0] /long_pathname_so_that_rpms_can_package_the_debug_info/src/extlibs/rccl/build/"
        'src/init.cpp:120 NCCL WARN Missing "amd_iommu=on" from kernel command line which can '
        "lead to system instablity or hang!",
        '«init.cpp:120 Missing "amd_iommu=on" from kernel command line which can lead to ',
    ),
    "file": (
        "g1:1:1 [0] misc/shmutils.cc:71 NCCL WARN Error: failed to extend /dev/shm/n-a to 9 bytes",
        "«misc/shmutils.cc:71 Error: failed to extend /dev/shm/n-a to 9 bytes»",
    ),
}


@pytest.mark.slow
def test_what_is_quoted_of_a_line_begins_with_what_it_says(tmp_path: Path) -> None:
    found = first_causes(tmp_path, {name: line for name, (line, _) in BEHIND_A_PLACE.items()})
    for name, (_, says) in BEHIND_A_PLACE.items():
        assert says in found[name].because[0], found[name].because


CAUSED = "The above exception was the direct cause of the following exception:"
HANDLED = "During handling of the above exception, another exception occurred:"


@pytest.mark.parametrize(
    ("between", "cause"), [(CAUSED, "rendezvous"), (HANDLED, "exception-connection")]
)
def test_an_exception_made_of_another_is_the_same_error(
    tmp_path: Path, between: str, cause: str
) -> None:
    log = tmp_path / "job.log"
    said = (
        "RuntimeError: no connection in 60000 ms.",
        "",
        between,
        "",
        "Traceback (most recent call last):",
    )
    log.write_text("\n".join((*said, "torch.distributed.RendezvousConnectionError: failed", "")))
    with advisor.load(str(log)) as run:
        found = [item for item in run.report.findings if item.rule == "nccl-error"]
    assert found[0].evidence.facts["message"] == cause
    assert "no connection in 60000 ms" in str(found[0].because)


TRAILS = {
    # Without a warning the innermost call tells where an error arose.
    "part-infiniband": [
        "misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]",
        "transport/net_ib/init.cc:282 -> 2",
        "transport/net.cc:687 -> 2",
    ],
    "ib-gid-container": ["transport/net_ib.cc:282 -> 2", "transport/net.cc:687 -> 2"],
    "bootstrap-peer": [
        "misc/socket.cc:71 NCCL WARN socketProgress: Connection closed by remote peer a<1>",
        "misc/socket.cc:80 -> 6",
        "bootstrap.cc:701 -> 6",
    ],
    # A warning of the same process tells more; code 6 is another process's end, and a socket's 3
    # that of a communicator which its own process aborts.
    "shm-full": [
        "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device",
        "transport/shm.cc:50 -> 2",
    ],
    "": [
        "proxy.cc:878 -> 6 [Progress Thread]",
        "misc/socket.cc:64 -> 3",
        "misc/socket.cc:81 -> 3",
        "misc/socket.cc:863 -> 3",
    ],
}


@pytest.mark.slow
def test_the_way_of_an_error_through_nccl_is_read_where_no_warning_tells_of_it(
    tmp_path: Path,
) -> None:
    for number, (cause, lines) in enumerate(TRAILS.items()):
        log = tmp_path / f"{number}.log"
        marked = [line if " WARN " in line else f"NCCL INFO {line}" for line in lines]
        marked.insert(0, "NCCL INFO NCCL version 2.25.1+cuda12.4")  # one that has all of the causes
        log.write_text(
            "".join(f"a1:71:9{thread} [0] {line}\n" for thread, line in enumerate(marked))
        )
        with advisor.load(str(log)) as run:
            found = [item for item in run.report.findings if item.rule == "nccl-error"]
        names = [str(item.evidence.facts["message"]) for item in found]
        names = [name for name in names if name != "ibverbs-missing"]
        assert names[:1] == [cause][: bool(cause)], lines
        assert "part-call" not in names


WENT_ON: list[dict[str, Any]] = read_plain(Path(__file__).with_name("went_on.yaml"))


@pytest.mark.slow
def test_a_job_that_trained_on_did_not_die_of_what_was_said_before(tmp_path: Path) -> None:
    """Of the same error the finding is critical where nothing shows that the job went on."""
    logs = {
        item["name"].replace(" ", "-"): "\n".join(
            (BEFORE + WARN + SAYS[6][2], "step 9 loss 4.2", *item["after"], "")
        )
        for item in WENT_ON
    }
    found = first_causes(tmp_path, logs)
    assert [item.evidence.facts["message"] for item in found.values()] == [SAYS[6][1]] * len(logs)
    severity = {
        item["name"]: found[name].severity.value for item, name in zip(WENT_ON, logs, strict=True)
    }
    assert severity == {
        item["name"]: "warning" if item["went_on"] else "critical" for item in WENT_ON
    }


@pytest.mark.slow
def test_nccl_that_starts_late_in_a_jobs_output_is_read(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    epochs = "".join(f"epoch {number} loss 2.5\n" for number in range(8_000))
    log.write_text(f"{epochs}{WARN}{SAYS[0][2]}\n")
    with advisor.load(str(log)) as run:
        assert "duplicate-gpu" in [
            item.evidence.facts.get("message") for item in run.report.findings
        ]


def test_a_benchmark_that_starts_late_in_its_output_is_read(tmp_path: Path) -> None:
    """Two thousand lines of srun and of ranks stood before the table of 2,048 GPUs."""
    before = "".join(f"{rank:4}: cpu-bind=MASK - nid, task {rank}\n" for rank in range(3_000))
    table = (
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 64\n"
        "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
        "     1048576        262144     float     sum      -1    670.3    1.56    3.13      0\n"
    )
    log = tmp_path / "job.out"
    log.write_text(before + "".join(f"   0: {line}\n" for line in table.splitlines()))
    with advisor.load(str(log)) as run:
        assert list(run.sql("SELECT time_us FROM bench")["time_us"]) == [670.3]


def test_every_entry_can_be_reached_and_names_its_source() -> None:
    ids = [item.id for item in messages()]
    assert len(ids) == len(set(ids)) >= 80
    for item in messages():
        pattern = re.sub(r"\[[^\]]*\]", "", item.pattern or "")
        assert not re.search(r"[^\\][*+](?!\?)", pattern), item.id


INIT = "node1:301:398 [2] NCCL INFO ncclCommInitRank comm 0x5d {} 2 nranks 4 cudaDev 2 busId 9a000"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("thread", "severity"), [("node1:301:398", "warning"), ("node1:301:399", "critical")]
)
def test_a_warning_in_spite_of_which_the_communicator_was_made_is_no_end(
    tmp_path: Path, thread: str, severity: str
) -> None:
    """Another thread that succeeds makes another communicator."""
    end = f"{INIT.format('rank')} commId 0xfc - Init COMPLETE".replace("node1:301:398", thread)
    lines = [
        f"{INIT.format('rank')} commId 0xfc - Init START",
        WARN + SAYS[6][2],
        end,
    ]
    found = first_causes(tmp_path, {"job": "\n".join((*lines, ""))})["job"]
    assert (found.evidence.facts["message"], found.severity.value) == (SAYS[6][1], severity)


GLIBC = "/lib/libc.so.6: version `GLIBC_2.32' not found (required by {})"


@pytest.mark.slow
def test_a_plugin_that_does_not_fit_the_system_ends_nothing_but_what_asked_for_it(
    tmp_path: Path,
) -> None:
    loading = "NCCL INFO NET/Plugin: Plugin load returned 2 : "
    plugin = f"node1:301:301 [2] {loading}{GLIBC.format('libnccl-net.so')}\n"
    logs = {
        "alone": plugin,
        "asked-for": f"{plugin}{WARN}net.cc:579 NCCL WARN Error: network gIB not found.\n",
        "program": f"ImportError: {GLIBC.format('flash_attn.so')}\n[rank0]: exitcode: 1\n",
    }
    found = first_causes(tmp_path, logs)
    assert {
        name: (item.evidence.facts["message"], item.severity.value) for name, item in found.items()
    } == {
        "alone": ("plugin-glibc", "info"),
        "asked-for": ("plugin-glibc", "critical"),
        "program": ("system-too-old", "critical"),
    }


@pytest.mark.slow
def test_a_kernel_fails_because_its_gpu_is_gone_not_the_reverse(tmp_path: Path) -> None:
    xid = "Nov 25 10:11:12 a1 kernel: NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n"
    crash = "[rank0]: RuntimeError: CUDA error: unspecified launch failure\n"
    found = first_causes(tmp_path, {"gone": xid + crash, "kernel": crash})
    assert {name: item.evidence.facts["message"] for name, item in found.items()} == {
        "gone": "gpu-lost",
        "kernel": "illegal-access",
    }


@pytest.mark.parametrize(
    ("line", "is_missing"),
    [
        ("NET/Plugin : Plugin load (libnccl-net-ofi.so) returned 2 : libnccl-net-ofi.so: cannot "
         "open shared object file: No such file or directory", True),
        ("NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libfabric.so.1: cannot open "
         "shared object file: No such file or directory", True),
        ("NET/Plugin : dlerror=libnccl-net-ofi.so: cannot open shared object file: No such file or "
         "directory No plugin found (libnccl-net-ofi.so), using internal implementation", True),
        ("NET/Plugin: Could not find: ofi libnccl-net-ofi.so. Using internal network "
         "plugin.", True),
        ("NET/Plugin: Could not find: none libnccl-net-none.so. Using internal network "
         "plugin.", False),
        ("NET/Plugin : dlerror=libnccl-net-none.so: cannot open shared object file: No such file "
         "or directory No plugin found (libnccl-net-none.so)", False),
        ("NET/Plugin: libcudart.so.13: cannot open shared object file: No such file or directory",
         True),
        ("NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.", False),
        ("NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or "
         "directory No plugin found (libnccl-net.so), using internal implementation", False),
        ("TUNER/Plugin: Plugin load returned 2 : libnccl-net.so: cannot open shared object file: "
         "No such file or directory : when loading libnccl-tuner.so", False),
    ],
)  # fmt: skip
def test_a_plugin_that_was_asked_for_and_is_not_there_is_named(
    tmp_path: Path, line: str, is_missing: bool
) -> None:
    """That the one of the usual name is not there says nothing: few systems have it."""
    log = "".join(
        f"{host}:{pid}:{pid} [0] NCCL INFO {said}\n"
        for host, pid in (("a1", 11), ("a2", 12))
        for said in (line, "Using network Socket")
    )
    found = first_causes(tmp_path, {"job": log})
    missing = [it for it in found.values() if it.evidence.facts["message"] == "plugin-missing"]
    assert [str(it.severity) for it in missing] == (["warning"] if is_missing else [])


@pytest.mark.slow
def test_a_plugin_for_efa_that_does_not_start_warns_of_tcp_between_hosts(tmp_path: Path) -> None:
    """On one host it does no harm; a log that tells of one, and not how many, says so."""
    lines = ("NCCL INFO NCCL version 2.21.5+cuda12.4",
             "nccl_net_ofi_init:1483 NCCL WARN NET/OFI aws-ofi-nccl initialization failed",
             "NCCL INFO Using network Socket")  # fmt: skip
    log = {
        names: "".join(f"{host}:9:9 [0] {line}\n" for host in names.split() for line in lines)
        for names in ("a1 a2", "a1")
    }
    (two,) = first_causes(tmp_path, {"job": log["a1 a2"]}).values()
    assert (two.evidence.facts["message"], str(two.severity)) == ("ofi-not-started", "warning")
    assert "TCP" in two.title
    assert "EFA" in two.title
    (one,) = first_causes(tmp_path, {"other": log["a1"]}).values()
    assert (str(one.severity), one.title.split(":")[0]) == ("info", "On several hosts")


@pytest.mark.parametrize(
    ("provider", "is_named"), [("tcp", True), ("sockets", True), ("efa", False), ("cxi", False)]
)
def test_libfabric_that_falls_back_to_tcp_is_named(
    tmp_path: Path, provider: str, is_named: bool
) -> None:
    """The plugin loads and the job runs, at a tenth of the speed: only this line tells."""
    said = f"NET/OFI Selected provider is {provider}, fabric is 10.2.0.0/16 (found 1 nics)"
    log = "".join(f"{host}:9:9 [0] NCCL INFO {said}\n" for host in ("a1", "a2"))
    found = first_causes(tmp_path, {"job": log})
    assert [str(it.severity) for it in found.values()] == (["warning"] if is_named else [])


@pytest.mark.parametrize(
    ("driver", "after", "is_named"),
    [
        (11040, "", True),
        (12020, "", False),  # minor releases of one major are compatible
        (13000, "", False),
        (11040, "h1:9:9 [0] NCCL INFO Connected all rings\n", False),  # it runs all the same
    ],
)
def test_a_driver_of_an_older_major_release_of_cuda_is_named(
    tmp_path: Path, driver: int, after: str, is_named: bool
) -> None:
    log = (
        "h1:9:9 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"
        f"h1:9:9 [0] NCCL INFO cudaDriverVersion {driver}\n" + after
    )
    found = list(first_causes(tmp_path, {"job": log}).values())
    assert [item.evidence.facts["message"] for item in found] == ["driver-too-old"] * is_named
    assert all("11.4" in item.message and "12.4" in item.message for item in found)


def test_a_watchdog_that_ends_its_process_ended_the_job(tmp_path: Path) -> None:
    log = (
        "[rank0]:[F1129 10:00:00.1 ProcessGroupNCCL.cpp:1553] [PG ID 0 PG GUID 0 Rank 0] "
        "Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL "
        "watchdog hang.\n"
    )
    (item,) = first_causes(tmp_path, {"job": log}).values()
    assert (str(item.severity), item.ranks) == ("critical", [0])


@pytest.mark.slow
def test_the_process_that_its_launcher_names_alone_is_the_place(tmp_path: Path) -> None:
    line = (
        "E1129 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) "
        "local_rank: {} (pid: 123) of binary: /usr/bin/python\n"
    )
    logs = {"one": line.format(2), "two": line.format(2) + line.format(3)}
    found = first_causes(tmp_path, logs)
    assert [str(item.severity) for item in found.values()] == ["critical"] * 2
    assert found["one"].evidence.facts["local_rank"] == "2"
    assert found["two"].evidence.facts["local_rank"] is None


def test_nvshmem_on_one_host_needs_no_transport_between_hosts(tmp_path: Path) -> None:
    """Four V100 that gathered to the end, hanming-lu/nccl-tests: it was critical."""
    log = "WARN: init failed for remote transport: ibrc\nPE 0 - Time taken: 0.029785 seconds\n"
    found = first_causes(tmp_path, {"job": log})
    assert [str(item.severity) for item in found.values()] == ["info"]
