"""Tuner rules for NCCL: the CSV file, its checks, and the C plugin that applies it (2.22+)."""
