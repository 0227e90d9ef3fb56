"""Every input stands in ``source`` with the hash of its file, whatever reader read it."""

from __future__ import annotations

from pathlib import Path

from blake3 import blake3

from advisor.ingest import ingest
from advisor.store.store import Store

NCCL_TESTS = """# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20
#       size         count      type   redop    root     time   algbw   busbw #wrong
           8             2     float     sum      -1    20.11    0.00    0.00      0
"""


def test_every_input_has_its_hash(fixtures_dir: Path, tmp_path: Path) -> None:
    report = tmp_path / "all_reduce_perf.log"
    report.write_text(NCCL_TESTS)
    inputs = [
        fixtures_dir / "gpt2-tiny-ddp-2",
        fixtures_dir / "nccl-logs" / "v2.27-groups.log",
        report,
    ]
    with Store.create() as store:
        ingest(inputs, store)
        rows = store.con.execute(
            "SELECT path, format, blake3 FROM source WHERE format <> 'unknown'"
        ).fetchall()
    assert {format for _, format, _ in rows} >= {"kineto", "nccl-log"}
    for path, _, digest in rows:
        assert digest == blake3(Path(path).read_bytes()).hexdigest()
