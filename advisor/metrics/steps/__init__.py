"""Where a step begins and ends: annotations, the optimizer, or the period of the collectives."""
