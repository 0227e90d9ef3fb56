"""How notes in the table ``source`` begin that are read again."""

from __future__ import annotations

READ_APART = "read apart from"
"""Of a run that was told apart from others in reading: they are of different jobs."""
