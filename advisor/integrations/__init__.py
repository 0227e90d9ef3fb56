"""Recorders for other libraries' training loops; each imports its library only when used."""
