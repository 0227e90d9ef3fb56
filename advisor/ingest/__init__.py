"""Readers: one per format, found by content, all writing the same tables."""

from __future__ import annotations

from advisor.ingest.pipeline import ingest, refuse_nothing

__all__ = ["ingest", "refuse_nothing"]
