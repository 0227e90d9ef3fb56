"""A gzip that is cut gives exactly what the plain text gives that can be decompressed from it."""

from __future__ import annotations

import gzip
import random
import zlib
from pathlib import Path

import pytest

from tests.support.traces import LAYOUTS, event, read

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("layout", ["kineto", "compact"])
def test_no_event_more_is_lost(layout: str, tmp_path: Path) -> None:
    rng = random.Random(layout)
    events = [
        event(n, args={"device": 0, "stream": 7, "Input Dims": [[rng.randrange(999), n]]})
        for n in range(400)
    ]
    packed = gzip.compress(LAYOUTS[layout](events).encode(), mtime=0)
    for _ in range(3):
        cut = packed[: rng.randrange(len(packed) // 4, len(packed))]
        inflater = zlib.decompressobj(31)
        (tmp_path / "cut.json.gz").write_bytes(cut)
        (tmp_path / "plain.json").write_bytes(inflater.decompress(cut) + inflater.flush())
        counts = [
            read(tmp_path / name).con.execute("SELECT count(*) FROM event").fetchall()
            for name in ("cut.json.gz", "plain.json")
        ]
        assert counts[0] == counts[1] != [(0,)]
