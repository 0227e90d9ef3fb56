"""The limits that the documentation names are those of the code."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from advisor.config import loader, parsed, settings
from advisor.engine import allowance
from advisor.engine.plain import MOST_CHARACTERS as MOST_TEXT
from advisor.engine.plain import MOST_ITEMS, MOST_VALUES
from advisor.engine.query_text import MOST_BRACKETS, MOST_CHARACTERS
from advisor.engine.sandbox import _LOCKDOWN, Sandbox
from advisor.ingest import inflate, paths, source
from advisor.ingest.compression import DEFAULT_LIMITS
from advisor.ingest.readers import _json, _text, flight_recorder, nccl_xml, op_table
from advisor.ingest.readers.flight_recorder import dump
from advisor.ingest.readers.flight_recorder.unpickle import MAX_INSTRUCTIONS
from advisor.ingest.readers.kineto import around_lists, metadata_fields, ranks, resync
from advisor.ingest.readers.nccl_inspector import records
from advisor.ingest.readers.nccl_log import collected, failures
from advisor.ingest.readers.nccl_tests import text
from advisor.ingest.readers.nsys import open as nsys
from advisor.ingest.readers.nsys import processes
from advisor.ingest.readers.op_table.write import (
    _FEWEST_STEPS,
    _LONGEST_RUN_S,
    _LONGEST_STEP_S,
    MOST_ROWS,
)
from advisor.metrics.links import ring_lags
from advisor.report import perfetto
from advisor.tune import env_file
from advisor.tune.plugin import parse
from advisor.vocabulary import numbers

PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
UNITS = (("PiB", 50), ("GiB", 30), ("MiB", 20), ("KiB", 10))


def as_bytes(count: int) -> str:
    """A number of bytes as the page writes it."""
    unit, power = next(one for one in UNITS if count >= 1 << one[1])
    return f"{count >> power:,} {unit}"


@pytest.mark.parametrize(
    ("what", "limit"),
    [
        ("files of one command", f"{paths._MAX_FILES:,}"),
        ("decompressed bytes of a file", as_bytes(DEFAULT_LIMITS.total_bytes)),
        ("decompression ratio, from 64 MiB on", str(DEFAULT_LIMITS.ratio)),
        ("one event of a trace", as_bytes(DEFAULT_LIMITS.event_bytes)),
        (
            "damaged text of a trace that is tried as events",
            f"{as_bytes(resync._MOST_FAILED_BYTES)}, and {resync._OF_READ} times what was read",
        ),
        (
            "text of a trace before, between and behind its events",
            as_bytes(around_lists.MAX_TEXT_BYTES),
        ),
        (
            "one field of a trace that says something of the run",
            as_bytes(metadata_fields._KEPT_CHARACTERS),
        ),
        (
            "what a trace of several ranks says of the run, together at all of them",
            as_bytes(ranks._MOST_KEPT_CHARACTERS),
        ),
        ("lists and objects inside each other", str(DEFAULT_LIMITS.nesting)),
        ("ranks of a job", f"{numbers.MOST_RANKS:,}"),
        (
            "ranks of one trace or op table",
            f"{source.MOST_RANKS_OF_SMALL_FILE:,}; more where the file has "
            f"{as_bytes(source.LEAST_BYTES_OF_RANK)} for each",
        ),
        ("bytes of one message", as_bytes(numbers.MOST_BYTES)),
        ("one line of a log", as_bytes(_text.MAX_LINE_BYTES)),
        ("kept lines of one NCCL log", f"{collected.MAX_KEPT:,}"),
        ("warnings of one NCCL log", f"{failures.MAX_WARNINGS:,}"),
        (
            "one flight-recorder dump",
            f"{as_bytes(flight_recorder.MAX_DUMP_BYTES)}; {MAX_INSTRUCTIONS:,} instructions",
        ),
        (
            "values and characters of a flight-recorder dump that are kept",
            f"{as_bytes(dump.LEAST_KEPT)}, or {dump.KEPT_PER_BYTE} for each of its bytes",
        ),
        (
            "bytes before damaged places of a compressed file that are read one by one",
            as_bytes(inflate._MOST_SINGLE),
        ),
        (
            "ranks of a ring whose order of ends is looked at",
            f"{ring_lags.MOST_RANKS}: the work grows as their square",
        ),
        ("steps of an op table, laid end to end", f"{_LONGEST_RUN_S:,.0f} s"),
        ("one line of NCCL's Inspector", as_bytes(records.MAX_LINE_BYTES)),
        ("calls of NCCL's Inspector", f"{records.MAX_KEPT:,}"),
        ("one JSON document (nccl-tests, probe)", as_bytes(_json.MAX_DOCUMENT_BYTES)),
        (
            "one topology or graph file (XML)",
            f"{as_bytes(nccl_xml.MAX_BYTES)}, {nccl_xml.MAX_DEPTH} levels, "
            f"{nccl_xml.MAX_ELEMENTS:,} elements",
        ),
        ("rows of one table of nccl-tests", f"{text.MAX_ROWS:,}"),
        ("rows of an op table", f"{op_table.MAX_ROWS:,}"),
        ("rows of an op table that are read", f"{MOST_ROWS:,}, and {_FEWEST_STEPS} steps"),
        ("bytes of an op table's file per row, at least", f"{op_table.LEAST_ROW_BYTES}"),
        ("a time within a step of an op table", f"{_LONGEST_STEP_S:,.0f} s"),
        ("one file of settings (TOML)", as_bytes(settings._MAX_BYTES)),
        ("one job script or other file with an environment", as_bytes(env_file._MAX_BYTES)),
        (
            "rules of a file for NCCL's tuner",
            f"{parse._MOST_RULES:,}; {parse._LONGEST_LINE} bytes a line, as in the plugin",
        ),
        (
            "an Nsight Systems export",
            f"{as_bytes(nsys.MAX_DATABASE_BYTES)}; {as_bytes(nsys.MAX_CELL_BYTES)} per cell; "
            f"{nsys.LONGEST_NAME:,} characters per name; {processes.MOST_PROCESSES:,} processes",
        ),
        (
            "one YAML file",
            f"{as_bytes(loader._MAX_YAML_BYTES)}; {parsed.MOST_VALUES:,} values; "
            f"{parsed.MOST_LEVELS} levels; {parsed.MOST_BITS} bits per whole number",
        ),
        ("events of the trace that `advisor open` shows", f"{perfetto.MAX_EVENTS:,}"),
    ],
)
def test_the_page_names_the_limit(what: str, limit: str) -> None:
    assert f"| {what} | {limit} |" in PAGE


def test_the_page_names_the_limits_of_rules() -> None:
    seconds = inspect.signature(Sandbox).parameters["timeout_s"].default
    assert f"| one query of a rule | {seconds:g} s of processor time, 4 GB |" in PAGE
    assert "SET memory_limit = '4GB'" in _LOCKDOWN
    together = f"{allowance.TOGETHER_S:g} s of processor time; the process grows by 2 GiB"
    assert f"| all rules that are not shipped, on all runs of a command | {together} |" in PAGE
    assert allowance._MOST_GROWTH_BYTES == 2 << 30
    named = "ranks, hosts or links that a rule's finding names"
    assert f"| {named} | {MOST_ITEMS:,} | the others are left out |" in PAGE
    room = f"{MOST_VALUES:,} in lists; {MOST_TEXT >> 20} Mi characters"
    assert f"| values of a rule's finding | {room} | the others are left out |" in PAGE
    text = f"{MOST_CHARACTERS:,} characters; {MOST_BRACKETS} brackets inside each other"
    assert f"| text of a rule's query | {text} |" in PAGE
