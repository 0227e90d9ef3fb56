"""Sweeps that prove a setting in the workload before recommending it."""
