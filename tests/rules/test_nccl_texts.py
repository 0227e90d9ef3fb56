"""NCCL's own texts of warnings by release: what each tells, and what a job goes on after."""

from __future__ import annotations

from pathlib import Path

import pytest

import advisor
from advisor.model.nccl.messages import messages, named
from benchmarks.nccl_source.messages import Format, formats

SAYS = [
    # 2.13 to 2.30
    ("gdrcopy", "misc/gdrwrap.cc:36 Failed to open libgdrapi.so"),
    ("gdrcopy-failed", "misc/gdrwrap.cc:150 gdr_unpin_buffer(handle 0x7f) failed: 22"),
    ("setting-corrected", "graph/tuning.cc:35 Invalid NCCL_NTHREADS 96 (minimum 128)."),
    ("setting-corrected", "graph/tuning.cc:203 CollNet is not supported or fails to initialize, "
     "ignoring NCCL_ALGO=COLLNET"),
    ("part-left-out", "graph/xml.cc:650 No NVML device handle. Skipping nvlink detection."),
    ("part-left-out", "init.cc:901 CollNet currently only supports up to 8 GPUs per node, "
     "disabling CollNet"),
    ("refused-argument", "group.cc:90 ncclGroupEnd: not in a group call."),
    ("part-call", "init.cc:210 Call to sched_yield failed: Function not implemented"),
    ("part-system", "misc/param.cc:80 Call to stat failed: Input/output error"),
    # 2.28 to 2.30
    ("device-api-missing", "gin/gin_host.cc:117 GIN is disabled."),
    ("device-api-missing", "dev_runtime.cc:1319 Communicator does not support symmetric memory!"),
    ("window-memory", "dev_runtime.cc:931 Window address must be suitably aligned."),
    ("duplicate-gpu", "graph/topo.cc:1977 Multiple ranks detected using the same GPU on this node. "
     "Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this configuration."),
    ("ib-port-failed-over", "transport/net_ib/p2p_resiliency.cc:88 NET/IB: ncclIbHandle: Device 1 "
     "marked as failed. (Send comm=0x7f)"),
    ("ib-completion", "transport/net_ib/p2p_resiliency.cc:91 NET/IB: ncclIbHandle: The error is "
     "fatal (IBV_WC_LOC_PROT_ERR). Cannot continue."),
]  # fmt: skip
COMM = "node1:10:20 [0] NCCL INFO comm 0x5 rank 0 nranks 8 cudaDev 0 busId 1000 commId 0x9 - Init"


@pytest.mark.parametrize(("entry", "text"), SAYS)
def test_a_text_of_a_release_is_of_its_entry(entry: str, text: str) -> None:
    assert named(text, is_warning=True) == entry


def test_what_nccl_goes_on_after_ends_no_job() -> None:
    effects = {entry.id: entry.effect for entry in messages()}
    goes_on = (
        "gdrcopy",
        "part-left-out",
        "setting-corrected",
        "ib-port-failed-over",
        "nvls-left-out",
    )
    assert {effects[entry] for entry in goes_on} == {"degrades"}


def test_a_job_that_proceeds_without_nvlink_sharp_did_not_die_of_it(tmp_path: Path) -> None:
    log = tmp_path / "nccl.log"
    said = (
        "node1:10:20 [0] NCCL INFO Failed to bind NVLink SHARP (NVLS) Multicast memory of size "
        "2097152 : CUDA error 401 'x'. Proceeding without NVLS support."
    )
    log.write_text(f"{COMM} START\n{said}\n{COMM} COMPLETE\n")
    with advisor.load(str(log)) as run:
        found = [item for item in run.report.findings if item.rule == "nccl-error"]
    assert [(item.evidence.facts["message"], item.severity.value) for item in found] == [
        ("nvls-left-out", "warning")
    ]


def test_what_nccl_asks_for_and_expects_to_miss_is_no_broken_file(tmp_path: Path) -> None:
    """NCCL 2.9 prints it as INFO in jobs that run (NVIDIA/nccl#601)."""
    log = tmp_path / "nccl.log"
    log.write_text(f"{COMM} START\nn1:10:20 [0] NCCL INFO Attribute coll of node net not found\n")
    with advisor.load(str(log)) as run:
        assert not [item for item in run.report.findings if item.rule == "nccl-error"]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("n1:15 NCCL DIAG [INFO] p2p: only 52/56 GPU-to-GPU peer accesses passed verification",
         ("diagnosed-p2p", "warning")),
        ("n1:15 NCCL DIAG [INFO] p2p: write mismatch srcRank=4 srcCudaDev=4 dstRank=1 path=NVL",
         ("diagnosed-p2p", "warning")),
        ("n1:15 NCCL DIAG [INFO] net bw: cross-nic rank 3 (n1): 265.1 Gbit/s, >30% off median "
         "391.5 Gbit/s in comm 0x7a", ("diagnosed-network", "warning")),
        ("n1:15 NCCL DIAG [OK]   p2p: all 56 directed GPU P2P edges verified", None),
        ("n1:15 NCCL DIAG [INFO] p2p: temporarily enabled context-wide CUDA peer access rank=3",
         None),
        ("n1:15:15 [0] misc/gdrwrap.cc:36 (load) NCCL ATTN Failed to open libgdrapi.so",
         ("gdrcopy", "warning")),
        ("n1:15:15 [0] misc/crypt.cc:9 (hello) NCCL ATTN TLS handshake from 10.0.0.2<9> failed, "
         "discarding peer connection", None),
    ],
)  # fmt: skip
def test_what_nccl_diagnoses_itself_and_calls_attention_to_is_read(
    tmp_path: Path, line: str, found: tuple[str, str] | None
) -> None:
    """2.31 prints reports of its own diagnostics, 2.32 lines of the level ATTN."""
    log = tmp_path / "out.txt"
    log.write_text(f"{line}\n{COMM} COMPLETE\n" + line.replace("n1:15", "n2:16") + "\n")
    with advisor.load(str(log)) as run:
        said = [item for item in run.report.findings if item.rule == "nccl-error"]
    assert [(item.evidence.facts["message"], item.severity.value) for item in said] == (
        [found] if found else []
    )


def test_the_texts_of_a_source_are_read_as_nccl_would_print_them() -> None:
    source = r"""
        // WARN("in a comment")
        #define SYSCHECK(call, name) WARN("Call to " name " failed: %s", e)
        WARN("Failed to allocate %ld bytes at 0x%" PRIx64 " of "
             "%s\n", size, at, what);
        INFO(NCCL_INIT|NCCL_NET, "Using network %s", name);
    """
    found = formats({"misc/x.cc": source}, "WARN")
    assert {item.as_printed() for item in found} == {
        "misc/x.cc:1 Call to x failed: x",
        "misc/x.cc:1 Failed to allocate 1 bytes at 0x1 of x",
    }
    assert formats({"misc/x.cc": source}, "INFO") == {Format("misc/x.cc", "Using network %s")}
