"""What a change would give: the dependency graph of a step, its replay, and changes to it."""
