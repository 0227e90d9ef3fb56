"""A program that a script started several times, with one output."""

from __future__ import annotations

from pathlib import Path

from advisor.ingest import ingest
from advisor.store.store import Store


def _launch(pid: int, number: int) -> str:
    lines = []
    for rank in (0, 1):
        said = f"h:{pid + rank}:{pid + rank + 9} [{rank}] NCCL INFO"
        comm = f"comm 0x{number}{rank} rank {rank} nranks 2 cudaDev {rank} busId {rank + 5}c000"
        lines += [
            f"{said} ncclCommInitRank {comm} commId 0x4a{number} - Init START",
            f"{said} Channel 00 : {rank}[{rank}] -> {1 - rank}[{1 - rank}] via SHM/direct/direct",
            f"{said} ncclCommInitRank {comm} commId 0x4a{number} - Init COMPLETE",
        ]
    return "\n".join(lines) + "\n"


def test_ranks_of_every_launch_are_known(tmp_path: Path) -> None:
    """As in Shanzita/fsdp-benchmark (results/slurm_8055296.out): 36 of 36 connections were lost."""
    log = tmp_path / "slurm.out"
    log.write_text(_launch(100, 1) + _launch(200, 2))
    with Store.create() as store:
        ingest([log], store)
        links = store.con.execute(
            "SELECT DISTINCT src, dst, kind FROM link ORDER BY src"
        ).fetchall()
        assert links == [(0, 1, "shm"), (1, 0, "shm")]
        [dropped] = store.con.execute("SELECT events_dropped FROM source").fetchall()
        assert dropped == (0,)
