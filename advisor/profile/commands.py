"""The lines that start the same job without this tool's launcher: torchrun, and Slurm."""

import shlex
from pathlib import Path

from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.vocabulary.numbers import decimal

_PORT = 29500


def parse_endpoint(endpoint: str) -> tuple[str, str]:
    """Host and port of HOST:PORT. Raises AdvisorError."""
    host, _, port = endpoint.rpartition(":")
    if not host or decimal(port, 0, 65_535) is None:
        raise AdvisorError(
            f"cannot read '{endpoint}'", where="--rdzv-endpoint", hint=f"e.g. node0:{_PORT}"
        )
    return host, port


def torchrun(
    workload: Workload,
    folder: Path,
    *,
    nodes: int,
    endpoint: str = "",
    node_rank: int | None = None,
    threads: int | None = None,
) -> list[str]:
    """One command line per node, or that of ``node_rank``; the folder must be shared by all nodes.

    ``endpoint`` is where they meet, HOST:PORT; without one the first node's name is to be filled
    in. ``threads`` is OMP_NUM_THREADS.
    """
    local = workload.world_size // nodes
    variables = _variables(threads)
    if nodes == 1:
        meeting = ["--standalone"]
        if endpoint:
            meeting = ["--nnodes=1", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}"]
        return [variables + _line(*meeting, f"--nproc-per-node={local}", folder=folder)]
    host, port = parse_endpoint(endpoint or f"FIRST_NODE:{_PORT}")
    return [
        variables
        + _line(
            f"--nnodes={nodes}", f"--node-rank={node}", f"--nproc-per-node={local}",
            f"--master-addr={host}", f"--master-port={port}", folder=folder,
        )
        for node in (range(nodes) if node_rank is None else [node_rank])
    ]  # fmt: skip


def slurm(
    workload: Workload, folder: Path, *, nodes: int, endpoint: str = "", threads: int | None = None
) -> str:
    """A batch script: one torchrun per node, meeting at ``endpoint``, else at the first of them.

    Slurm says which node is which (SLURM_NODEID), so that ranks lie as in the torchrun lines.
    """
    local = workload.world_size // nodes
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name=advisor-{workload.name}",
        f"#SBATCH --nodes={nodes}",
        "#SBATCH --ntasks-per-node=1",
    ]
    if workload.device == "cuda":
        lines.append(f"#SBATCH --gpus-per-node={local}")
    host, port = parse_endpoint(endpoint) if endpoint else ("$FIRST_NODE", str(_PORT))
    if not endpoint:
        named = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
        lines.append(f"export FIRST_NODE={named}")
    run = _variables(threads) + _line(
        f"--nnodes={nodes}", "--node-rank=$SLURM_NODEID", f"--nproc-per-node={local}",
        f"--master-addr={host}", f"--master-port={port}", folder=folder,
    )  # fmt: skip
    return "\n".join([*lines, f"srun bash -c {shlex.quote(run)}", ""])


def _variables(threads: int | None) -> str:
    # torchrun would give every rank one thread, and a single one all cores.
    return "" if threads is None else f"OMP_NUM_THREADS={threads} "


def _line(*options: str, folder: Path) -> str:
    place = shlex.quote(str(folder.resolve()))
    return f"torchrun {' '.join(options)} -m advisor.profile.worker {place}"
