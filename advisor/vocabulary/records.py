"""Records: classes of data that say once what their fields are and what a file may give them.

The program makes them without a check, and so reads back what was checked before. Data from
elsewhere go through ``model_validate``, and that alone imports pydantic, which takes as long as
reading a small trace. The methods have pydantic's names and do the same.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, dataclass_transform


def Field(default: Any = MISSING, *, default_factory: Any = MISSING, **checks: Any) -> Any:  # noqa: N802 - pydantic's name
    """A field with its default, and what pydantic's ``Field`` is told of it."""
    if isinstance(default, list | dict):
        default, default_factory = MISSING, default.copy
    return dataclasses.field(default=default, default_factory=default_factory, metadata=checks)


class Before(NamedTuple):
    """In ``Annotated``: makes of what is given what is then checked, or raises ValueError."""

    change: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """What pydantic asks of it."""
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self.change, handler(source))


class After(NamedTuple):
    """In ``Annotated``: a further check of a valid value, which raises ValueError."""

    check: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """What pydantic asks of it."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self.check, handler(source))


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
class Record:
    """A dataclass without the code that dataclasses are slow to compile.

    Checks of several fields stand in ``__post_init__``.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls) -> None:
        """Its fields, those of its bases first."""
        dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(cls)

    def __init__(self, **values: Any) -> None:
        """Nothing is checked but the names of what is given."""
        unknown = values.keys() - self.__dataclass_fields__.keys()
        missing = [
            name
            for name, field in self.__dataclass_fields__.items()
            if name not in values and field.default is field.default_factory is MISSING
        ]
        if unknown or missing:
            raise TypeError(f"{type(self).__name__}: unknown {unknown}, missing {missing}")
        for name, field in self.__dataclass_fields__.items():
            if name in values:
                self.__dict__[name] = values[name]
            elif field.default_factory is not MISSING:
                self.__dict__[name] = field.default_factory()
            else:
                self.__dict__[name] = field.default
        self.__post_init__()

    def __post_init__(self) -> None:
        """Raise ValueError for values that cannot stand together."""

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self._values().items())
        return f"{type(self).__name__}({inside})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(tuple(self._values().values()))

    def _values(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """The same with other values of some fields."""
        made = copy.copy(self)
        made.__dict__.update(update or {})
        return made

    def model_dump(
        self,
        *,
        mode: str = "python",
        include: Collection[str] | None = None,
        exclude: Collection[str] = (),
    ) -> dict[str, Any]:
        """Its fields and those inside as dicts; in mode ``json`` as JSON has values."""
        return {
            name: _dumped(value, mode == "json")
            for name, value in self._values().items()
            if (include is None or name in include) and name not in exclude
        }

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """The same as text."""
        between = (",", ":") if indent is None else None
        return json.dumps(
            self.model_dump(mode="json"),
            indent=indent,
            separators=between,
            ensure_ascii=False,
            default=str,
        )

    @classmethod
    def model_validate(cls, values: Any) -> Self:
        """One of ``values``. Raises pydantic.ValidationError with every mistake."""
        kind: Any = cls
        made: Self = _adapter(kind).validate_python(values)
        return made

    @classmethod
    def model_validate_json(cls, text: str | bytes) -> Self:
        """One of the values in ``text``. Raises pydantic.ValidationError with every mistake."""
        kind: Any = cls
        made: Self = _adapter(kind).validate_json(text)
        return made


@cache
def _adapter(kind: type[Record]) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _dumped(value: Any, for_json: bool) -> Any:
    if isinstance(value, Record):
        return value.model_dump(mode="json" if for_json else "python")
    if isinstance(value, dict):
        return {name: _dumped(one, for_json) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_dumped(one, for_json) for one in value]
    if for_json and isinstance(value, Enum):
        return value.value
    if for_json and isinstance(value, float) and not math.isfinite(value):
        return None
    return value


_KIND, _VALUE = "=", ""  # keys of what JSON has no form for: its class, and its value


def kept(record: Record) -> str:
    """A record that was checked as JSON, for :func:`read_back`.

    Raises ValueError or TypeError for values that JSON would return as others.
    """
    used: dict[str, int] = {}
    value = _kept(record, used)
    return json.dumps([used, value], separators=(",", ":"))


def read_back(text: str | bytes) -> Any:
    """What :func:`kept` wrote, not checked again. Raises ValueError where a class has changed."""
    used, made = json.loads(text, object_hook=_read_back)
    if any(_changed_ns(module) != changed_ns for module, changed_ns in used.items()):
        raise ValueError("kept by another version of its classes")
    return made


@cache
def _changed_ns(module: str) -> int:
    """When the file of a module was last changed."""
    return Path(str(sys.modules[module].__file__)).stat().st_mtime_ns


def _kept(value: Any, used: dict[str, int]) -> Any:
    kind = type(value)
    if isinstance(value, Record | Enum | tuple):
        if kind.__module__ != "builtins":
            used[kind.__module__] = _changed_ns(kind.__module__)
        head = {_KIND: f"{kind.__module__}:{kind.__name__}"}
        if isinstance(value, Record):
            return head | {name: _kept(one, used) for name, one in value._values().items()}
        inside = value.value if isinstance(value, Enum) else [_kept(one, used) for one in value]
        return head | {_VALUE: inside}
    if isinstance(value, dict):
        if _KIND in value or not all(isinstance(name, str) for name in value):
            raise ValueError("keys that would be read back as others")
        return {name: _kept(one, used) for name, one in value.items()}
    return [_kept(one, used) for one in value] if isinstance(value, list) else value


def _read_back(values: dict[str, Any]) -> Any:
    if _KIND not in values:
        return values
    kind = _kind(values.pop(_KIND))
    if not issubclass(kind, Record):
        return kind(values[_VALUE])
    made = object.__new__(kind)
    made.__dict__.update(values)
    return made


@cache
def _kind(name: str) -> Any:
    module, _, own = name.partition(":")
    if module not in sys.modules:
        raise ValueError(f"no module {module}")
    kind = getattr(sys.modules[module], own, None)
    if not isinstance(kind, type) or not issubclass(kind, Record | Enum | tuple):
        raise ValueError(f"{name} is no record")
    return kind
