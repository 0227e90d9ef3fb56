"""Runs both parsers: one thread reads and cuts, two scan, and the database takes what they made.

All three release the interpreter's lock while they work. Queues are short, so that memory stays
bounded whatever the traces' size.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, Full, Queue
from typing import Any

from advisor.ingest.readers.kineto.cutter import Chunk
from advisor.ingest.readers.kineto.native.scanner import Scanner
from advisor.ingest.readers.kineto.parser import Parser
from advisor.ingest.readers.kineto.reread import RepairedChunk
from advisor.ingest.readers.kineto.trace import Trace, chunk_first_id

_SCANNERS = 2
_GROUP_BYTES = 8 << 20
_WAIT_S = 0.2
Item = tuple[Trace, Chunk]


class Scanning:
    """Iterate over :meth:`batches` of ``event``; then ``malformed`` is complete.

    ``malformed``: numbers of chunks, by file, that are no lists of whole events.
    ``beside`` is called with batches of the other tables, and ``ended`` after the last of them,
    while the database still has events to write; both from the scanners' threads.
    """

    def __init__(
        self,
        items: Iterable[Item],
        new_scanner: Callable[[], Scanner | None],
        new_parser: Callable[[], Parser],
        beside: Callable[[Sequence[Any]], None],
        ended: Callable[[], None],
    ) -> None:
        self.malformed: dict[int, list[int]] = {}
        self._items = items
        self._beside, self._ended = beside, ended
        self._scanning = _SCANNERS
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._groups: Queue[list[Item] | None] = Queue(_SCANNERS)
        self._made: Queue[Any] = Queue(_SCANNERS)
        self._threads = [threading.Thread(target=self._guarded, args=(self._feed,), daemon=True)]
        self._threads += [
            threading.Thread(target=self._guarded, args=(self._scan, *both), daemon=True)
            for both in ((new_scanner(), new_parser()) for _ in range(_SCANNERS))
        ]

    def batches(self) -> Iterator[Any]:
        """Record batches of ``event``. Raises what a thread raised."""
        for thread in self._threads:
            thread.start()
        try:
            ended = 0
            while ended < _SCANNERS and self._failure is None:
                batch = self._take(self._made)
                ended += batch is None
                if batch is not None:
                    yield batch
            if self._failure is not None:
                raise self._failure
        finally:
            self.stop()

    def stop(self) -> None:
        """End the threads, whatever they are doing."""
        self._stopped.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised again where the batches are taken
            self._failure = self._failure or error
            self._stopped.set()

    def _put(self, queue: Queue[Any], item: Any) -> None:
        while not self._stopped.is_set():
            try:
                queue.put(item, timeout=_WAIT_S)
                return
            except Full:
                continue

    def _take(self, queue: Queue[Any]) -> Any:
        while not self._stopped.is_set():
            try:
                return queue.get(timeout=_WAIT_S)
            except Empty:
                continue
        return None

    def _feed(self) -> None:
        group: list[Item] = []
        size = 0
        for item in self._items:
            if self._stopped.is_set():
                return
            group.append(item)
            size += item[1].end - item[1].start
            if size >= _GROUP_BYTES:
                self._put(self._groups, group)
                group, size = [], 0
        self._put(self._groups, group)
        for _ in range(_SCANNERS):
            self._put(self._groups, None)

    def _scan(self, scanner: Scanner | None, parser: Parser) -> None:
        while (group := self._take(self._groups)) is not None:
            for trace, chunk in group:
                place = (trace.rank, trace.base_ns, chunk_first_id(trace, chunk))
                if isinstance(chunk, RepairedChunk):
                    parser.add(chunk.events, *place)
                elif scanner is None or not self._scanned(scanner, chunk.text, place):
                    self._parse(scanner, parser, trace, chunk, place)
            for one in (scanner, parser):
                self._flush(one)
        with self._lock:
            self._scanning -= 1
            last = not self._scanning
        if last and not self._stopped.is_set():
            self._ended()
        self._put(self._made, None)

    def _parse(
        self,
        scanner: Scanner | None,
        parser: Parser,
        trace: Trace,
        chunk: Chunk,
        place: tuple[int, int, int],
    ) -> None:
        with self._lock:
            text = trace.utf8(chunk.text)
        if text is not chunk.text and scanner is not None and self._scanned(scanner, text, place):
            return
        if not parser.parse(text, trace.source.limits.nesting, *place):
            with self._lock:
                self.malformed.setdefault(trace.number, []).append(chunk.number)

    def _scanned(self, scanner: Scanner, text: bytearray, place: tuple[int, int, int]) -> bool:
        status = scanner.scan(text, *place)
        if status == "full":
            self._flush(scanner)
            status = scanner.scan(text, *place)
        return status == "done"

    def _flush(self, made: Scanner | Parser | None) -> None:
        if made is None or made.empty:
            return
        events, *others = made.take()
        self._beside(others)
        self._put(self._made, events)
