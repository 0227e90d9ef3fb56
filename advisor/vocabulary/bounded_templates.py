"""Templates of rules that somebody else wrote: they reach nothing, and cost what their length says.

Jinja's sandbox keeps them from attributes of Python. It does not keep them from time and memory:
here loops are not nested, numbers alone are multiplied, and what pads or repeats text is not there.
"""

from __future__ import annotations

import re
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.filters import do_format
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

_GROWING = ("batch", "center", "indent", "pprint", "slice", "tojson", "urlize", "wordwrap")
_TEXT_METHODS = frozenset(
    (
        *("capitalize", "endswith", "lower", "removeprefix", "removesuffix", "split"),
        *("startswith", "strip", "title", "upper"),
    )
)
_LARGEST_POWER = 64
_MOST_TEXT = 100_000
_WIDTH = re.compile(r"\d{4}|\*")


class BoundedTemplates(ImmutableSandboxedEnvironment):
    """The environment; globals and growing filters are gone."""

    intercepted_binops = frozenset(("*", "**", "%"))

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.globals.clear()
        for name in _GROWING:
            del self.filters[name]
        self.filters.update(replace=_replace, format=_format)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
            again = next(iter(loop.find_all(nodes.For)), None)
            if again is not None or not isinstance(loop, nodes.For) or loop.recursive:
                raise TemplateSyntaxError("a loop in a loop, or a macro", loop.lineno, name)
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic on numbers; text is neither repeated nor formatted by an operator."""
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            raise SecurityError(f"{operator} is for numbers")
        if operator == "**" and abs(right) > _LARGEST_POWER:
            raise SecurityError(f"a power over {_LARGEST_POWER}")
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Of text the methods that make none longer."""
        if isinstance(obj, str | bytes):
            return attr in _TEXT_METHODS
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:
        """No str.format either: Jinja would let it through with attributes guarded, widths not."""
        if getattr(value, "__name__", "") in ("format", "format_map"):
            raise SecurityError("format as a filter: {{ '%.1f' | format(value) }}")


def _replace(text: Any, old: str, new: str) -> str:
    """As Jinja's own, for results of a bounded length."""
    whole = str(text)
    if (len(whole) + 1) * (len(str(new)) + 1) > _MOST_TEXT:
        raise SecurityError("replace makes a text too long")
    return whole.replace(str(old), str(new))


def _format(text: Any, *values: Any) -> str:
    """As Jinja's own, for widths of at most three digits."""
    if _WIDTH.search(str(text)):
        raise SecurityError("format with a width of over three digits")
    return do_format(str(text), *values)
