"""Gzip data whose header is damaged: what follows it can be read all the same."""

from __future__ import annotations

import zlib

from advisor.ingest.compressed import READ

GZIP = b"\x1f\x8b"
OPTIONAL = 0x1C
"""Flags of what may stand before the data: extra field, name, comment (RFC 1952 section 2.3.1)."""
_BYTES, _NAME = 10, 8
_TRIAL_OUTPUT = 4 * 1024
_HEADERS = [GZIP + b"\x08" + bytes([flags]) + bytes(6) for flags in (0, _NAME)]
NOTE = "the header of the {name} data is damaged; what follows it was read all the same"


def looks_zeroed(path_suffix: str, beginning: bytes) -> bool:
    """Whether a file that starts as nothing known may be gzip: by its name, or a zero byte."""
    return path_suffix.lower() in (".gz", ".gzip") or beginning.startswith(b"\x00")


def mended_header(beginning: bytes) -> bytes | None:
    """The ten bytes that should stand at the beginning; None where the header is whole.

    Also None where no header helps. ``beginning``: the first bytes of the file, up to 256 KiB.
    A header holds nothing of use but the flag for a name, which is tried. With a wrong flag the
    data is passed over as a name or a field that is not there.
    """
    if _opens(beginning[:READ], 1):
        return None
    return next((h for h in _HEADERS if _opens(h + beginning[_BYTES:READ], _TRIAL_OUTPUT)), None)


def _opens(data: bytes, least: int) -> bool:
    """Whether nothing in it is damaged; and it gives so many bytes, or is whole."""
    inflater = zlib.decompressobj(31)
    try:
        return len(inflater.decompress(data, READ)) >= least or inflater.eof
    except zlib.error:
        return False
