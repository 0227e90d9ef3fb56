"""The results that rccl-tests writes with ``-x FILE``, as JSON or CSV (``-Z``).

A record each half of a row (src/common.cu of rccl-tests, Reporter): in a JSON list, in 2024 one a
line without it, or a line of CSV below a header with the same names in other letters.
"""

import csv
import json
import re
from collections.abc import Iterator
from typing import Any

from advisor.ingest.readers.nccl_tests.record import Harvest, Measurement
from advisor.vocabulary.numbers import json_integer, real
from advisor.vocabulary.operations import canonical_op

_SIGN = re.compile(
    rb'\A(?:\xef\xbb\xbf)?[\s\[]{0,40}\{(?=[^{}]{0,600}"algBw")(?=[^{}]{0,600}"busBw")[^{}]{0,600}'
    rb'"inPlace"|\A(?:numCycle,)?collective,[^\n]{0,120}\balgbw,busbw\b'
)


def is_records(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is one of them."""
    return _SIGN.match(head) is not None


def parse_records(text: str) -> Harvest:
    """All measurements of such a file; a record that a cut left unfinished is counted."""
    harvest = Harvest()
    for record in _objects(text, harvest) if "{" in text else csv.DictReader(text.splitlines()):
        row = {str(name).lower().lstrip("#"): value for name, value in record.items()}
        size = real(row.get("size"))
        if size is None:
            harvest.dropped["result without a size"] += 1
            continue
        ranks, gpus = real(row.get("ranks", row.get("gpus"))), real(row.get("gpusperrank", 1))
        wrong = real(row.get("wrong"))
        harvest.add(
            Measurement(
                canonical_op(str(row.get("name", row.get("collective")))) or "unknown",
                None if ranks is None or gpus is None else int(ranks * gpus),
                int(size),
                str(row.get("type", "")),
                real(row.get("inplace")) == 1,
                real(row.get("time")),
                real(row.get("algbw")),
                real(row.get("busbw")),
                None if wrong is None else int(wrong),
            )
        )
    return harvest


def _objects(text: str, harvest: Harvest) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder(strict=False, parse_int=json_integer)
    place = text.find("{")
    while place >= 0:
        try:
            record, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            harvest.dropped["report cut or damaged"] += 1
            place += 1
        else:
            yield record
        place = text.find("{", place)
