"""Other people's recordings on which an earlier version was wrong, by codes and numbers."""
