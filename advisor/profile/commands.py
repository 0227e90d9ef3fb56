"""The lines that start the same job without this tool's launcher: torchrun, and Slurm."""

from __future__ import annotations

import shlex
from pathlib import Path

from advisor.config.workload import Workload

_PORT = 29500


def torchrun(workload: Workload, folder: Path, *, nodes: int, endpoint: str) -> list[str]:
    """One command line per node. The folder must be on a file system that all nodes share."""
    local = workload.world_size // nodes
    if nodes == 1:
        return [_line("--standalone", f"--nproc-per-node={local}", folder=folder)]
    host, _, port = (endpoint or f"FIRST_NODE:{_PORT}").rpartition(":")
    return [
        _line(
            f"--nnodes={nodes}", f"--node-rank={node}", f"--nproc-per-node={local}",
            f"--master-addr={host}", f"--master-port={port}", folder=folder,
        )
        for node in range(nodes)
    ]  # fmt: skip


def slurm(workload: Workload, folder: Path, *, nodes: int) -> str:
    """A batch script: one torchrun per node, meeting at the first of them."""
    local = workload.world_size // nodes
    gpus = f"#SBATCH --gpus-per-node={local}\n" if workload.device == "cuda" else ""
    run = _line(
        f"--nnodes={nodes}", f"--nproc-per-node={local}", "--rdzv-backend=c10d",
        f"--rdzv-id=advisor-$SLURM_JOB_ID --rdzv-endpoint=$first:{_PORT}", folder=folder,
    )  # fmt: skip
    return (
        "#!/bin/bash\n"
        f"#SBATCH --job-name=advisor-{workload.name}\n"
        f"#SBATCH --nodes={nodes}\n"
        "#SBATCH --ntasks-per-node=1\n"
        f"{gpus}"
        'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
        f"srun {run}\n"
    )


def _line(*options: str, folder: Path) -> str:
    place = shlex.quote(str(folder.resolve()))
    return f"torchrun {' '.join(options)} -m advisor.profile.worker {place}"
