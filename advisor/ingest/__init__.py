"""Readers: one per format, found by content, all writing the same tables."""
