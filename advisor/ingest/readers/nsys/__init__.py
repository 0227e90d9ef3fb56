"""Nsight Systems' sqlite exports → ``event``, ``rank``.

``open`` opens an untrusted database safely, ``processes`` finds the ranks in it, ``nccl_ranges``
ties NCCL's NVTX ranges (and their payloads) to kernels, ``exports`` writes the events.
"""

from collections.abc import Sequence

from advisor.ingest.readers.nsys.pages import MAGIC, Losses, Pages
from advisor.ingest.source import ReadContext, Source

FORMAT = "nsys"
SUMMARY = (
    "Nsight Systems sqlite exports (nsys export --type sqlite): kernels, copies, API calls, NVTX"
)
PRIORITY = 70  # after Kineto traces: a rank that those already tell is not read twice

_TABLES = (
    "CUPTI_ACTIVITY_KIND",
    "META_DATA_EXPORT",
    "ENUM_NSYS_EVENT_TYPE",
    "NVTX_EVENTS",
    "TARGET_INFO_SYSTEM_ENV",  # all that an old export without any activity has
)
_SCHEMA_PAGE = 1
# Of a compressed export so much is unpacked to look for its schema, which may lie anywhere.
_LOOKED_AT = 512 * 1024 * 1024
_PIECE = 4 * 1024 * 1024


def detect(source: Source) -> bool:
    """A sqlite database whose schema, wherever it lies in the file, has Nsight Systems' tables."""
    if not source.head.startswith(MAGIC):
        return False
    marks = tuple(table.encode() for table in _TABLES)
    if any(mark in source.head for mark in marks):
        return True
    return _in_schema(source) if source.compression == "none" else _in_stream(source, marks)


def _in_schema(source: Source) -> bool:
    try:
        with Pages(source.path) as pages:
            return any(
                str(values[1]).startswith(_TABLES)
                for _, values in pages.rows(_SCHEMA_PAGE, Losses())
                if len(values) > 1
            )
    except (OSError, ValueError):
        return False


def _in_stream(source: Source, marks: tuple[bytes, ...]) -> bool:
    longest, kept, total = max(map(len, marks)), b"", 0
    with source.open() as stream:
        while total < _LOOKED_AT and (piece := stream.read(_PIECE)):
            text = kept + piece
            if any(mark in text for mark in marks):
                return True
            kept, total = text[-longest:], total + len(piece)
    return False


def read(sources: Sequence[Source], context: ReadContext) -> None:
    """Read all exports of a run."""
    from advisor.ingest.readers.nsys.exports import read_exports

    read_exports(sources, context, FORMAT)
