"""What is lost of a log's messages: where writers collided, bytes were damaged, a file was cut."""

import re
from collections import Counter
from dataclasses import dataclass

from advisor.ingest.readers.nccl_log.prefix import Record, is_cut_prefix
from advisor.ingest.readers.nccl_log.tables import cells_of

_TORN = "message broken by another writer"
_DAMAGED = "message with damaged bytes"
_CUT = "message cut at the end of the file"
_CELL = "cell of a broken row of a tuning table"
# What only NCCL writes: where such text has no prefix, the prefix stands in another writer's line.
_TAIL = re.compile(
    r"\d\[\w+\](?: \[(?:send|receive)\])? via (?:P2P|SHM|NET|direct)"
    r"| Bytes -> Algo \w+ proto "
    r"|\bcomm 0x\w+ rank \d+ n[rR]anks \d+ "
)
# The end of a row, with what is left of its name; Megatron's «500/ 5000 | lm loss …» is none.
_ROW = re.compile(r"\w{0,20} {0,20}\|?[\d./ |-]{1,2000}")
# How messages start that are kept: of others nothing is lost when their end is.
_KEPT_START = re.compile(
    r"(?:Channel|Ring|Tree|Trees|Pattern|NET/|GPU Direct|Connected|threadThr|Using network|NCCL_"
    r"|comm 0x|ncclCommInit|Init timings|\d+ coll |\w+: \d+ Bytes|\d+ Bytes)"
)


@dataclass
class Losses:
    """Counts what was lost, by reason, each broken message once however many parts it is in."""

    counts: Counter[str]
    _last_line: str = ""
    """The last one that ended with a message."""
    _heads: int = 0
    _short_rows: int = 0

    def not_understood(self, record: Record, line: str, *, is_last: bool, whole: bool) -> None:
        """A record of a line, ``is_last`` in it, that tells nothing; see ``Log.feed``."""
        if not is_last:
            # A whole message ends its line: another process wrote into this one.
            self._torn(record)
        elif not record.level:
            self._tail(record)
            if not whole and is_cut_prefix(line, self._last_line):
                self.counts[_CUT] += 1
        elif not whole and _KEPT_START.match(record.text):
            self.counts[_CUT] += 1

    def ended_with_message(self, line: str) -> None:
        """The line that later ones are compared with."""
        self._last_line = line

    def damaged(self) -> None:
        """A message with other bytes than it was printed with."""
        self.counts[_DAMAGED] += 1

    def short_row(self, cells: int) -> None:
        """A row of a tuning table without its last cells: they may follow on their own line."""
        self.counts[_CELL] += cells
        self._short_rows += 1

    def _torn(self, record: Record) -> None:
        """The head of a message, which another one interrupted."""
        if record.level:
            self._heads += 1
            self.counts[_TORN] += 1
        else:
            self._tail(record)

    def _tail(self, record: Record) -> None:
        """Text without a prefix: the end of a message, whose head may be counted already."""
        if _ROW.fullmatch(record.text) and (cells := cells_of(record.text)):
            if self._short_rows:
                self._short_rows -= 1
            else:
                self.counts[_CELL] += cells
            return
        if not _TAIL.search(record.text):
            return
        if self._heads:
            self._heads -= 1
        else:
            self.counts[_TORN] += 1
