"""Runs the scanners: one thread reads and cuts, two scan, and the database takes what they made.

All three release the interpreter's lock while they work. Queues are short, so that memory stays
bounded whatever the traces' size.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from queue import Empty, Full, Queue
from typing import Any

from advisor.ingest.readers.kineto.cutter import Chunk
from advisor.ingest.readers.kineto.native.scanner import Scanner, Status
from advisor.ingest.readers.kineto.reread import RepairedChunk
from advisor.ingest.readers.kineto.trace import Trace, chunk_first_id

_SCANNERS = 2
_GROUP_BYTES = 8 << 20
_WAIT_S = 0.2
_FEW = 16
Item = tuple[Trace, Chunk]


@dataclass
class Leftover:
    """What the scanners gave up: chunks of a file by number, and those that are in no file."""

    numbers: dict[int, set[int]] = field(default_factory=dict)
    chunks: list[Item] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.numbers or self.chunks)


class Scanning:
    """Iterate over :meth:`batches` of ``event``; then ``leftover`` is complete.

    ``comm`` is called with batches of ``comm_event``, and ``comm_ended`` after the last of them,
    while the database still has events to write; both from the scanners' threads.
    """

    def __init__(
        self,
        items: Iterable[Item],
        new_scanner: Callable[[], Scanner],
        comm: Callable[[Any], None],
        comm_ended: Callable[[], None],
    ) -> None:
        self.leftover = Leftover()
        self._items = items
        self._comm, self._comm_ended = comm, comm_ended
        self._scanning = _SCANNERS
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._seen: Counter[int] = Counter()
        self._groups: Queue[list[Item] | None] = Queue(_SCANNERS)
        self._made: Queue[Any] = Queue(_SCANNERS)
        self._threads = [threading.Thread(target=self._guarded, args=(self._feed,), daemon=True)]
        self._threads += [
            threading.Thread(target=self._guarded, args=(self._scan, scanner), daemon=True)
            for scanner in (new_scanner() for _ in range(_SCANNERS))
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
            size += len(item[1].text)
            if size >= _GROUP_BYTES:
                self._put(self._groups, group)
                group, size = [], 0
        self._put(self._groups, group)
        for _ in range(_SCANNERS):
            self._put(self._groups, None)

    def _scan(self, scanner: Scanner) -> None:
        while (group := self._take(self._groups)) is not None:
            for trace, chunk in group:
                self._scan_chunk(scanner, trace, chunk)
            self._flush(scanner)
        with self._lock:
            self._scanning -= 1
            last = not self._scanning
        if last and not self._stopped.is_set():
            self._comm_ended()
        self._put(self._made, None)

    def _scan_chunk(self, scanner: Scanner, trace: Trace, chunk: Chunk) -> None:
        if not self._worth_it(trace):
            self._give_up(trace, chunk)
            return
        place = (trace.rank, trace.base_ns, chunk_first_id(trace, chunk))
        status = self._scan_text(scanner, chunk.text, *place)
        if status != "done":
            with self._lock:
                text = trace.utf8(chunk.text)
            if text is not chunk.text:
                status = self._scan_text(scanner, text, *place)
        if status != "done":
            self._give_up(trace, chunk)

    def _scan_text(self, scanner: Scanner, text: bytearray, *place: int) -> Status:
        status = scanner.scan(text, *place)
        if status == "full":
            self._flush(scanner)
            status = scanner.scan(text, *place)
        return status

    def _worth_it(self, trace: Trace) -> bool:
        """False for a trace most of whose chunks were refused: the database reads the rest."""
        with self._lock:
            self._seen[trace.number] += 1
            refused = len(self.leftover.numbers.get(trace.number, ()))
            return refused < _FEW or 2 * refused < self._seen[trace.number]

    def _give_up(self, trace: Trace, chunk: Chunk) -> None:
        with self._lock:
            if isinstance(chunk, RepairedChunk):
                self.leftover.chunks.append((trace, chunk))
            else:
                self.leftover.numbers.setdefault(trace.number, set()).add(chunk.number)

    def _flush(self, scanner: Scanner) -> None:
        if scanner.empty:
            return
        events, comm = scanner.take()
        if comm.num_rows:
            self._comm(comm)
        self._put(self._made, events)
