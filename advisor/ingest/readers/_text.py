"""Lines of logs: bounded, decoded, and freed of what terminals and launchers put around them.

mpirun, srun, torchrun, Ray and kubectl each put their own mark before a line, Docker's json-file
driver and shippers of logs make a JSON object of it, and terminals add colours. Readers of text
formats see the line as the program wrote it.
"""

import json
import re
from collections.abc import Iterator
from io import BytesIO
from typing import BinaryIO

MAX_LINE_BYTES = 64 * 1024
"""A longer line is cut: NCCL writes at most 1 KiB (2.8–2.25) or 16 KiB per line."""

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]")
# Where what was copied lost the byte that begins them; only such a line is asked that begins so.
_COLOUR_CUT = re.compile(r"\[(?:0|1|2|22|39|\d;\d{1,3}|3\d|9\d)m")
_LAUNCHER = re.compile(
    r"""(?:
      \[\d+,\d+\]<(?:stdout|stderr|stddiag)>:\s?      # mpirun --tag-output
    # mpiexec -l, pdsh-like: [0]; torchx: [0]: but for the ranks that torch's watchdog lists.
    | \[\d+\](?:(?=\s|\#|$)\s?|:(?=\S)|:\s(?=\S))(?!\s?(?:finished\ collective|joined\ but))
    | \d+:\s                                          # srun --label
    | \[(?:default|rank)\d+\]:\s?                     # torchrun --tee, torch's own
    | std(?:out|err):\s                              # accelerate test
    | \((?:[^()\s]+\s){0,3}pid=\d+(?:,\sip=[^()\s]+)?\)\s # Ray
    | \[pod/[^\]\s]+\]\s                              # kubectl logs --prefix
    | \d{4}-\d\d-\d\dT[\d:.]{8,18}Z\s(?:std(?:out|err)\s[FP]\s)?  # kubectl logs --timestamps, CRI
    # A shipper's time, where what stands behind it begins a line.
    | (?:\|\s)?(?:\d{4}-\d\d-\d\d[T\s])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\s
      (?:\|\s)?(?=\[(?:rank|default)\d|\[\d{1,7},\d|\((?:\w{1,80}\s)?pid=|Traceback\s
        |[\w.]{3,80}(?:Error|Exception):)
    | (?:\d{1,3}(?:\.\d{1,3}){3}|[a-z][\w.\-]{0,62}\d):\s  # pdsh
    | [a-z][\w\-]{0,40}\d(?:\.[a-z][a-z\-]{1,30}){2,6}:\s  # its whole name
    | [a-z][\w.\-]{0,62}\d\s{1,12}\|\s  # docker compose
    | (?:ERROR|WARNING|INFO)\s\d\d-\d\d\s[\d:]{8}\s\[?[\w/.]{1,80}:\d{1,6}\](?:\s|$)  # vLLM
    )""",
    re.VERBOSE,
)

# What stands before torchrun's mark: a time, a job's or container's name, a logger's fields.
_MARKED = re.compile(r'[^\[\]()"\n]{1,100}(?=\[(?:default|rank)\d{1,7}\]:)')

_RECORD = '{"'
# Where shippers of logs put the line: Google's, fluent-bit's, Python's formatters.
_MESSAGES = ("message", "msg", "textPayload", "jsonPayload")
_DOCKER_CUT = re.compile(
    r'\{"log":"((?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+)(?:\\.{0,5})?'
)


def plain(line: str) -> str:
    """``line`` without colours and without the line end; leading spaces stay."""
    if "\x1b" in line:
        line = _COLOUR.sub("", line)
    elif line.startswith("[") and _COLOUR_CUT.match(line):
        line = _COLOUR_CUT.sub("", line)
    return line.rstrip("\r\n\x00")


def without_launcher(line: str) -> str:
    """``line`` without the launchers' prefixes (several may be stacked)."""
    return split_launcher(line)[1]


def split_launcher(line: str) -> tuple[str, str]:
    """The launchers' prefixes of a line (several may be stacked), and the line behind them."""
    before = ""
    if ("[rank" in line or "[default" in line) and (marked := _MARKED.match(line)):
        before, line = marked[0], line[marked.end() :]
    for _ in range(4):
        match = _LAUNCHER.match(line.lstrip())
        if match is None:
            break
        before += match[0]
        line = line.lstrip()[match.end() :]
    return before, line


def numbered_lines(stream: BinaryIO) -> Iterator[tuple[int, str, bool]]:
    """(line number from 1, text, whether its end was written) of every line.

    Undecodable bytes become U+FFFD.
    A line over ``MAX_LINE_BYTES`` is cut there and its rest skipped, so that a file without line
    ends costs no memory. A carriage return that rewrites a line (progress bars) ends one too.
    """
    number = 0
    begun: dict[str, str] = {}
    while raw := stream.readline(MAX_LINE_BYTES):
        number += 1
        last = raw
        while len(last) == MAX_LINE_BYTES and not last.endswith(b"\n"):
            last = stream.readline(MAX_LINE_BYTES)
        ended = last.endswith((b"\n", b"\r"))
        text = raw.decode("utf-8", errors="replace")
        if text.startswith(_RECORD) and (record := _record(text)) is not None:
            name, part = record
            text = begun.pop(name, "") + part
            ended = text.endswith("\n")
            if not ended and len(text) < MAX_LINE_BYTES:  # Docker parts lines over 16 KiB
                begun[name] = text
                continue
        for part in text.rstrip("\r\n").replace("\n", "\r").split("\r"):
            yield number, plain(part), ended
    for text in begun.values():
        yield number, plain(text), False


def unwrapped(head: bytes) -> bytes:
    """The first bytes of a file, or the text in them where they are records of JSON."""
    if (
        not head.startswith(_RECORD.encode())
        or _record(head.split(b"\n")[0].decode(errors="replace")) is None
    ):
        return head
    return "\n".join(text for _, text, _ in numbered_lines(BytesIO(head))).encode()


def _record(line: str) -> tuple[str, str] | None:
    """The stream and the text that a record of a log holds; None if it is none.

    Of a record of Docker's that was cut the text is what there is of it, without a line end.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        match = _DOCKER_CUT.fullmatch(line)
        return None if match is None else ("", str(json.loads(f'"{match[1]}"')).rstrip("\n"))
    text, name = record.get("log"), record.get("stream", "")
    if isinstance(text, str) and isinstance(name, str):
        return name, text
    found = next((record[key] for key in _MESSAGES if key in record), None)
    found = found.get("message") if isinstance(found, dict) else found
    return ("", found + "\n") if isinstance(found, str) else None
