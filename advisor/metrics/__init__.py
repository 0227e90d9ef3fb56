"""Metrics: views and tables computed from what was read; pure functions over arrays and SQL."""
