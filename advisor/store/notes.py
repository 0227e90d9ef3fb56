"""Codes in ``source.codes``: what later stages act on of a note, whose words are for people; and
what several ranks lost together."""

READ_APART = "read-apart"
"""The run was told apart from others in reading: they are of different jobs."""
OTHER_FORMAT = "other-format"
"""The file looks whole and is of a format that is not read: nothing to worry about."""
PARTLY_READ = "partly-read"
"""A part of the file was lost or left out."""
NOT_RECORDED = "not-recorded"
"""The recording lacks kernels or their names: no communication in it means nothing."""

_TOGETHER = " together)"


def lost_together(reason: str, whose: str) -> str:
    """A reason in ``rank.drop_reasons`` for what nothing tells apart of ``whose``."""
    return f"{reason} (of {whose}{_TOGETHER}"


def lost_by_whomever(reason: str) -> str:
    """The reason without whose loss it is, as a file's own counts have it."""
    return reason.rpartition(" (of ")[0] if reason.endswith(_TOGETHER) else reason
