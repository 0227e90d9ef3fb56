"""Commands whose parameters say all of themselves: ``name: type = option(...)``.

The flag follows from the name and click's type from the annotation: ``bool`` is a flag, a ``tuple``
may be given several times, a ``Path`` is a path and a ``Literal`` a choice. What is given to
:func:`option` and :func:`argument` goes to click as it is.
"""

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import click

POSITIVE = click.IntRange(1)


class FiniteRange(click.FloatRange):
    """Numbers between bounds; click takes NaN as being between any two."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number; click's error for what is none, or has no end."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value} is no finite number.", param, ctx)
        return found


ABOVE_ZERO = FiniteRange(min=0, min_open=True)


class _Parameter(NamedTuple):
    make: Callable[..., Any]
    flags: tuple[str, ...]
    how: dict[str, Any]


def option(*flags: str, **how: Any) -> Any:
    """An option; without ``flags`` it is called as its parameter."""
    return _Parameter(click.option, flags, how)


def argument(**how: Any) -> Any:
    """An argument; of a tuple as many as there are."""
    return _Parameter(click.argument, (), how)


def command(name: str | None = None, **how: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """click's decorator for a function whose parameters are options and arguments."""

    def made(function: Callable[..., Any]) -> click.Command:
        decorated = function
        parameters = inspect.signature(function, eval_str=True).parameters
        for parameter in reversed([*parameters.values()]):
            if isinstance(parameter.default, _Parameter):
                declare = _declare(parameter.name, parameter.annotation, parameter.default)
                decorated = declare(decorated)
        wrap: Any = click.command(name, **how)
        found: click.Command = wrap(decorated)
        return found

    return made


def _declare(name: str, kind: Any, said: _Parameter) -> Any:
    """click's own decorator of one parameter."""
    is_option = said.make is click.option
    how: dict[str, Any] = {}
    if get_origin(kind) is Literal:
        how["type"] = click.Choice(list(get_args(kind)))
    elif bool in (kind, *get_args(kind)):
        how["is_flag"] = True
    elif Path in (kind, *get_args(kind)):
        how["type"] = click.Path(path_type=Path)
    if get_origin(kind) is tuple:
        how |= {"multiple": True} if is_option else {"nargs": -1}
    flags = said.flags or ((f"--{name.replace('_', '-')}",) if is_option else ())
    return said.make(*flags, name, **{**how, **said.how})
