"""Who arrives late at collectives, by whose doing, why, and at what cost."""
