"""The pages that a browser opens: made up for the report's sake, and of the repository's traces."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

import advisor
from advisor.cli.compare import command as compare
from advisor.report import render
from tests.report.support import add_everything, make_healthy_report, make_report, make_store

NAMES = ("broken", "healthy", "many", "two", "three", "logs", "close", "link", "compared")
_FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
_RECORDED = {
    # Two jobs of the same findings, and logs of three: everything is there several times.
    "two": ("lab-ddp-compute-bound", "lab-ddp-hidden-communication"),
    "three": ("lab-ddp-slow-link", "lab-ddp-slow-rank", "lab-zero1-pauses"),
    "logs": ("nccl-logs",),
    # Four findings under a verdict of the longest kind.
    "link": ("lab-fsdp2-slow-link",),
    # Reaches nearly its own compute speed: close under the roof.
    "close": ("gpt2-tiny-ddp-2",),
}


def write_pages(folder: Path) -> dict[str, Path]:
    """Every page of :data:`NAMES` as a file in ``folder``."""
    found = {name: folder / f"{name}.html" for name in NAMES}
    with make_store() as store:
        add_everything(store)
        found["broken"].write_text(render(make_report(), store, "html"), encoding="utf-8")
    with make_store(late_rank=-1) as store:
        found["healthy"].write_text(render(make_healthy_report(), store, "html"), encoding="utf-8")
    long = "all_reduce_" * 30
    with make_store(64, 20, calls=4) as store:
        add_everything(store, 64)
        store.con.execute("UPDATE rank SET host = ?", [long])
        store.con.execute("UPDATE source SET path = ?", [f"/{long}/{long}"])
        text = render(make_report(ranks=64, name=long), store, "html")
        found["many"].write_text(text, encoding="utf-8")
    for name, recordings in _RECORDED.items():
        with advisor.load(*(_FIXTURES / recording for recording in recordings)) as run:
            found[name].write_text(run.render("html"), encoding="utf-8")
    runs = [str(_FIXTURES / name) for name in ("gpt2-tiny-ddp-2", "gpt2-tiny-ddp-2-slow-rank")]
    done = CliRunner().invoke(compare, [*runs, "-q", "-o", str(found["compared"])])
    assert done.exit_code == 0, done.output
    return found
