"""What queues of clusters, engines that serve and kernel libraries print, as their sources have it.

Kueue, JobSet, Kubeflow's trainer, kubelet, torch's watchdog, vLLM, SGLang, NIXL, Mooncake,
Transformer Engine and Slurm's munge.
"""

from __future__ import annotations

import pytest

from advisor.model.nccl.messages import named

SAID = [
    ("queue-quota", "couldn't assign flavors to pod set main: insufficient unused quota for "
     "nvidia.com/gpu in flavor h100, 8 more needed"),
    ("queue-quota", 'topology "default" doesn\'t allow to fit any of 4 pod(s)'),
    ("queue-quota", "Warning  Unschedulable  pod group not ready, less than minMember"),
    ("queue-pods-late", "Normal  EvictedDueToPodsReadyTimeout  Exceeded the PodsReady timeout a/b"),
    ("preempted", "Preempted to accommodate a workload (UID: 1a2b, JobUID: 3c4d) due to "
     "prioritization in the ClusterQueue"),
    ("manifest-refused", 'admission webhook "vjobset.kb.io" denied the request: x'),
    ("child-failed", "jobset failed due to one or more job failures (first failed job: w-0)"),
    ("child-failed", "PyTorchJob bert is failed because 1 Master replica(s) failed."),
    ("device-plugin", "NodePrepareResources failed for claim train/gpus"),
    ("heartbeat", "[F1101 ProcessGroupNCCL.cpp:1569] [PG ID 0 Rank 1] Terminating the process "
     "after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang."),
    ("eager-device-id", "using GPU 0 as device used by this process is currently unknown."),
    ("gpu-memory-taken", "AssertionError: Error in memory profiling. Initial free memory 70.1 GiB"),
    ("checkpoint-differs", "ValueError: There is no module or parameter named 'a.b' in Llama"),
    ("parallel-sizes", "ValueError: The input size is not aligned with the quantized weight shape"),
    ("engine-waits", "RuntimeError: Timed out waiting for engine core processes to start."),
    ("address-in-use", "zmq.error.ZMQError: Address already in use (addr='tcp://10.0.0.1:5557')"),
    ("kv-transfer", "KVTransferError(bootstrap_room=1): Request 1 timed out after 300s"),
    ("kv-transfer", "nixl_cu12._bindings.nixlRemoteDisconnectError: NIXL_ERR_REMOTE_DISCONNECT"),
    ("ib-modify-qp", "E0501 rdma_context.cpp:200] Failed to modify QP to RTR, check mtu, gid, peer "
     "lid, peer qp num: Connection timed out [110]"),
    ("cudnn-failed", "RuntimeError: fused_attn_f16.cu:366 in function operator(): cuDNN Error: No "
     "execution plans support the graph."),
    ("feature-missing", "ValueError: No dot product attention backend is available for it."),
    ("slurm-credential", "slurmstepd: error: If munged is up, restart with --num-threads=10"),
    ("kv-transfer", "E1210 03:24:54 25 ascend_direct_transport.cpp:820] Failed to connect to "
     "target: 172.16.100.99:25389, status: 103900"),
    ("kv-transfer", "ERROR [975] [coro_rpc_client.hpp:978] read rpc body failed, error msg:End of "
     "file. close the socket."),
    ("stopped", "Worker VllmWorkerProcess pid 3283517 died, exit code: -15"),
    ("stopped", "torch.distributed.elastic.multiprocessing.api.SignalExcep"),
    ("cancelled", "W0117 10:14:46 26 torch/distributed/elastic/agent/server/api.py:704] Received "
     "Signals.SIGINT death signal, shutting down workers"),
    ("exit-usage", "usage: train_diffusion.py [-h] [--config CONFIG] [--local_rank LOCAL_RANK]"),
    ("mpi-fabric", "x43 1727: Abort(203549327) on node 1727: Fatal error in internal_Get: Other"),
    ("mpi-call", "Rank 3 [Mon Mar  3 10:01:02 2025] Fatal error in MPI_Recv: Invalid tag, error"),
    ("mpi", "Fatal error in PMPI_Init_thread: Other MPI error, error stack:"),
    ("pmix-lock", "[node25:368977] PMIX ERROR: ERROR in file gds_ds12_lock_pthread.c at line 168"),
    ("container-folder", "srun: error: pyxis: mount source must be a relative path"),
    ("node-failure", "Owner worker exit type: SYSTEM_ERROR Worker exit detail: Owner's node has "
     "crashed."),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "text"), SAID)
def test_what_queues_engines_and_kernel_libraries_print_is_of_its_entry(
    entry: str, text: str
) -> None:
    assert named(text, is_warning=False) == entry


def test_a_loop_of_the_shells_own_is_no_rank() -> None:
    killed = "run.sh: line 151: 107629 Killed                  ( "
    assert named(f"{killed}while true; do", is_warning=False) is None
    assert named(f"{killed}python3 train.py )", is_warning=False) == "rank-killed"
