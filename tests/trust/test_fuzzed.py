"""Inputs that the fuzzer of parsers found (benchmarks/fuzz/readers), cut down to what mattered."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from advisor.config import parsed
from advisor.config.loader import load_model
from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.ingest.readers import osu, torch_bench
from advisor.ingest.readers.nccl_tests.record import Harvest
from advisor.ingest.readers.nccl_tests.report import parse_report
from advisor.model.nccl.calibration import Calibration
from benchmarks.fuzz import own_files
from benchmarks.fuzz.readers import FORMATS, GRAMMARS, fuzz

pytestmark = pytest.mark.slow

_BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
_PATTERN = (
    "h:1:2 [0] NCCL INFO Pattern 4, crossNic 0, nChannels {}, bw {}/20.0, type NVL/PIX,"
    " sameChannels 1\n"
)
FOUND = {
    "size 0 over a bandwidth": ("osu", b"# OSU MPI-CUDA Bandwidth Test v7.0\n0  24012.10\n"),
    "no ranks over a bandwidth": (
        "osu",
        b"srun -n 0 x\n# OSU NCCL-CUDA All-to-All Bandwidth Test v7\n8 24.0\n",
    ),
    "a figure with two points": ("model_log", _PATTERN.format(2, "20.0.5").encode()),
    "a count of 5,000 digits": ("model_log", _PATTERN.format("9" * 5000, "20.0").encode()),
    "an endless compute capability": ("topology", b"name: x\ncompute_capability: 1e999\n"),
    "a list as a key": ("topology", b"? [[1]]\n: 2\nname: x\n"),
    "a key like a union's tag": ("workload", b'"[x": 1\n'),
    "a process that is a list": (
        "nccl_tests",
        b'{"config": {"nthreads": 1, "ngpus": 8, "devices": [{"pid": [], "hostname": {}}]}}',
    ),
    "aliases of aliases": ("workload", _BOMB.encode()),
    "a value that holds itself": ("workload", b"name: &a [*a, *a]\n"),
    "a number of 5,000 digits": ("workload", b"world_size: " + b"9" * 5000),
    "a date of month 99": ("workload", b"name: 2020-99-99\n"),
    "a first run that was cut": ("survey", b'{"world_size": '),
    "a first run of bytes": ("survey", b'{"backend": "\xfa"}'),
    "a machine's graph without channels": (
        "machine",
        own_files.MACHINE.replace("{pattern: 5, channels: 8,", "{pattern: 5,").encode(),
    ),
    "3,000 lists": ("rule", b"x: " + b"[" * 3000),
    # The parser in C recurses: the process ended here.
    "settings in settings": ("rule", b"x: " + b"{a: " * 60_000),
    "lists in a block": ("rule", b"- " * 60_000 + b"x"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FOUND)
def test_it_is_read_or_refused(name: str) -> None:
    form, data = FOUND[name]
    with suppress(AdvisorError):
        FORMATS[form][2](data)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_stands_its_fuzzer(name: str) -> None:
    """The sound document is read, so that what is changed in it is looked at; some are changed."""
    document, write, read = FORMATS[name]
    read(write(document()))
    assert fuzz(name, 7, range(8)) == []


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_grammar_makes_what_is_read(name: str) -> None:
    """Most of what is drawn is sound enough to be read; some of it is damaged."""
    draw, write, read = GRAMMARS[name]
    read(write(draw(random.Random(3))))
    assert fuzz(name, 7, range(10)) == []


@pytest.mark.long
@pytest.mark.parametrize("name", [*FORMATS, *GRAMMARS])
def test_every_format_stands_its_fuzzer_at_length(name: str) -> None:
    assert fuzz(name, 8, range(200)) == []


def test_values_that_aliases_write_out_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsed, "MOST_VALUES", 10_000)
    (tmp_path / "bomb.yaml").write_text(_BOMB)
    with pytest.raises(AdvisorError, match="10,000 values"):
        load_model(tmp_path / "bomb.yaml", Workload)


def test_sizes_that_no_message_has_are_counted() -> None:
    of_osu, of_torch = Harvest(), Harvest()
    osu.parse(
        ["srun -n 1048576 x", "# OSU MPI-CUDA Alltoall Latency Test v7", f"{10**14} 1.0"], of_osu
    )
    torch_bench.parse(
        ["average bandwidth of all_reduce over 4 ranks", "| 9999999TiB | 1.0GBps | 1.0GBps |"],
        of_torch,
    )
    report = parse_report(f'{{"results": [{{"size": {2**63}, "in_place": {{"time": 1}}}}]}}')
    for harvest in (of_osu, of_torch, report):
        assert (harvest.measurements, harvest.dropped) == ([], {"size out of range": 1})


def test_a_calibration_without_algorithms_is_refused(tmp_path: Path) -> None:
    document, write, _ = FORMATS["calibration"]
    place = tmp_path / "calibration.yaml"
    place.write_bytes(write(document()).replace(b"\n  ring: ", b" {}\n#"))
    with pytest.raises(AdvisorError, match="latency"):
        load_model(place, Calibration)
