"""Parsed YAML by the hash of its text: compiled into the wheel, else kept in the user's cache.

Parsing a catalogue of rules takes longer than running it. What is kept is plain data (JSON), which
the models validate anew each time; where nothing can be kept, files are parsed each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

COMPILED = "yaml.json"
_NO_CACHE = "ADVISOR_NO_CACHE"
_KEPT_FILES = 400
MOST_VALUES = 50_000
MOST_LEVELS = 100
MOST_BITS = 64
"""Of a whole number: no setting is larger, and Python refuses to write out very long ones."""
# To be raised when `plain` makes something else of the same text.
_FORMAT = "plain 1"


class NotYamlError(ValueError):
    """A text is no YAML."""


def compiled(paths: Iterable[Path]) -> str:
    """The parsed ``paths`` as one text for :data:`COMPILED`; for building wheels."""
    texts = [path.read_text(encoding="utf-8") for path in paths]
    return _json({_key(text): _json(_parse(text)) for text in texts})


def parsed(text: str) -> Any:
    """A YAML text as dicts, lists and scalars. Raises NotYamlError."""
    key = _key(text)
    if key in _shipped():
        return json.loads(_shipped()[key])
    folder = _folder()
    if folder is None:
        return _parse(text)
    place = folder / f"{key}.json"
    # A file that is missing, unreadable or damaged is made anew.
    with contextlib.suppress(OSError, ValueError):
        return json.loads(place.read_bytes())
    made = _parse(text)
    # What JSON does not hold (a date), folders that cannot be written: made again next time.
    with contextlib.suppress(OSError, TypeError):
        _keep(place, _json(made))
    return made


def plain(document: Any) -> Any:
    """The document without ruamel's types: dicts, lists, scalars.

    Aliases are written out, so that their number is limited: ten lines of them can name as many
    values as no memory holds. Raises NotYamlError beyond that and for whole numbers of more than
    64 bits and for texts that are none, RecursionError where it is too deep.
    """
    return _plain(document, count(1))


def _plain(node: Any, counted: count[int]) -> Any:
    if next(counted) > MOST_VALUES:
        raise NotYamlError(f"it holds more than {MOST_VALUES:,} values, counting its aliases")
    if isinstance(node, Mapping):
        return {_sound(str(key)): _plain(value, counted) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_plain(value, counted) for value in node]
    if isinstance(node, bool) or node is None:
        return node
    if isinstance(node, int) and node.bit_length() > MOST_BITS:
        raise NotYamlError(f"a whole number of {node.bit_length():,} bits, more than {MOST_BITS}")
    if isinstance(node, str):
        return _sound(str(node))
    for kind in (int, float):
        if isinstance(node, kind):
            return kind(node)
    return node


def _sound(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # an escape of YAML can say so
        raise NotYamlError(
            "a text holds half of a surrogate pair, which is no character"
        ) from error
    return text


def refuse_endless(text: str, *, pure: bool) -> None:
    """Raise NotYamlError for more levels, or more values, than a file written by people has.

    Both loaders recurse into levels; the one in C has no limit but the stack, and ends the process.
    The other (``pure``) takes 0.2 ms a value. Events are made without recursion and quickly; each
    parser makes its own, for what one refuses the other may take.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent

    level = 0
    for number, event in enumerate(YAML(typ="safe", pure=pure).parse(text)):
        if number > MOST_VALUES:
            raise NotYamlError(f"it holds more than {MOST_VALUES:,} values")
        if isinstance(event, CollectionStartEvent):
            level += 1
            if level > MOST_LEVELS:
                line = event.start_mark.line + 1
                raise NotYamlError(f"more than {MOST_LEVELS} levels in each other in line {line}")
        elif isinstance(event, CollectionEndEvent):
            level -= 1


def _parse(text: str) -> Any:
    from ruamel.yaml import YAML  # where everything is compiled it is not needed

    try:
        refuse_endless(text, pure=False)
        return plain(YAML(typ="safe").load(text))
    except Exception as error:
        raise NotYamlError(what_fails(error)) from error


def what_fails(error: Exception) -> str:
    """What a loader's error says of the text; hostile text makes it raise anything of Python's."""
    from ruamel.yaml.error import YAMLError

    if isinstance(error, NotYamlError | YAMLError):
        return str(error)
    return "it holds a value that cannot be read, such as a number without digits or of too many"


def _key(text: str) -> str:
    return hashlib.sha256(f"{_FORMAT}\n{text}".encode()).hexdigest()


def _json(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))


@cache
def _shipped() -> Mapping[str, str]:
    place = Path(__file__).resolve().parent.parent / "data" / COMPILED
    if not place.is_file():
        return {}
    found: dict[str, str] = json.loads(place.read_bytes())
    return found


@cache
def _folder() -> Path | None:
    """The folder of this user's cache, or None where there is to be none."""
    if os.environ.get(_NO_CACHE):
        return None
    if sys.platform == "darwin":
        base = Path("~/Library/Caches")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    with contextlib.suppress(RuntimeError, OSError):  # a user without a home
        folder = base.expanduser() / "nccl-advisor" / "yaml"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder
    return None


def _keep(place: Path, text: str) -> None:
    from advisor.config.atomic_files import write_atomic  # a build of the wheel has no package

    write_atomic(place, text)
    files = sorted(place.parent.glob("*.json"), key=lambda path: path.stat().st_mtime)
    for old in files[:-_KEPT_FILES]:
        old.unlink(missing_ok=True)
