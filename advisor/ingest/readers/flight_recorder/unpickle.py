"""Reads pickles that hold only plain values: an interpreter of containers and scalars.

Torch writes dumps with its own pickler (torch/csrc/jit/serialization/pickler.cpp, protocol 2), and
scripts that handle them with Python's (protocols 0 to 5): dictionaries, lists, tuples, text,
numbers, booleans and None. Those instructions are interpreted here; any other (``GLOBAL``,
``REDUCE``, ``BUILD``, ``INST``, extensions, persistent ids …) is refused, so that no pickle can
name or call anything. A cut pickle gives what had been built.
"""

import pickletools
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from typing import Any

from advisor.errors import AdvisorError
from advisor.vocabulary.numbers import INT64_MAX, within

MAX_INSTRUCTIONS = 50_000_000
"""A dump of 20,000 entries with 40 stack frames each has about 8 M."""

_MARK = object()
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG", "BINFLOAT", "FLOAT")
_TEXTS = ("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINSTRING", "STRING")
_BYTES = ("SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8")
_SCALARS = frozenset((*_NUMBERS, *_TEXTS, *_BYTES))
_IGNORED = frozenset(["PROTO", "FRAME"])
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}


class _Machine:
    """The stack and memo of one pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, name: str, arg: Any) -> bool:
        """Execute one instruction; False at the end. LookupError or TypeError on nonsense."""
        stack = self.stack
        if name in _SCALARS:
            stack.append(arg)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in {"BINGET", "LONG_BINGET", "GET"}:
            stack.append(self.memo[int(arg)])
        elif name in {"BINPUT", "LONG_BINPUT", "PUT"}:
            self.memo[int(arg)] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name == "MARK":
            stack.append(_MARK)
        elif name == "STOP":
            return False
        elif name not in _IGNORED:
            self._build(name)
        return True

    def _build(self, name: str) -> None:
        stack = self.stack
        if name == "APPEND":
            value = stack.pop()
            self._of(list).append(value)
        elif name == "APPENDS":
            values = self._pop_mark()
            self._of(list).extend(values)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            self._of(dict).update(_pairs([key, value]))
        elif name == "SETITEMS":
            values = self._pop_mark()
            self._of(dict).update(_pairs(values))
        elif name in {"TUPLE1", "TUPLE2", "TUPLE3"}:
            count = int(name[-1])
            if len(stack) < count or _MARK in stack[-count:]:
                raise IndexError("tuple of missing values")
            stack[-count:] = [tuple(stack[-count:])]
        elif name in {"TUPLE", "LIST", "DICT"}:
            values = self._pop_mark()
            if name == "DICT":
                stack.append(dict(_pairs(values)))
            else:
                stack.append(tuple(values) if name == "TUPLE" else values)
        elif name == "DUP":
            stack.append(stack[-1])
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self._pop_mark()
        else:
            raise _ForeignError(name)

    def _pop_mark(self) -> list[Any]:
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                values = self.stack[place + 1 :]
                del self.stack[place:]
                return values
        raise IndexError("no mark")

    def _of(self, kind: type) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise TypeError(f"expected {kind.__name__}")
        return self.stack[-1]

    def salvage(self) -> dict[object, object]:
        """The outermost dictionary, with what was pending for it when the pickle broke off."""
        try:
            first = next(i for i, value in enumerate(self.stack) if isinstance(value, dict))
        except StopIteration:
            return {}
        result: dict[object, object] = self.stack[first]
        pending = [value for value in self.stack[first + 1 :] if value is not _MARK]
        for key, value in zip(pending[::2], pending[1::2], strict=False):
            if isinstance(key, str) and key not in result:
                result[key] = value
        lists = [i for i, value in enumerate(pending) if isinstance(value, list)]
        if "entries" in pending and lists and pending[lists[0] - 1] == "entries":
            entries = list(pending[lists[0]])
            entries += [value for value in pending[lists[0] + 1 :] if isinstance(value, dict)]
            result["entries"] = entries
        return result


def _pairs(values: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    """Keys and values. A key is text or a number: the hash of tuples inside each other may take
    more stack, or more time, than there is, and long numbers can all have one hash."""
    if not all(isinstance(key, str) or _is_number(key) for key in values[::2]):
        raise TypeError("a key that is no text or number")
    return zip(values[::2], values[1::2], strict=True)


def _is_number(key: Any) -> bool:
    return isinstance(key, bool) or within(key, -INT64_MAX, INT64_MAX) is not None


class _ForeignError(Exception):
    """An instruction that plain values do not need."""


def unpickle(data: bytes, where: str = "") -> tuple[dict[object, object], str | None]:
    """The dictionary in ``data``, and a sentence when the pickle is cut or damaged.

    Raises :class:`AdvisorError` for instructions that could do more than hold values.
    """
    machine = _Machine()
    position = 0
    try:
        for count, (instruction, arg, place) in enumerate(pickletools.genops(BytesIO(data))):
            position = place or 0
            if count > MAX_INSTRUCTIONS:
                raise AdvisorError("holds too many values for a flight-recorder dump", where=where)
            if not machine.run(instruction.name, arg):
                break
        else:
            return machine.salvage(), f"breaks off at byte {position}: what came before is kept"
    except _ForeignError as error:
        raise AdvisorError(
            f"refused: the pickle instruction {error} at byte {position} can run code, and a "
            "flight-recorder dump does not need it",
            where=where,
            hint="do not unpickle this file; get the dump from its source again",
        ) from error
    except (ValueError, LookupError, TypeError, OverflowError, MemoryError) as error:
        note = f"is damaged after byte {position} ({error}): what came before is kept"
        return machine.salvage(), note
    result = machine.stack[-1] if machine.stack else None
    if not isinstance(result, dict):
        return machine.salvage(), "does not hold a dictionary"
    return result, None
