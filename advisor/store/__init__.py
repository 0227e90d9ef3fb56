"""The store: one DuckDB file per run (or a Parquet dataset), its schema and its provenance."""

from advisor.store.store import SCHEMA_VERSION, Store, is_store

__all__ = ["SCHEMA_VERSION", "Store", "is_store"]
