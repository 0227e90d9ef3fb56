"""``advisor open`` as a browser sees it: a page of Perfetto's origin gets the trace, others do not.

The page itself needs the network; here an empty page of the same origin stands in for it. So what
is checked is what the browser decides (CORS, permission for the loopback address) and what the
page would get, not Perfetto's own drawing of it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.cli._trace_server import TraceServer
from advisor.cli.open import choose
from advisor.report.perfetto import PERFETTO, finding_trace
from tests.report.browser import Browser
from tests.report.test_browser import browser

pytestmark = pytest.mark.chromium
__all__ = ["browser"]

_PATIENCE_MS = 5_000
"""A page that asks for leave waits without end for an answer that nobody gives here."""


@contextmanager
def _serving(body: bytes) -> Iterator[TraceServer]:
    with TraceServer(body, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def _fetch(browser: Browser, url: str) -> dict[str, Any]:
    script = (
        f"fetch({json.dumps(url)}, {{signal: AbortSignal.timeout({_PATIENCE_MS})}})"
        ".then(async answer => ({status: answer.status, kind: "
        "answer.headers.get('content-type'), trace: answer.ok ? await answer.json() : null}), "
        "error => ({error: String(error)}))"
    )
    answer: dict[str, Any] = browser.evaluate(script)
    return answer


def test_only_perfettos_page_gets_the_trace(browser: Browser, fixtures_dir: Path) -> None:
    with advisor.load(fixtures_dir / "gpt2-tiny-ddp-2-slow-rank") as run:
        finding = choose(run.report.findings, "straggler-rank")
        crop = finding_trace(run.store, finding, context=1.0)
    browser.call("Browser.grantPermissions", permissions=["loopbackNetwork"])
    with _serving(crop.text.encode()) as server:
        browser.pretend("https://other.example/", "<title>another page</title>")
        assert "error" in _fetch(browser, server.url)
        browser.pretend(f"{PERFETTO}/", "<title>stands in for Perfetto</title>")
        assert browser.evaluate("location.origin") == PERFETTO
        assert "error" in _fetch(browser, server.url.replace(".json", ".txt"))
        got = _fetch(browser, server.url)
    assert got["status"] == 200
    assert got["kind"] == "application/json"
    slices = [event for event in got["trace"]["traceEvents"] if event["ph"] == "X"]
    assert {"advisor"} == {
        event["args"]["name"]
        for event in got["trace"]["traceEvents"]
        if event["name"] == "process_name" and event["pid"] == 1
    }
    assert any(event["pid"] == 1 and "waits for rank 1" in event["name"] for event in slices)
    # A window's length on either side, and whatever reaches into that.
    length = crop.end_ns - crop.start_ns
    recorded = [event for event in slices if event["pid"] != 1]
    assert recorded
    for event in recorded:
        start, end = event["ts"] * 1000, (event["ts"] + event["dur"]) * 1000
        assert start < crop.end_ns + length
        assert end > crop.start_ns - length


def test_the_browser_asks_before_the_page_reaches_this_machine(browser: Browser) -> None:
    """Chromium 142 and later: what `advisor open` says about it on the terminal is true."""
    browser.call("Browser.resetPermissions")
    if int(browser.call("Browser.getVersion")["product"].split("/")[1].split(".")[0]) < 142:
        pytest.skip("this Chromium does not ask")
    with _serving(b'{"traceEvents":[]}') as server:
        browser.pretend(f"{PERFETTO}/", "<title>stands in for Perfetto</title>")
        assert "error" in _fetch(browser, server.url)
        assert not server.fetched
