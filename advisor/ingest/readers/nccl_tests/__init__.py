"""nccl-tests output, text tables and JSON reports → ``bench``.

A file that holds NCCL's own log lines as well gives both: see :mod:`..nccl_log`.
"""

import re
from collections.abc import Sequence

from advisor.errors import AdvisorError
from advisor.ingest.readers.nccl_tests.records import is_records
from advisor.ingest.source import ReadContext, Source

FORMAT = "nccl-tests"
SUMMARY = "nccl-tests output: text tables (all layouts since 2019), JSON reports (-J), RCCL's -x"
PRIORITY = 40

# In small letters, one of these stands in what the header below finds, and is found far sooner.
_SIGN = re.compile(rb"size\s+count\s|ngpus \d|nccl-tests version|collective test starting")
_HEADER = re.compile(
    rb"\bnThreads? \d{1,6} nGpus \d|#\s+size\s+count\s|#\s+nccl-tests version|"
    rb"# Collective test starting|^\s{0,40}size\s{1,40}count\s{1,40}type\s",
    re.IGNORECASE | re.MULTILINE,
)
# Size, count, type, operation and root, then a time and two bandwidths. It begins with the digit
# itself, as a search for a kind of character skips all others.
_ROW = re.compile(
    rb"\d(?<=\b\d)\d{0,14}\s{1,20}\d{1,15}\s{1,20}"
    rb"(?:u?int\d{0,2}|half|float|double|bfloat16|f\w{5,7})"
    rb"\s{1,20}(?:[a-z]{3,10}\s{1,20})?(?:-?\d{1,6}\s{1,20})?"
    rb"\d{1,12}(?:\.\d{1,2})?(?:\s{1,12}\d{1,6}\.\d\d){2}\s",
    re.IGNORECASE,
)
_JSON = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*\{")
_JSON_KEYS = (
    # What a report begins with; its rows; its settings: another tool may have put them elsewhere.
    re.compile(rb'"start_time"\s*:.*"args"\s*:', re.S),
    re.compile(rb'"results"\s*:.*"(?:out_of_place|in_place)"\s*:', re.S),
    re.compile(rb'"config"\s*:\s*\{[^{}\[]*"nthreads"\s*:', re.S),
)


def detect(source: Source) -> bool:
    """A table header of nccl-tests, the first keys of its JSON report, or RCCL's records."""
    head = source.head
    return _is_table(head) or _is_report(source) or is_records(head)


def read(sources: Sequence[Source], context: ReadContext) -> None:
    """Write ``bench`` rows (and what NCCL's own lines in a text give)."""
    from advisor.ingest.readers._json import read_document
    from advisor.ingest.readers._nccl_text import read_texts
    from advisor.ingest.readers.nccl_tests.records import parse_records
    from advisor.ingest.readers.nccl_tests.report import parse_report
    from advisor.ingest.readers.nccl_tests.write import write_harvest

    texts = []
    for source in sources:
        parse = parse_records if is_records(source.head) else parse_report
        if parse is parse_report and not _is_report(source):
            texts.append(source)
            continue
        try:
            text, damage = read_document(source)
        except AdvisorError as error:
            context.refuse(source, FORMAT, error.message)
            continue
        harvest = parse(text)
        if damage:
            harvest.notes.append(damage)
        write_harvest(context, source, harvest, FORMAT)
    read_texts(texts, context, FORMAT)


def _is_table(head: bytes) -> bool:
    is_headed = _SIGN.search(head.lower()) and _HEADER.search(head)
    return bool(is_headed or _ROW.search(head))


def _is_report(source: Source) -> bool:
    head = source.head
    return _JSON.match(head) is not None and any(key.search(head) for key in _JSON_KEYS)
