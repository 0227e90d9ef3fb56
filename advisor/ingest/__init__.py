"""Readers: one per format, found by content, all writing the same tables."""

from __future__ import annotations

from advisor.ingest.jobs import SeveralJobsError
from advisor.ingest.pipeline import ingest, refuse_nothing
from advisor.ingest.read_jobs import read_jobs

__all__ = ["SeveralJobsError", "ingest", "read_jobs", "refuse_nothing"]
