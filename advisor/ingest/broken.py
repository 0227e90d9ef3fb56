"""Which files a reader fails on where it should not: they cost themselves, not their folder."""

from collections.abc import Sequence

from advisor.errors import AdvisorError
from advisor.ingest.source import ReadContext, Reader, Source
from advisor.store.store import Store

_MOST_TEXT = 200


class ReaderFailedError(Exception):
    """A reader raised what it must not raise; the cause is attached."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(f"the reader of {reader.FORMAT} failed")
        self.reader = reader


def find_broken(reader: Reader, sources: Sequence[Source]) -> list[tuple[Source, str]]:
    """The files that ``reader`` fails on when it reads each by itself, and what to tell of each.

    What it reads on trial is thrown away.
    """
    found = []
    for source in sources:
        try:
            with Store.create() as scratch:
                reader.read([source], ReadContext(scratch, "trial"))
        except AdvisorError:
            continue  # it says so itself, when it reads
        except Exception as error:  # noqa: BLE001 - whatever it is, the file is named with it
            text = " ".join(str(error).split())[:_MOST_TEXT]
            reason = f"{type(error).__name__}: {text}; this is a defect of advisor, please report"
            found.append((source, f"could not be read as {reader.FORMAT} ({reason} it)"))
    return found
