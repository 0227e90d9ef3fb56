"""Bytes inside a log line that are no text: what they cost is counted."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path

import pytest

from advisor.ingest import ingest
from advisor.ingest.readers._text import MAX_LINE_BYTES, numbered_lines, without_launcher
from advisor.ingest.readers.nccl_log.collect import Log
from advisor.ingest.readers.nccl_log.damaged import is_damaged
from advisor.store.store import Store

LOGS = Path(__file__).resolve().parents[3] / "fixtures" / "nccl-logs"
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


def test_a_setting_with_the_end_of_another_is_no_value(tmp_path: Path) -> None:
    """As in argonne-lcf/alcf-nccl-tests (pytests/logs0): «1.t by environment to 1.» was told of."""
    log = tmp_path / "nccl.log"
    log.write_text(
        SETTING.format(0) + SETTING.format(1).replace("to 1", "to 1.t by environment to 1.")
    )
    with Store.create() as store:
        ingest([log], store)
        rows = store.con.execute("SELECT name, value FROM topology WHERE kind = 'env'").fetchall()
    assert rows == [("NCCL_SETTING_0", "1")]


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


def _records(text: bytes) -> tuple[Counter[str], int]:
    """What a log's lines give, and how many messages were lost."""
    log = Log()
    for number, line, whole in numbered_lines(io.BytesIO(text)):
        log.feed(without_launcher(line), ("nccl.log", number), whole=whole)
    log.finish()
    collected = log.collected
    found = Counter(repr((kept.slot.host, kept.slot.pid, kept.record)) for kept in collected.kept)
    for (slot, choice), calls in collected.choices.items():
        found[repr((slot.host, slot.pid, choice))] += calls
    found.update(f"member {member.host}" for member in collected.registry.members.values())
    return found, sum(collected.counts.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v2.10-sockets", "v2.21-one-nic", "v2.27-groups"])
def test_no_single_byte_loses_a_record_uncounted(name: str) -> None:
    text = (LOGS / f"{name}.log").read_bytes()
    whole, lost = _records(text)
    tried = 0
    for place in range(len(name), len(text), len(text) // 90):
        if text[place] in b"\r\n":
            continue
        found, dropped = _records(text[:place] + b"\xff" + text[place + 1 :])
        if whole - found:
            tried += 1
            assert dropped > lost, text[text.rfind(b"\n", 0, place) + 1 : place + 20]
    assert tried > 20


def test_garbage_before_a_whole_message_is_another_writers(tmp_path: Path) -> None:
    lines = [SETTING.format(number).encode() for number in range(3)]
    log = tmp_path / "nccl.log"
    log.write_bytes(b"\x00" * 64 + lines[0] + b"caf\xe9 \b\b\b" + lines[1] + lines[2])
    assert _counts(log) == (3, 0, {})


def test_looking_for_a_damaged_prefix_takes_no_time_with_long_lines() -> None:
    for filler in ("a", "1", ":", "a:1", "\ufffd", "NCCL", "["):
        assert not is_damaged(filler * (MAX_LINE_BYTES // len(filler)) + "\b", understood=True)


def test_a_prefix_behind_a_torn_line_is_of_its_threads_host(tmp_path: Path) -> None:
    """Two processes of one file, as in 1602615899/RADDet (nccl_debug.log) and
    argonne-lcf/alcf-nccl-tests (pytests/logs0): «node» was three hosts.
    """
    log = tmp_path / "nccl.log"
    log.write_text(
        "node:13:23 [1] NCCL INFO Using network Socket\n"
        "node:13:23 [1] NCCL INFO comm 0x9 rank 1 nranks node:12:22 [0] NCCL INFO comm 0x8 rank 0 "
        "nranks 2 cudaDev 0node:13:23 [1] NCCL INFO Trees [0] -1/-1/-1->1->0\n"
        "node:13:23 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct\n"
        "node:13:23 [1] NCCL INFO 2 coll channels node:1node:13:23 [1] NCCL INFO comm 0x9 rank 1 "
        "nranks 2 cudaDev 1 busId 3000 commId 0x24 - Init COMPLETE\n"
        "tonode:12:22 [0] NCCL INFO comm 0x8 rank 0 nranks 2 cudaDev 0 busId 2000 commId 0x24 - "
        "Init COMPLETE\n"
        "de:12:22 [0] NCCL INFO Connected all rings\n"
    )
    with Store.create() as store:
        ingest([log], store)
        hosts = store.con.execute("SELECT DISTINCT host FROM topology WHERE host IS NOT NULL")
        assert hosts.fetchall() == [("node",)]
        assert store.con.execute("SELECT src, dst, kind FROM link").fetchall() == [(1, 0, "shm")]


def test_hosts_that_are_numbers_are_not_torn(tmp_path: Path) -> None:
    """Containers of two hosts, whose first processes have one number."""
    log = tmp_path / "nccl.log"
    log.write_text("".join(f"{host}:1:9 [0] NCCL INFO Using network IB\n" for host in (1, 11)))
    with Store.create() as store:
        ingest([log], store)
        rows = store.con.execute("SELECT DISTINCT host FROM topology ORDER BY host").fetchall()
    assert [row for row in rows if row[0]] == [("1",), ("11",)]
