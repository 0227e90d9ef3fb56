"""A piece of a stream that can be looked at, addressed by offsets in the whole stream."""

import re
from collections.abc import Iterable

PIECE = 1024 * 1024
_BLANK = re.compile(rb"\s*+")
_BLANK_OR_COMMA = re.compile(rb"[\s,]*+")


class Window:
    """``data`` holds the bytes from offset ``base`` on; :meth:`more` reads on."""

    def __init__(self, pieces: Iterable[bytes], start: int = 0) -> None:
        self._pieces = iter(pieces)
        self.data = bytearray()
        self.base = start
        self.ended = False

    @property
    def end(self) -> int:
        """Offset after the last byte read."""
        return self.base + len(self.data)

    def more(self) -> bool:
        """Read another piece; False at the end of the stream."""
        piece = b"" if self.ended else next(self._pieces, b"")
        self.ended = not piece
        self.data += piece
        return not self.ended

    def reach(self, offset: int) -> bool:
        """Read on until ``offset`` is there; False when the stream ends before it."""
        while self.end <= offset:
            if not self.more():
                return False
        return True

    def drop_before(self, offset: int) -> None:
        """Forget what lies before ``offset``, once that is worth moving the rest."""
        if offset - self.base > PIECE:
            del self.data[: offset - self.base]
            self.base = offset

    def skip_to(self, offset: int) -> None:
        """Forget all before ``offset``, which may not have been read yet."""
        while self.end < offset:
            self.base = self.end
            self.data.clear()
            if not self.more():
                return
        del self.data[: max(0, offset - self.base)]
        self.base = max(self.base, offset)

    def byte(self, offset: int) -> bytes:
        """The byte at ``offset``; empty at the end of the stream."""
        if not self.reach(offset):
            return b""
        return bytes(self.data[offset - self.base : offset - self.base + 1])

    def text(self, start: int, end: int) -> bytes:
        """What has been read of a stretch."""
        return bytes(self.data[start - self.base : end - self.base])

    def skip_blank(self, offset: int, *, commas: bool = False) -> int:
        """Offset of the next byte that is no blank (nor comma)."""
        pattern = _BLANK_OR_COMMA if commas else _BLANK
        while True:
            match = pattern.match(self.data, offset - self.base)
            offset = match.end() + self.base if match else offset
            if offset < self.end or not self.more():
                return offset

    def matches(self, pattern: re.Pattern[bytes], offset: int, room: int = 256) -> bool:
        """Whether ``pattern``, which needs at most ``room`` bytes, matches at ``offset``."""
        return self.match_end(pattern, offset, room) is not None

    def match_end(self, pattern: re.Pattern[bytes], offset: int, room: int = 256) -> int | None:
        """Offset after ``pattern``, which needs at most ``room`` bytes, where it matches there."""
        self.reach(offset + room)
        match = pattern.match(self.data, offset - self.base)
        return match.end() + self.base if match else None
