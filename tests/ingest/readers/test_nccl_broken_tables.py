"""NCCL's tables and trees behind a prefix of launchers, or broken by one byte: read or counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.ingest import ingest
from advisor.store.store import Store

pytestmark = pytest.mark.slow

LOGS = Path(__file__).resolve().parents[3] / "fixtures" / "nccl-logs"
_TABLES = ("topology", "link", "nccl_choice", "rank")


def _read(log: Path) -> tuple[int, dict[str, int]]:
    """Rows of all tables, and what was lost."""
    with Store.create() as store:
        ingest([log], store)
        rows = sum(len(store.con.table(table).fetchall()) for table in _TABLES)
        [(reasons,)] = store.con.execute("SELECT drop_reasons FROM source").fetchall()
    return rows, json.loads(reasons)


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-11-22T10:00:00.123456789Z ",
        "2026-11-22T10:00:00.123Z stdout F ",
        "Nov 22 10:00:00 host python[123]: ",
        "[10:00:00] ",
        "[2026-11-22 10:00:00,123] INFO ",
        "2026-11-22 10:00:00.123 | INFO | ",
        "INFO:train:",
    ],
    ids=["kubectl", "cri", "journald", "clock", "logging", "loguru", "basic"],
)
def test_the_matrix_is_read_behind_any_prefix(prefix: str, tmp_path: Path) -> None:
    text = (LOGS / "v2.27-groups.log").read_text()
    log = tmp_path / "nccl.log"
    log.write_text("".join(f"{prefix}{line}\n" for line in text.splitlines()))
    assert _read(log) == _read(LOGS / "v2.27-groups.log")


@pytest.mark.parametrize(
    ("name", "at", "byte"),
    [
        ("v2.10-sockets.log", "=== System", "x"),
        ("v2.10-sockets.log", "Reduce |", "x"),
        ("v2.10-sockets.log", "duce |", "\n"),
        ("v2.10-sockets.log", "0.3 |    14.0", "\n"),
        ("v2.10-sockets.log", "|    14.0", "x"),
        ("v2.27-groups.log", "0              0  \nReduceS", "\n"),
        ("v2.27-groups.log", "0  \n    AllG", "\n"),
    ],
    ids=["system", "operation", "in-name", "in-row", "bar", "in-matrix", "matrix-row"],
)
def test_what_one_byte_breaks_is_read_on_or_counted(
    name: str, at: str, byte: str, tmp_path: Path
) -> None:
    text = (LOGS / name).read_text()
    rows, reasons = _read(LOGS / name)
    assert reasons == {}
    place = text.index(at)
    log = tmp_path / "nccl.log"
    log.write_text(text[:place] + byte + text[place + 1 :])
    left, reasons = _read(log)
    assert rows - left == sum(reasons.values())


def test_many_null_bytes_inside_a_prefix_are_counted(tmp_path: Path) -> None:
    text = (LOGS / "v2.21-one-nic.log").read_bytes()
    place = text.index(b"00:350 [0] NCCL INFO GPU Direct")
    log = tmp_path / "nccl.log"
    log.write_bytes(text[:place] + bytes(3000) + text[place:])
    rows, reasons = _read(log)
    assert _read(LOGS / "v2.21-one-nic.log")[0] - rows == sum(reasons.values()) == 1


def test_megatrons_iterations_are_no_cells_of_a_table(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(
        (LOGS / "v2.10-sockets.log").read_text()
        + " iteration      500/  500000 | consumed samples:         4000 | lm loss: 6.456E+00 |\n"
    )
    assert _read(log)[1] == _read(LOGS / "v2.10-sockets.log")[1]
