r"""Ingest side by side with its floor and with HolisticTraceAnalysis; medians and ratios.

    python -m benchmarks.ingest.generate rank0.json.gz /tmp/big.json --megabytes 500
    python -m benchmarks.ingest.run /tmp/big.json [--hta-python VENV/bin/python] [--repeats 5] \\
        [--diagnose]

Every measurement is a fresh process; the contenders take turns, so that a busy machine slows all
of them. The floor is what no design on this database can avoid: check that the chunks are JSON
(json_valid) and append the finished tables, event and comm_event, to a file.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_MEASURE = """
import json, resource, sys, time
started, cpu = time.perf_counter(), time.process_time()
{body}
own, child = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(json.dumps(dict(wall_s=time.perf_counter() - started,
    cpu_s=time.process_time() - cpu + child.ru_utime + child.ru_stime,
    rss_mb=max(own.ru_maxrss, child.ru_maxrss) / 1024)))
"""
_INGEST = """
from pathlib import Path
from advisor.ingest import ingest
from advisor.ingest.detect import readers
from advisor.store.store import Store
readers()  # imports them: no contender's imports are measured
started, cpu = time.perf_counter(), time.process_time()
with Store.create(Path({out!r}), force=True) as store:
    ingest([{path!r}], store)
    store.save()
"""
_PARSE = """
import duckdb, pyarrow as pa
from pathlib import Path
from advisor.ingest.compression import DEFAULT_LIMITS, open_decompressed
from advisor.ingest.readers.kineto.cutter import Cutter
started, cpu = time.perf_counter(), time.process_time()
stream, raw = open_decompressed(Path({path!r}), "none")
schema = pa.schema([("chunk", pa.string())])
def batches():
    for chunk in Cutter(raw.read_piece, DEFAULT_LIMITS).chunks():
        size = len(chunk.text).to_bytes(4, "little")
        offsets = pa.py_buffer(bytes(4) + size)
        text = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(chunk.text))
        yield pa.record_batch([text], schema=schema)
chunks = pa.RecordBatchReader.from_batches(schema, batches())
assert duckdb.sql("SELECT count(*) FROM chunks WHERE NOT json_valid(chunk)").fetchall() == [(0,)]
"""
_APPEND = """
import duckdb, os
con = duckdb.connect()
con.execute("ATTACH '{out}' AS store (READ_ONLY)")
for table in ("event", "comm_event"):
    con.execute(f"CREATE TABLE {{table}} AS SELECT * FROM store.{{table}}")
started, cpu = time.perf_counter(), time.process_time()
con.execute("ATTACH '{out}.copy' AS copy")
for table in ("event", "comm_event"):
    con.execute(f"CREATE TABLE copy.{{table}} AS SELECT * FROM {{table}}")
con.execute("CHECKPOINT copy")
os.unlink('{out}.copy')
"""
_DIAGNOSE = """
import subprocess
done = subprocess.run([sys.executable, "-m", "advisor", "diagnose", {path!r}], capture_output=True)
assert done.returncode in (0, 1), done.stderr
"""
_HTA = """
from hta.common.trace_parser import parse_trace_dataframe
from hta.configs.parser_config import ParserConfig
started, cpu = time.perf_counter(), time.process_time()
parse_trace_dataframe({path!r}, ParserConfig.get_default_cfg())
"""


def _measure(python: str, body: str) -> dict[str, float]:
    done = subprocess.run(
        [python, "-c", _MEASURE.format(body=body)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    result: dict[str, float] = json.loads(lines[-1])
    return result


def main() -> None:
    """Command line; prints one line per contender and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path, help="an uncompressed trace (see generate.py)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--diagnose", action="store_true", help="time `advisor diagnose` too")
    parser.add_argument("--hta-python", help="interpreter of an environment with `traceinsight`")
    arguments = parser.parse_args()
    trace: Path = arguments.trace
    size_mb = trace.stat().st_size / 1e6
    with tempfile.TemporaryDirectory(prefix="advisor-bench-") as folder:
        packed, out = str(Path(folder) / "trace.json.gz"), str(Path(folder) / "out.duckdb")
        with trace.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        bodies = {
            "ingest .json": (sys.executable, _INGEST.format(path=str(trace), out=out)),
            "ingest .json.gz": (sys.executable, _INGEST.format(path=packed, out=out)),
            "parse only": (sys.executable, _PARSE.format(path=str(trace))),
            "append only": (sys.executable, _APPEND.format(out=out)),
        }
        if arguments.diagnose:
            bodies["diagnose"] = (sys.executable, _DIAGNOSE.format(path=str(trace)))
        if arguments.hta_python:
            bodies["HolisticTraceAnalysis"] = (arguments.hta_python, _HTA.format(path=str(trace)))
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in bodies}
        for _ in range(arguments.repeats):
            for name, (python, body) in bodies.items():
                runs[name].append(_measure(python, body))
        store_mb = Path(out).stat().st_size / 1e6
    median = {
        name: {key: statistics.median(run[key] for run in done) for key in done[0]}
        for name, done in runs.items()
    }
    print(f"{trace.name}: {size_mb:.0f} MB, medians of {arguments.repeats}")
    for name, row in median.items():
        print(
            f"{name:<22} {row['wall_s']:7.2f} s  cpu {row['cpu_s']:6.2f} s  "
            f"{size_mb / row['wall_s']:5.0f} MB/s  {row['rss_mb']:5.0f} MB"
        )
    for key in ("wall_s", "cpu_s"):
        floor = median["parse only"][key] + median["append only"][key]
        own = median["ingest .json"][key]
        print(f"{key}: {own / floor:.2f} x floor, gz at {own / median['ingest .json.gz'][key]:.0%}")
        if arguments.hta_python:
            print(f"{key}: {median['HolisticTraceAnalysis'][key] / own:.1f} x faster than HTA")
        if arguments.diagnose:
            print(f"{key}: diagnose takes {median['diagnose'][key] / own:.1f} x the ingest")
    print(f"store: {store_mb:.1f} MB, {store_mb / size_mb:.1%} of the JSON")


if __name__ == "__main__":
    main()
