"""The posterior of slow links beside what names them in gloo's recordings, recording by recording.

    python -m benchmarks.links_shadow [RECORDING ...]

Without arguments every recording under fixtures/. gloo's jobs are judged by staggers.py and
peers.py until the posterior (slow_location.py) is at least as good on all of them: this prints
both. It names none of the three slow links there yet.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError
from advisor.ingest import ingest
from advisor.metrics.derive import link_input
from advisor.metrics.links.attribution import homes, link_rows
from advisor.metrics.links.named import SURE, culprit_of
from advisor.metrics.links.slow_location import slow_location
from advisor.metrics.load import load_run
from advisor.store.store import Store

ROOT = Path(__file__).resolve().parent.parent


def compare(recording: Path) -> str | None:
    """A line for each of both; None where no calls compare links."""
    with Store.create(None) as store:
        ingest([str(recording)], store, run="run")
        data = link_input(store.con, load_run(store.con, "run"))
    home = homes(data)
    found = slow_location(data, home)
    if found is None:
        return None
    old = "; ".join(_row(row) for row in link_rows(data)) or "nothing"
    low, middle, high = (1 - 1 / one for one in found.slowdown)
    words = culprit_of(found, data, home).words or ""
    sure = found.nothing + found.uniform <= SURE
    new = f"{words}, {middle:.0%} ({low:.0%} to {high:.0%}) of its calls" if sure else "nothing"
    return f"  now        {old}\n  posterior  {new}; P(nothing) {found.nothing:.2g}"


def _row(row: dict[str, Any]) -> str:
    evidence = json.loads(row["evidence"] or "{}")
    low, middle, high = evidence.get("share", (0.0, 0.0, 0.0))
    place = f"{row['src']} -> {row['dst']}" if row["kind"] == "edge" else f"of rank {row['src']}"
    way = evidence.get("direction") or ""
    return f"{row['kind']} {place} {way}, {middle:.0%} ({low:.0%} to {high:.0%}) of its calls"


def main() -> None:
    """Print both for every recording."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.links_shadow", description=__doc__)
    parser.add_argument("recordings", nargs="*", type=Path)
    chosen = parser.parse_args().recordings
    for recording in chosen or sorted(p for p in (ROOT / "fixtures").iterdir() if p.is_dir()):
        try:
            said = compare(recording)
        except AdvisorError as error:
            said = f"  {error}"
        if said is not None:
            print(f"{recording.name}\n{said}")


if __name__ == "__main__":
    main()
