"""Codes in ``source.codes``: what later stages act on of a note, whose words are for people."""

from __future__ import annotations

READ_APART = "read-apart"
"""The run was told apart from others in reading: they are of different jobs."""
OTHER_FORMAT = "other-format"
"""The file looks whole and is of a format that is not read: nothing to worry about."""
PARTLY_READ = "partly-read"
"""A part of the file was lost or left out."""
NOT_RECORDED = "not-recorded"
"""The recording lacks kernels or their names: no communication in it means nothing."""
