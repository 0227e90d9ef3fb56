"""Parses many damaged files in memory, by the parsers alone: no internal error, no hang.

    python -m benchmarks.fuzz.readers --inputs 1000000 --seed 1 [--format nccl_log]
    python -m benchmarks.fuzz.readers --minutes 60 --seed 2    # as long for each format

Half of the inputs are sound documents with values at the edges of their types, or drawn from a
grammar; half are their bytes, cut, spliced and garbled. What benchmarks.fuzz.edges diagnoses at
two a second passes here at thousands a second, as far as the parsers go: what becomes of it in the
store is not looked at. Exports and op tables go into a store all the same, at some tens a second.
One in 2,048 has elements by the thousand, up to 5 MB (sizes.py): they take most of the time of
the fast formats all the same. Each batch runs in a process of bounded memory. Prints inputs, rate,
the slowest input and the largest memory by format, and the failures.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError
from advisor.ingest.readers import flight_recorder as flight
from advisor.ingest.readers import kineto, nsys, op_table
from advisor.ingest.readers.flight_recorder.dump import parse_dump
from advisor.ingest.readers.flight_recorder.unpickle import unpickle
from advisor.ingest.readers.nccl_inspector.records import Inspector
from advisor.ingest.readers.nccl_log.collect import Log
from advisor.ingest.readers.nccl_tests.report import parse_report
from advisor.ingest.readers.nccl_tests.text import TableParser
from advisor.ingest.source import ReadContext, Source
from advisor.store.store import Store
from benchmarks.fuzz import documents, exports, log_grammar, own_files, sizes, texts
from benchmarks.fuzz.batches import HANG_S, Cost, end_on_sigterm, in_batches
from benchmarks.fuzz.documents import UnwritableError
from benchmarks.fuzz.edges import damaged, mutated

_BATCH = 2_000
_EVERY, _SIZED = 2_048, 10
"""Of so many inputs this one repeats an element thousands of times (sizes.py)."""


def _pickled(document: Any) -> bytes:
    return pickle.dumps(document, protocol=2)


def _json(document: Any) -> bytes:
    return json.dumps(document).encode(errors="surrogatepass")


def _json_lines(document: Any) -> bytes:
    return b"".join(_json(item) + b"\n" for item in document)


def _lines(form: str) -> Callable[[Any], bytes]:
    def write(document: Any) -> bytes:
        rows = "\n".join(" ".join(str(value) for value in row) for row in document["rows"])
        return form.format(rows=rows, head=document["head"]).encode(errors="surrogatepass")

    return write


def _read_pickle(data: bytes) -> None:
    parse_dump(unpickle(data, where="x")[0])


def _read_dump(data: bytes) -> None:
    parse_dump(flight._from_json(data.decode("utf-8-sig", errors="replace"))[0])


def _read_inspector(data: bytes) -> None:
    Inspector().read(io.BytesIO(data))


def _read_report(data: bytes) -> None:
    parse_report(data.decode(errors="replace"))


def _read_table(data: bytes) -> None:
    parser = TableParser()
    for line in data.decode(errors="replace").splitlines():
        parser.feed(line)
    parser.finish()


def _read_log(data: bytes) -> None:
    log = Log()
    for number, line in enumerate(data.decode(errors="replace").splitlines()):
        log.feed(line, ("x.log", number))
    log.finish()


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _database(document: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return documents._sqlite(document, Path(folder)).read_bytes()


def _parquet(document: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return documents._parquet(document, Path(folder)).read_bytes()


@cache
def _store(process: int) -> Store:
    """A store of this process: what is read goes there and is removed."""
    store = Store.create()
    # Threads take longer to meet over some rows than one of them over all.
    store.con.execute("SET threads = 1")
    return store


def _into_store(
    name: str, read: Callable[[list[Source], ReadContext], None]
) -> Callable[[bytes], None]:
    def put_and_read(data: bytes) -> None:
        store = _store(os.getpid())
        place = texts.place_of(name)
        place.write_bytes(data)
        try:
            read([Source.of(place, 0)], ReadContext(store, "run"))
        finally:
            for table in ("event", "comm_event", "rank", "source", "step"):
                store.con.execute(f"DELETE FROM {table}")

    return put_and_read


def _read_op_table(sources: list[Source], context: ReadContext) -> None:
    if op_table.detect(sources[0]):
        op_table.read(sources, context)


Format = tuple[Callable[[], Any], Callable[[Any], bytes], Callable[[bytes], None]]
Drawn = tuple[Callable[[random.Random], Any], Callable[[Any], bytes], Callable[[bytes], None]]
GRAMMARS: dict[str, Drawn] = {
    "nccl_log_grammar": (log_grammar.log, _encoded, _read_log),
    "nsys_grammar": (exports.export, exports.written, _into_store("run.sqlite", nsys.read)),
}
FORMATS: dict[str, Format] = {
    "nsys": (documents.nsys, _database, _into_store("run.sqlite", nsys.read)),
    "op_table": (documents.op_table, _parquet, _into_store("trace.parquet", _read_op_table)),
    "flight_recorder": (documents.flight_recorder, _pickled, _read_pickle),
    "flight_recorder_json": (documents.flight_recorder, _json, _read_dump),
    "nccl_inspector": (documents.inspector, _json_lines, _read_inspector),
    "nccl_tests": (documents.nccl_tests, _json, _read_report),
    "nccl_tests_text": (documents.nccl_tests_text, _lines(documents._TESTS_FORM), _read_table),
    "nccl_log": (documents.nccl_log, _lines(documents._LOG_FORM), _read_log),
    "nccl_log_words": (texts.words(texts.LOG), texts.joined, _read_log),
    "kineto": (lambda: documents.kineto()[0], _json, _into_store("rank0.json", kineto.read)),
    **texts.FORMATS,
    **own_files.FORMATS,
}


def made(name: str, seed: int, number: int) -> bytes:
    """Input ``number`` of a format; values that cannot be written are drawn again."""
    rng = random.Random(f"{name}/{seed}/{number}")
    if number % _EVERY == _SIZED:
        write = {**FORMATS, **GRAMMARS}[name][1]
        while True:
            try:
                return write(sized(name, rng))
            except (
                TypeError,
                KeyError,
                ValueError,
                AttributeError,
                OverflowError,
                UnwritableError,
            ):
                continue
    if name in GRAMMARS:
        draw, write, _ = GRAMMARS[name]
        data = write(draw(rng))
        return damaged(data, rng) if number % 2 else data
    document, write, _ = FORMATS[name]
    if number % 2:
        return damaged(write(document()), rng)
    while True:
        try:
            return write(mutated(document(), rng))
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError, UnwritableError):
            continue


def sized(name: str, rng: random.Random) -> Any:
    """A document of a format in which an element stands thousands of times."""
    if name in GRAMMARS:
        drawn = GRAMMARS[name][0](rng)
        if isinstance(drawn, str):
            return "".join(sizes.repeated_words(texts.words(drawn)(), rng))
        return sizes.repeated([*drawn], rng)
    document = FORMATS[name][0]()
    write = FORMATS[name][1]
    if write is texts.joined:
        return sizes.repeated_words(document, rng)
    return sizes.repeated(document, rng, is_shared=write is _pickled)


def _work(
    name: str, seed: int, numbers: Iterable[int], failed: Callable[[tuple[int, str]], None]
) -> None:
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    os.environ["ADVISOR_NO_CACHE"] = "1"
    read = {**FORMATS, **GRAMMARS}[name][2]
    for number in numbers:
        data = made(name, seed, number)
        signal.setitimer(signal.ITIMER_VIRTUAL, HANG_S)
        try:
            read(data)
        except AdvisorError:
            pass
        except BaseException:  # noqa: BLE001 - whatever it is, it is the finding
            failed((number, traceback.format_exc()))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def fuzz(name: str, seed: int, inputs: range, cost: Cost | None = None) -> list[tuple[int, str]]:
    """All failures as (number, traceback); an input that hangs ends its batch, which is one."""
    work = partial(_work, name, seed)
    return list(in_batches(work, inputs, _BATCH, HANG_S + _BATCH, cost))


def fuzz_for(
    name: str, seed: int, cpu_s: float, cost: Cost | None = None
) -> tuple[int, list[tuple[int, str]]]:
    """As :func:`fuzz`, until so much processor time is used: how many inputs that were."""
    failures: list[tuple[int, str]] = []
    end, more, left_s = 0, 100, cpu_s
    while left_s > 0:
        before_s = _used_s()
        failures += fuzz(name, seed, range(end, end + more), cost)
        took_s = _used_s() - before_s
        end, left_s = end + more, left_s - took_s
        more = max(1, min(4 * more, int(more * left_s / max(took_s, 1e-3))))
    return end, failures


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=60_000)
    parser.add_argument("--minutes", type=float, help="of processor time, instead of --inputs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--format", choices=sorted({**FORMATS, **GRAMMARS}), action="append")
    arguments = parser.parse_args()
    end_on_sigterm()
    names = arguments.format or sorted({**FORMATS, **GRAMMARS})
    share = max(1, arguments.inputs // len(names))
    bad = total = 0
    for name in names:
        before_s = _used_s()
        begun = time.perf_counter()
        cost = Cost()
        if arguments.minutes:
            cpu_s = 60 * arguments.minutes / len(names)
            share, failures = fuzz_for(name, arguments.seed, cpu_s, cost)
        else:
            failures = fuzz(name, arguments.seed, range(share), cost)
        seconds = time.perf_counter() - begun
        print(
            f"{name}: {share:,} inputs, {share / max(_used_s() - before_s, 1e-3):,.0f} a CPU "
            f"second, {seconds:.0f} s, slowest {cost.slowest_s:.1f} s (number {cost.slowest:,}), "
            f"{cost.peak_bytes / 2**20:,.0f} MiB, {len(failures)} failures",
            flush=True,
        )
        total += share
        bad += len(failures)
        for kind in {text.strip().splitlines()[-1][:160] for _, text in failures}:
            ones = [one for one in failures if one[1].strip().splitlines()[-1][:160] == kind]
            print(f"  {len(ones)} x {kind}: --seed {arguments.seed}, number {ones[0][0]}")
            print("    " + "\n    ".join(ones[0][1].strip().splitlines()[-7:]))
    print(f"{total:,} inputs, {bad} failures")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
