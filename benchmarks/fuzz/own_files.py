"""Files that this program or its user writes, sound and to be changed, and what reads them.

A sweep's journal, what it found out about a job first, node types, jobs, shapes of models,
settings; and traces, whole and compressed, as far as the store.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import zstandard

from advisor.config.hardware import machine
from advisor.config.own import OwnJob, load_own_job
from advisor.config.settings import load_settings
from advisor.config.sweep import Axis
from advisor.config.workload import Workload
from advisor.ingest.compression import compression_of_file, open_decompressed
from advisor.model.presets import read_model
from advisor.model.topology_machine import topology_of
from advisor.tune import survey
from advisor.tune.budget import Budget
from advisor.tune.journal import FILE_NAME, Journal
from advisor.tune.prepare import prepare
from advisor.tune.recommend import recommend, trial_rows
from advisor.tune.sweep import Sweep
from benchmarks.fuzz import texts

_AXES = [Axis(setting="bucket_cap_mb", values=[1.0, 5.0, 25.0])]
_PURPOSES = (
    "baseline",
    "search",
    "baseline",
    "search",
    "baseline",
    *("confirm-a", "confirm-b") * 3,
)
_JOB = """name: mine
command: [torchrun, --nproc-per-node, "2", train.py]
warmup_steps: 5
timed_steps: 20
objective: "tok/s: ([0-9.]+)"
lower_is_better: false
"""
_SHAPE = """name: eight
layers: 32
hidden: 4096
heads: 32
kv_heads: 8
ffn_hidden: 14336
vocab: 128256
sequence: 8192
gated_mlp: true
"""
_SETTINGS = """[diagnose]
rules = ["my-rules"]
format = "html"
fail-on = "warning"
[tune]
budget = 20
timeout = 1.5
"""


def journal() -> list[dict[str, Any]]:
    """The trials of a sweep that was confirmed."""
    return [
        {"number": number, "configuration": {"bucket_cap_mb": 25.0 if is_base else 5.0},
         "is_baseline": is_base, "purpose": purpose, "status": "ok",
         "step_ns": [100_000_000 if is_base else 90_000_000] * 15, "tokens_per_step": 100,
         "peak_memory_bytes": 1 << 30, "message": "", "folder": f"{number:04d}", "seconds": 1.0,
         "sitting": 0, "losses": [2.5, 2.4], "objective": []}
        for number, purpose in enumerate(_PURPOSES)
        for is_base in (purpose in ("baseline", "confirm-a"),)
    ]  # fmt: skip


def surveyed() -> dict[str, Any]:
    """What the first run of somebody's job gave."""
    return {
        "world_size": 2, "backend": "gloo", "device": "cpu", "micro_batches": 1,
        "built": {"ddp": {"bucket_cap_mb": 25.0, "static_graph": False}}, "exposed_share": 0.2,
        "diagnosis": "Small buckets", "findings": {"small-buckets": 0.1}, "trial_s": 3.5,
        "seconds": 9.0,
    }  # fmt: skip


def _write_journal(document: Any) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in document)


@cache
def _sweep(folder: Path) -> Sweep:
    workload = Workload(name="w", bucket_cap_mb=25)
    return prepare(workload, _AXES, folder, {}, Budget(seconds=60.0))


def _read_journal(data: bytes) -> None:
    """As a sweep that is resumed does, and its recommendation."""
    place = texts.place_of(FILE_NAME)
    sweep = _sweep(place.parent)
    header = {"start": sweep.start}
    place.write_bytes(json.dumps(header).encode() + b"\n" + data)
    kept = Journal(place.parent, header, resume=True)
    sweep.results, sweep.sitting = kept.results, kept.next_sitting
    kept.drop_last(sweep.open_round)
    sweep.next()
    recommend(sweep, [])
    trial_rows(sweep)


def _read_survey(data: bytes) -> None:
    place = texts.place_of(survey.FILE_NAME)
    place.write_bytes(data)
    job = OwnJob(command=("python", "train.py"))
    found = survey.survey(job, place.parent, timeout_s=1, again=True)
    survey.prepare_own(job, found, place.parent, None, Budget(seconds=60.0))


def _read_machine(place: Path) -> None:
    topology_of(machine(str(place)), 2)


def _read_compressed(data: bytes) -> None:
    place = texts.place_of("trace")
    place.write_bytes(data)
    with open_decompressed(place, compression_of_file(place))[0] as stream:
        while stream.read(1 << 18):
            pass


def _gzip(document: Any) -> bytes:
    """Two members, as loggers that append leave them."""
    text = texts.joined(document)
    half = len(text) // 2
    return gzip.compress(text[:half], mtime=0) + gzip.compress(text[half:], mtime=0)


def _zstd(document: Any) -> bytes:
    return zstandard.compress(texts.joined(document))


Form = tuple[Callable[[], Any], Callable[[Any], bytes], Callable[[bytes], None]]
MACHINE = texts.shipped("advisor/model/hardware/dgx-h100.yaml")
FORMATS: dict[str, Form] = {
    "journal": (journal, _write_journal, _read_journal),
    "survey": (surveyed, lambda document: json.dumps(document).encode(), _read_survey),
    "machine": (texts.words(MACHINE), texts.joined, texts.from_path("m.yaml", _read_machine)),
    "own_job": (texts.words(_JOB), texts.joined, texts.from_path("own.yaml", load_own_job)),
    "shape": (
        texts.words(_SHAPE),
        texts.joined,
        texts.from_path("shape.yaml", lambda place: read_model(str(place))),
    ),
    "settings": (texts.words(_SETTINGS), texts.joined, texts.from_path("a.toml", load_settings)),
    "gzip": (texts.words(texts.LOG), _gzip, _read_compressed),
    "zstd": (texts.words(texts.LOG), _zstd, _read_compressed),
}
