"""What docs/whatif.md says of the predictions is what predictions.json holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "bucket cap": "bucket_cap_mb",
    "link": "link.bandwidth",
    "late rank": "late_rank",
    "FSDP2: prefetch": "prefetch",
    "FSDP2: resharding": "resharding",
    "FSDP2: wrapping": "wrap_layers",
}


def predictions() -> list[dict[str, Any]]:
    text = (ROOT / "benchmarks/lab/predictions.json").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(text)["predictions"]
    return found


def row(name: str, of: list[dict[str, Any]]) -> str:
    errors = np.abs([p["error"] for p in of])
    signs = [p["right_sign"] for p in of if p["right_sign"] is not None]
    held = np.mean([p["held"] for p in of])
    right = f"{sum(signs)} of {len(signs)}" if signs else "–"
    return (
        f"| {name} | {len(of)} | {np.median(errors):.1%} | {np.quantile(errors, 0.95):.1%} "
        f"| {right} | {held:.0%} |"
    )


def rows() -> list[str]:
    every = predictions()
    return [
        row("all", every),
        *(row(n, [p for p in every if p["setting"] == s]) for n, s in SETTINGS.items()),
        row("FSDP2 jobs", [p for p in every if "fsdp2" in p["family"]]),
        row("held out", [p for p in every if p["family"].startswith("held-out")]),
    ]


def test_the_table_is_what_was_measured() -> None:
    text = (ROOT / "docs/whatif.md").read_text(encoding="utf-8")
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert [line for line in rows() if line not in table] == []
    assert f"{len(predictions())} questions" in text


def test_no_sign_is_wrong_and_what_lies_outside_is_named() -> None:
    every = predictions()
    assert [p for p in every if p["right_sign"] is False] == []
    text = (ROOT / "docs/whatif.md").read_text(encoding="utf-8")
    outside = [p for p in every if not p["held"]]
    assert f"Two of {len(every)} lie outside" in text
    assert len(outside) == 2
    for p in outside:
        assert f"`{p['family']}`, {p['error']:+.1%}".replace("%", " %") in text
