"""Which of a trace's own fields are stored in ``rank.metadata``: those that something reads.

Everything else may be anything, also a secret, under any name. So there is a list of what is kept,
by name and shape (kept_fields.yaml); of the rest only the size is stored.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from advisor.config.environment import allowed
from advisor.config.loader import read_plain

LEFT_OUT = "left_out"
"""The key of ``rank.metadata`` under which sizes of fields that are not stored stand."""
_NOT = object()
_KEPT_CHARACTERS = 256 * 1024
_MOST_SIZES = 100
_WORD = re.compile(r"[\w.+\-:/,=()\[\] ]{0,120}")
_NAME = re.compile(r"[\w.\- ]{1,60}")
_VALUE = re.compile(r"[^\n\x00@{}\"']{0,1000}")
"""Of a variable: no userinfo of an address, no quoted text, no further lines."""

Left = dict[str, int]
"""Places (``a.b``) that are left out, and their sizes as JSON in characters."""
_Shape = Callable[[Any], Any] | dict[str, Any] | list[Any] | None
"""What a value must be: a check that gives what stays, fields by name (``*``: any), items of a
list; None is left out without a word, as a profiler always writes it."""


def allowed_fields(fields: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What of a trace's top-level ``fields`` is stored, and the names of what is not, as ``a.b``.

    ``advisor`` is expected as an object. The sizes of what is not stored, in characters of JSON,
    are added under ``left_out``.
    """
    left: Left = {}
    kept = _object(dict(fields), _FIELDS, "", left)
    if left:
        named = {name: size for name, size in left.items() if _NAME.fullmatch(name)}
        kept[LEFT_OUT] = dict(list(named.items())[:_MOST_SIZES])
    return kept, sorted(left)


def _object(value: dict[str, Any], shape: dict[str, Any], before: str, left: Left) -> Any:
    kept = {}
    for name, item in value.items():
        place = f"{before}{name}"
        if not isinstance(name, str):  # of a Python literal
            left[place] = _size(item)
            continue
        inner = shape.get(name, shape.get("*", _nothing) if _NAME.fullmatch(name) else _nothing)
        if inner is None:
            continue
        found = _of_shape(item, inner, place, left)
        if found is not _NOT:
            kept[name] = found
    return kept


def _of_shape(value: Any, shape: _Shape, place: str, left: Left) -> Any:
    if value is None:
        return None
    if shape is _ENVIRONMENT and isinstance(value, dict):
        variables = allowed({name: item for name, item in value.items() if isinstance(name, str)})
        shape = dict.fromkeys(variables, _variable)
    found = _NOT
    if isinstance(shape, dict):
        if isinstance(value, dict):
            return _object(value, shape, f"{place}.", left)
    elif isinstance(shape, list):
        items = [_of_shape(item, shape[0], place, left) for item in _list(value)]
        found = [item for item in items if item is not _NOT] if isinstance(value, list) else _NOT
        if found is not _NOT and _size(found) > _KEPT_CHARACTERS:
            found = _NOT
    elif shape is not None:
        found = shape(value)
    if found is _NOT:
        left[place] = _size(value)
    return found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _nothing(_: Any) -> Any:
    return _NOT


def _number(value: Any) -> Any:
    return value if isinstance(value, bool | int | float) else _NOT


def _word(value: Any) -> Any:
    if isinstance(value, str):
        return value if _WORD.fullmatch(value) else _NOT
    return _number(value)


def _variable(value: Any) -> Any:
    if isinstance(value, str):
        return value if _VALUE.fullmatch(value) else _NOT
    return _number(value)


def _size(value: Any) -> int:
    try:
        return len(json.dumps(value, default=str))
    except RecursionError:  # nested about as deep as can be read: at least so long
        return _KEPT_CHARACTERS


def _shape(said: Any) -> _Shape:
    """What kept_fields.yaml says of a value."""
    if isinstance(said, dict):
        return {name: _shape(inner) for name, inner in said.items()}
    if isinstance(said, list):
        return [_shape(said[0])]
    return _SHAPES[said]


_ENVIRONMENT: dict[str, Any] = {}
_SHAPES: dict[str, _Shape] = {
    "number": _number,
    "word": _word,
    "variables": _ENVIRONMENT,
    "unsaid": None,
}
_FIELDS: Any = _shape(read_plain(Path(__file__).with_name("kept_fields.yaml")))
