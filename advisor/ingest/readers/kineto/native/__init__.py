"""The scanner in C for regular chunks of a trace: what it accepts it reads as Python does.

:mod:`advisor.ingest.scanner_library` loads it, :mod:`.scanner` turns chunks into Arrow batches,
:mod:`.pipeline` runs two of them beside the database. A chunk that it refuses, and every chunk
where it could not be built, goes through :mod:`..parser`.
"""
