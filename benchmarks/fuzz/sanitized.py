"""Runs the code in C, the scanner of traces and NCCL's tuner plugin, on damaged inputs under the
address, undefined-behaviour and leak sanitizers; the first report of one ends the run.

    python -m benchmarks.fuzz.sanitized --inputs 1000000 --seed 1

The corpus is what the tree keeps: the layouts of the fuzzer of traces, the events of the shipped
recordings, the inputs that the fuzzer of rule files makes. Prints what was accepted and refused.
"""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.fuzz.kineto import _templates
from benchmarks.fuzz.readers import made

ROOT = Path(__file__).resolve().parents[2]
_SCANNER = ROOT / "advisor" / "ingest" / "readers" / "kineto" / "native"
_PLUGIN = ROOT / "advisor" / "tune" / "plugin"
_FLAGS = "-g -O1 -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all"
_CHUNK_BYTES = 3_000
"""Of a recording: of larger ones the damage is refused before most is read."""
_AT_ONCE = 1_000


def built(folder: Path, what: str) -> Path:
    """The harness of ``scanner`` or ``plugin``, compiled. Raises CalledProcessError."""
    standard, include, source = {
        "scanner": ("c11", _SCANNER, ROOT / "tests" / "ingest" / "scan_harness.c"),
        "plugin": ("gnu11", _PLUGIN, ROOT / "tests" / "tune" / "plugin_harness.c"),
    }[what]
    program = folder / what
    command = ["cc", f"-std={standard}", *_FLAGS.split(), f"-I{include}", "-o", program, source]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return program


def chunks(folder: Path) -> list[Path]:
    """Lists of events, a file each: the fuzzer's layouts, and the shipped recordings' events."""
    texts = [text for text, _ in _templates()]
    for trace in sorted((ROOT / "fixtures").glob("*/rank0.json.gz")):
        with gzip.open(trace) as file:
            texts.append(file.read(4 * _CHUNK_BYTES))
    places = []
    for number, text in enumerate(texts):
        start = text.find(b"[", max(0, text.find(b'"traceEvents"')))
        part = text[start : start + _CHUNK_BYTES]
        end = part.rfind(b"}") if len(part) == _CHUNK_BYTES else part.rfind(b"]") - 1
        places.append(folder / f"chunk{number}.json")
        places[-1].write_bytes(part[: end + 1] + b"]")
    return places


def scan(program: Path, inputs: int, seed: int, files: list[Path]) -> tuple[int, int]:
    """Chunks that the scanner accepted and refused. Raises AssertionError with a report."""
    said = _run([program, str(inputs), str(seed), *files])
    accepted, refused = (int(part.split()[0]) for part in said.split(": ")[1].split(", "))
    return accepted, refused


def tune(program: Path, files: list[Path]) -> list[tuple[int, int]]:
    """The plugin's status for each file of rules, and how many entries of tables it changed."""
    lines = _run([program, *files]).split("\n")[:-1]
    return [(int(line.split()[0]), int(line.split()[1])) for line in lines]


def rule_files(folder: Path, numbers: range, seed: int) -> list[Path]:
    """Files of rules for the plugin, as the fuzzer of its parser in Python makes them."""
    places = []
    for number in numbers:
        data = made("tuner", seed, number)
        if data is not None:
            places.append(folder / f"{number}.csv")
            places[-1].write_bytes(data)
    return places


def _run(command: list[Path | str]) -> str:
    options = {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
    done = subprocess.run(
        list(map(str, command)), env={**os.environ, **options}, capture_output=True, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        accepted, refused = scan(
            built(folder, "scanner"), arguments.inputs, arguments.seed, chunks(folder)
        )
        print(f"scanner: {accepted:,} accepted, {refused:,} refused", flush=True)
        program, taken, asked = built(folder, "plugin"), 0, 0
        for start in range(0, arguments.inputs // 10, _AT_ONCE):
            files = rule_files(folder, range(start, start + _AT_ONCE), arguments.seed)
            statuses = [status for status, _ in tune(program, files)]
            taken, asked = taken + statuses.count(0), asked + len(statuses)
        print(f"plugin: {taken:,} accepted, {asked - taken:,} refused")
    return 0


if __name__ == "__main__":
    sys.exit(main())
