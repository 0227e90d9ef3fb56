"""profile.json: what was run and how fast, from the results that the ranks wrote."""

import json
from pathlib import Path
from statistics import median
from typing import Any

from advisor import __version__
from advisor.config.workload import Workload
from advisor.profile import files

FORMAT = "advisor-profile"
SCHEMA_VERSION = 1


def write(folder: Path, workload: Workload, *, error: str | None = None) -> dict[str, Any]:
    """Summarise the ranks' results into ``folder/profile.json`` and return the document.

    ``error`` is why the run failed; the ranks that got to the end are still listed. A step of the
    run lasts as long as its slowest rank's.
    """
    ranks = []
    for rank in range(workload.world_size):
        path = files.result(folder, rank)
        trace = files.trace(folder, rank)
        entry = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rank": rank}
        entry["trace"] = trace.name if trace.exists() else None
        ranks.append(entry)
    finished = [entry for entry in ranks if "timed_ns" in entry]
    timed = _slowest(finished, "timed_ns")
    profiled = _slowest(finished, "profiled_ns")
    document = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "advisor_version": __version__,
        "status": "failed" if error else "ok",
        "error": error,
        "strategy": workload.strategy,
        "compute": workload.compute,
        "world_size": workload.world_size,
        "workload": workload.model_dump(mode="json"),
        "environment": finished[0]["environment"] if finished else {},
        "versions": finished[0]["versions"] if finished else {},
        "step_ns": spread(timed),
        "profiled_step_ns": spread(profiled),
        "profiler_overhead": _overhead(timed, profiled),
        "tokens_per_step": _tokens(workload, finished),
        "tokens_per_second": _rate(_tokens(workload, finished), timed or profiled),
        "peak_memory_bytes": max((_memory(entry) for entry in finished), default=None),
        "losses": _mean_losses(finished),
        "ranks": [
            {k: v for k, v in entry.items() if k not in ("environment", "versions")}
            for entry in ranks
        ],
    }
    files.write_json(folder / files.PROFILE_FILE, document)
    return document


def spread(samples_ns: list[int]) -> dict[str, Any] | None:
    """Median, median absolute deviation and the samples themselves; None without samples."""
    if not samples_ns:
        return None
    middle = median(samples_ns)
    deviation = median(abs(sample - middle) for sample in samples_ns)
    return {"median": round(middle), "mad": round(deviation), "samples": samples_ns}


def _slowest(ranks: list[dict[str, Any]], key: str) -> list[int]:
    return [max(times) for times in zip(*(entry[key] for entry in ranks), strict=False)]


def _overhead(timed: list[int], profiled: list[int]) -> float | None:
    if not timed or not profiled:
        return None
    return round(median(profiled) / median(timed) - 1, 4)


def _tokens(workload: Workload, finished: list[dict[str, Any]]) -> int | None:
    return workload.tokens_per_rank * int(finished[0]["data_ranks"]) if finished else None


def _rate(tokens: int | None, samples_ns: list[int]) -> float | None:
    return round(tokens / (median(samples_ns) / 1e9), 1) if tokens and samples_ns else None


def _memory(entry: dict[str, Any]) -> int:
    return int(entry.get("peak_allocated_bytes", entry["peak_rss_bytes"]))


def _mean_losses(finished: list[dict[str, Any]]) -> list[float]:
    """Per step, the mean over ranks; a rank without the last pipeline stage has no losses."""
    columns = [entry["losses"] for entry in finished if entry["losses"]]
    return [sum(step) / len(step) for step in zip(*columns, strict=False)]
