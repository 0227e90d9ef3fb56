"""Runs beside each other: figures, significance, causes."""
