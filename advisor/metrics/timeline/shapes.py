"""Shapes of the operators that launched kernels: what tells kernels of one name apart."""

LAUNCHED_SHAPES = """
shape AS MATERIALIZED (
  SELECT rank, external_id, any_value(input_dims) AS dims FROM event
  JOIN comm_event USING (run, rank, event_id)
  WHERE run = $1 AND list_contains($2::INTEGER[], rank) AND external_id > 0
    AND class = 'cpu_op' AND input_dims IS NOT NULL GROUP BY ALL)
"""
"""A clause for WITH of queries whose $1 is the run and $2 its ranks: ``dims`` by external_id."""
