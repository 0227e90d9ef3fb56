"""Offsets between the hosts' clocks: their bounds, what ends and starts say, what is likeliest."""
