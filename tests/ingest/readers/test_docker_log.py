"""Logs that Docker's json-file driver wrote are read as what the program wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from advisor.ingest import ingest
from advisor.ingest.readers._text import numbered_lines
from advisor.store.store import Store

_LOGS = Path(__file__).parents[3] / "fixtures" / "nccl-logs"
_TABLES = ("topology", "link", "nccl_choice")


def _record(text: str, stream: str = "stdout") -> str:
    """One line of the driver's file; Go escapes the signs that HTML uses."""
    body = json.dumps({"log": text, "stream": stream, "time": "2026-01-01T00:00:00.1Z"})
    body = body.replace('": ', '":').replace(', "', ',"')
    for sign in "<>&":
        body = body.replace(sign, f"\\u{ord(sign):04x}")
    return body + "\n"


def _content(path: Path) -> dict[str, Any]:
    with Store.create() as store:
        ingest([path], store)
        found: dict[str, Any] = {
            table: store.con.execute(
                f"SELECT * EXCLUDE (run, source) FROM {table} ORDER BY ALL"
            ).fetchall()
            if table == "topology"
            else store.con.execute(f"SELECT * EXCLUDE (run) FROM {table} ORDER BY ALL").fetchall()
            for table in _TABLES
        }
        found["source"] = store.con.execute(
            "SELECT events_read, events_dropped, note FROM source"
        ).fetchall()
    return found


@pytest.mark.parametrize("name", ["v2.21-one-nic.log", "v2.27-groups.log"])
def test_a_log_that_docker_wrote_says_the_same(tmp_path: Path, name: str) -> None:
    lines = (_LOGS / name).read_text().splitlines(keepends=True)
    path = tmp_path / "container-json.log"
    path.write_text("".join(map(_record, lines)))
    found = _content(path)
    assert found["topology"]
    assert found == _content(_LOGS / name)


def test_parts_of_a_line_are_joined_and_streams_are_kept_apart() -> None:
    text = (
        _record("begin ")
        + _record("an error\n", "stderr")
        + _record("<end>\n")
        + _record("open")
        + '{"log":"cut in a record \\u00'
    )
    assert list(numbered_lines(BytesIO(text.encode()))) == [
        (2, "an error", True),
        (3, "begin <end>", True),
        (5, "open", False),
        (5, "cut in a record ", False),
    ]


def test_other_json_is_left_as_it_is() -> None:
    text = '{"log":"a" NCCL INFO b\n{"log":"x\\q","stream":1}\n{"log":"x","stream":1}\n'
    assert [line for _, line, _ in numbered_lines(BytesIO(text.encode()))] == text.splitlines()


@pytest.mark.parametrize(
    "wrap",
    [
        _record,
        lambda text: json.dumps({"severity": "ERROR", "message": text}) + "\n",
        lambda text: json.dumps({"jsonPayload": {"message": text}, "logName": "x"}) + "\n",
    ],
)
def test_an_output_in_records_tells_what_the_job_died_of(
    tmp_path: Path, wrap: Callable[[str], str]
) -> None:
    said = "Traceback (most recent call last):\n", '  File "train.py", line 3, in <module>\n'
    path = tmp_path / "job.log"
    path.write_text("".join(map(wrap, (*said, "KeyError: 'lr' of [rank1]\n"))))
    with Store.create() as store:
        ingest([path], store)
        found = store.con.execute("SELECT name FROM topology WHERE kind = 'warning'").fetchall()
    assert found == [("key-missing",)]
