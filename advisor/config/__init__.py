"""Validated settings: YAML files become pydantic models, and mistakes name file and line."""
