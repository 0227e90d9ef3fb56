"""Kernels by their real names: the library, the operation, and what is no communication at all."""

from __future__ import annotations

from pathlib import Path

from advisor.ingest.classes import classify
from advisor.model.communication import communication, known_kernel


def test_a_kernel_by_its_name() -> None:
    for line in (Path(__file__).parent / "kernel_names.txt").read_text().splitlines()[1:]:
        library, op, name = line.split(" | ", 2)
        found = known_kernel(name)
        assert (found.library if found else "-", found.op if found else "-") == (library, op), name
        # What classifies events while they are read says the same.
        assert (classify("kernel", name, device=True) == "comm") == (library != "-"), name


def test_every_entry_says_where_it_was_seen() -> None:
    table = communication()
    entries = [*table.kernels, *table.operators, *table.local, *table.compute]
    assert all(len(entry.source) > 10 for entry in entries if entry.source != "the same")
