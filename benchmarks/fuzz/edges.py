"""Puts the edges of every type into documents of every format and diagnoses them, in bounded
processes: no internal error, no hang, no memory beyond the limit.

    python -m benchmarks.fuzz.edges --inputs 20000 --seed 1 [--format probe]

Half of the inputs are sound documents with one to three of their values replaced by an edge: the
ends of 32 and 64 bits and beyond, huge floats, NaN, digits of other scripts, wrong types, nothing.
The other half are files of sound documents with bytes cut, spliced and garbled. Prints inputs, rate
and every failure with how to make it again; exits 1 on a failure.
"""

from __future__ import annotations

import argparse
import copy
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.fuzz import documents
from benchmarks.fuzz.batches import HANG_S, end_on_sigterm, in_batches

EDGES: tuple[Any, ...] = (
    *(0, -1, 1, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**18),
    *(10**30, 0.0, -0.0, 0.5, 5e-324, 1.7e308, -1.7e308, float("nan"), float("inf")),
    *("", "0", "-1", "²", "٣", "1e400", "9" * 400, "NaN", "\ud800", "\x00", "a" * 5000, "1,2"),
    *("9" * 5000, "12345678901"),
    *(None, True, False, [], {}, [[]], [2**63], {"a": 2**64}, [None], "rank 2147483648"),
)
_TOKENS = (
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\n", b"\r", b"\x00", b"\xff", b"NaN"),
    *(b" ", b"\t", b"-", b"0x", b"1e999", b"9" * 25, b"->", b"[0]", b"/", b"#", b"\x80\x04"),
    *(b"NCCL INFO", b"\xc2\xb2", b"\xed\xa0\x80", b"9" * 5000, b"12345678901"),
)


class HangError(Exception):
    """An input took longer than :data:`HANG_S` of processor time."""


def mutated(document: Any, rng: random.Random) -> Any:
    """The document, with one to three of its values replaced, removed or repeated."""
    is_flat = isinstance(document, list) and all(type(item) is str for item in document)
    for _ in range(rng.randint(1, 3)):
        places = [] if is_flat else list(_places(document))
        if is_flat and document:
            holder, key = document, rng.randrange(len(document))
        elif places:
            holder, key = rng.choice(places)
        else:
            break
        roll = rng.random()
        if roll < 0.85:
            holder[key] = copy.deepcopy(rng.choice(EDGES))
        elif roll < 0.93:
            del holder[key]
        elif isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
    return document


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """A copy with one to three places cut, spliced or garbled."""
    for _ in range(rng.randint(1, 3)):
        at, kind = rng.randrange(len(data) + 1), rng.randrange(5)
        if kind == 0:
            data = data[:at]
        elif kind == 1:
            data = data[:at] + rng.choice(_TOKENS) + data[at + rng.randrange(3) :]
        elif kind == 2:
            data = data[:at] + data[at + rng.randrange(1, 40) :]
        elif kind == 3:
            data = data[:at] + rng.randbytes(rng.randrange(1, 6)) + data[at + 4 :]
        else:
            start = rng.randrange(len(data) + 1)
            data = data[:at] + data[start : start + rng.randrange(80)] + data[at:]
    return data


def garble(path: Path, rng: random.Random) -> None:
    """Damage a file in its place."""
    path.write_bytes(damaged(path.read_bytes(), rng))


def diagnose(path: Path) -> None:
    """Everything that a user's command would do with the file; raises what it raises."""
    import advisor
    from advisor.errors import AdvisorError

    try:
        run = advisor.load(str(path))
        run.findings()
        run.close()
    except AdvisorError:
        return


def run_one(name: str, seed: int, number: int, folder: Path) -> str | None:
    """The traceback of what input ``number`` of a format causes; None where all is well."""
    rng = random.Random(f"{name}/{seed}/{number}")
    write, document = documents.FORMATS[name]
    target = folder / f"{number}"
    target.mkdir()
    signal.signal(signal.SIGVTALRM, _hung)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANG_S)
    try:
        try:
            if number % 2:
                path = write(document(), target)
                garble(rng.choice([file for file in target.rglob("*") if file.is_file()]), rng)
            else:
                path = write(mutated(document(), rng), target)
        except documents.UnwritableError:
            return None
        diagnose(path)
    except BaseException:  # noqa: BLE001 - whatever it is, it is the finding
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        for left in sorted(target.rglob("*"), reverse=True):
            left.unlink()
        target.rmdir()
    return None


def _hung(*_: object) -> None:
    raise HangError


def _work(
    name: str, seed: int, numbers: Iterable[int], failed: Callable[[tuple[int, str]], None]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            failure = run_one(name, seed, number, Path(folder))
            if failure is not None:
                failed((number, failure))


def fuzz(names: list[str], seed: int, inputs: int, batch: int = 50) -> list[tuple[Any, ...]]:
    """All failures as (format, seed, number, traceback); each batch in a process of its own."""
    share = max(1, inputs // len(names))
    return [
        (name, seed, *failure)
        for name in names
        for failure in in_batches(
            partial(_work, name, seed), range(share), batch, HANG_S * 6 + batch
        )
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--format", choices=sorted(documents.FORMATS), action="append")
    parser.add_argument(
        "--one", type=int, metavar="NUMBER", help="only this input, in this process"
    )
    arguments = parser.parse_args()
    names = arguments.format or sorted(documents.FORMATS)
    if arguments.one is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(run_one(names[0], arguments.seed, arguments.one, Path(folder)) or "all is well")
        return 0
    end_on_sigterm()
    begun = time.perf_counter()
    failures = fuzz(names, arguments.seed, arguments.inputs)
    kinds: dict[str, list[tuple[Any, ...]]] = {}
    for failure in failures:
        kinds.setdefault(failure[3].strip().splitlines()[-1][:160], []).append(failure)
    for kind, ones in sorted(kinds.items(), key=lambda item: -len(item[1])):
        name, seed, number, text = ones[0]
        print(f"{len(ones)} x {kind}\n  --format {name} --seed {seed} --one {number}")
        print("  " + "\n  ".join(text.strip().splitlines()[-7:]))
    seconds = time.perf_counter() - begun
    print(f"{arguments.inputs:,} inputs in {seconds:.0f} s, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
