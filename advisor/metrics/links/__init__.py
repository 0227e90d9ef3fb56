"""Which link, host or rank makes transfers slow: ends, peers, probes, and what it costs."""
