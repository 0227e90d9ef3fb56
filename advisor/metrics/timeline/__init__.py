"""What ran when on each rank: sets of time, device activity, its split, statistics."""
