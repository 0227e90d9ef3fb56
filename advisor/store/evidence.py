"""What the derived tables keep in their evidence, as SQL expressions."""

PER_PEER = "coalesce(TRY_CAST(reason_evidence ->> 'others_per_peer' AS DOUBLE), 1)"
"""Of a row of ``lateness``: its cost is a mean over all other ranks; so many times that is the mean
over its peers, the ranks that share calls with it."""
