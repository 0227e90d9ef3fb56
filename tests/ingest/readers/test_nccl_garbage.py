"""Bytes inside a log line that are no text: what they cost is counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.ingest import ingest
from advisor.store.store import Store

SETTING = "h:1:2 [0] NCCL INFO NCCL_SETTING_{} set by environment to 1\n"


def _counts(log: Path) -> tuple[int, int, dict[str, int]]:
    with Store.create() as store:
        ingest([log], store)
        [row] = store.con.execute(
            "SELECT events_read, events_dropped, drop_reasons FROM source"
        ).fetchall()
    return row[0], row[1], json.loads(row[2])


@pytest.mark.parametrize(
    "garbage", [b"\xff\xfe\x00\x00\x80", b"\x00\x00", b"\x01\x02"], ids=["any", "null", "control"]
)
@pytest.mark.parametrize("at", ["set by", "NCCL INFO NCCL_SETTING"], ids=["message", "prefix"])
def test_a_message_with_garbage_inside_is_counted(tmp_path: Path, garbage: bytes, at: str) -> None:
    text = "".join(SETTING.format(number) for number in range(4)).encode()
    place = text.index(at.encode()) + 3
    log = tmp_path / "nccl.log"
    log.write_bytes(text)
    assert _counts(log) == (4, 0, {})
    log.write_bytes(text[:place] + garbage + text[place:])
    assert _counts(log) == (3, 1, {"message with damaged bytes": 1})


def test_other_programs_lines_are_not_counted(tmp_path: Path) -> None:
    log = tmp_path / "nccl.log"
    log.write_bytes(SETTING.format(0).encode() + "Größe 3\n".encode("latin-1") + b"\x01bar\n")
    assert _counts(log) == (1, 0, {})


@pytest.mark.parametrize(
    "line",
    [
        "Größe des NCCL-Puffers: 4 MB".encode("latin-1"),
        "[2024] café using NCCL backend".encode("latin-1"),
        "café: NCCL INFO is the level, NCCL version 2 the library".encode("latin-1"),
        b"\b\b\b epoch 3 NCCL done",
        b"\x1b]0;title NCCL\x07 hello",
    ],
    ids=["buffer", "backend", "level", "backspace", "title"],
)
def test_lines_that_only_speak_of_nccl_are_not_counted(tmp_path: Path, line: bytes) -> None:
    log = tmp_path / "nccl.log"
    log.write_bytes(SETTING.format(0).encode() + line + b"\n" + SETTING.format(1).encode())
    assert _counts(log) == (2, 0, {})
