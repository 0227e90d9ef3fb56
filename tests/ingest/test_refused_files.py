"""Files that are refused: before they cost memory, and in sentences that do not contradict."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import zstandard

import advisor
from advisor.errors import AdvisorError
from advisor.ingest.compression import DecompressedFile
from advisor.ingest.inflate import PIECE
from advisor.ingest.source import Source


class _Code:
    def __reduce__(self) -> Any:
        return (os.getcwd, ())


def _refused(path: Path) -> AdvisorError:
    with pytest.raises(AdvisorError) as refused:
        advisor.load(path)
    return refused.value


@pytest.mark.parametrize("where", ["", "dumps"], ids=["file", "folder"])
def test_a_dump_that_runs_code_is_refused_in_whole_sentences(tmp_path: Path, where: str) -> None:
    folder = tmp_path / where
    folder.mkdir(exist_ok=True)
    dump = folder / "nccl_trace_rank_0"
    dump.write_bytes(pickle.dumps({"version": "2.4", "entries": [_Code()], "pg_config": {}}))
    error = _refused(folder if where else dump)
    assert "does not need it; do not unpickle this file" in error.message
    assert str(error).count(str(dump)) == 1
    assert "record again" not in error.hint


def test_a_dump_that_is_cut_before_its_first_call_says_no_more(tmp_path: Path) -> None:
    dump = tmp_path / "nccl_trace_rank_0"
    dump.write_bytes(pickle.dumps({"version": "2.4", "entries": [], "pg_config": {}})[:14])
    assert "is kept" not in _refused(dump).message


def test_a_zstd_bomb_is_refused_after_few_bytes(tmp_path: Path) -> None:
    packer = zstandard.ZstdCompressor().compressobj()
    bomb = tmp_path / "bomb.json.zst"
    with bomb.open("wb") as file:
        file.write(packer.compress(b'{"traceEvents":['))
        for _ in range(300):
            file.write(packer.compress(b" " * (1 << 20)))
        file.write(packer.flush())
    stream, _ = Source(0, bomb, bomb.stat().st_size, b"", "zstd").open_raw()
    with stream, pytest.raises(AdvisorError, match="decompression bomb") as refused:
        while stream.read(1 << 20):
            pass
    [mebibytes] = re.findall(r"after (\d+) MiB", refused.value.message)
    assert 64 <= int(mebibytes) < 130


def test_what_a_dense_zstd_gives_comes_in_small_pieces(tmp_path: Path) -> None:
    text = b'{"ph":"X","name":"a","ts":1,"dur":1},\n' * 300_000
    dense = tmp_path / "dense.json.zst"
    dense.write_bytes(zstandard.ZstdCompressor(level=19).compress(text))
    raw = DecompressedFile(dense, "zstd")
    with raw:
        pieces = list(iter(raw.read_piece, b""))
    assert max(len(piece) for piece in pieces) <= PIECE
    assert b"".join(pieces) == text
