"""Reference training runs under each parallel strategy, recorded with ranges and traces."""
