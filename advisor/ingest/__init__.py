"""Readers: one per format, found by content, all writing the same tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advisor.ingest.jobs import SeveralJobsError
    from advisor.ingest.pipeline import ingest, refuse_nothing

__all__ = ["SeveralJobsError", "ingest", "refuse_nothing"]


def __getattr__(name: str) -> Any:
    # On first use: `advisor --version` looks for the scanner in C and needs no database.
    if name == "SeveralJobsError":
        from advisor.ingest.jobs import SeveralJobsError

        return SeveralJobsError
    if name in __all__:
        from advisor.ingest import pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module 'advisor.ingest' has no attribute {name!r}")
