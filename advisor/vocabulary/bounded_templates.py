"""Templates of rules that somebody else wrote: they reach nothing, and cost bounded time.

Jinja's sandbox keeps them from attributes of Python. It does not keep them from time and memory:
here loops are not nested, numbers and texts stay short, what may grow is not there, and all texts
of a rule share seconds (:func:`limited`).
"""

import functools
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.filters import do_format, do_round
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

_FILTERS = (
    *("abs", "capitalize", "count", "d", "default", "first", "float", "int", "last", "length"),
    *("lower", "max", "min", "sort", "string", "title", "trim", "upper"),
)
_STATEMENTS = (nodes.Output, nodes.If, nodes.For, nodes.Assign)
_TEXT_METHODS = frozenset(
    (
        *("capitalize", "endswith", "lower", "removeprefix", "removesuffix", "split"),
        *("startswith", "strip", "title", "upper"),
    )
)
_MOST_BITS = 1024
_MOST_DIGITS = 64
_MOST_TEXT = 100_000
_MOST_TEMPLATE = 65_536
_WIDTH = re.compile(r"\d{4}|\*")


class _Budget(threading.local):
    """Processor time that is left to this thread, and how far its clock may go in the template
    that runs. What :func:`_look` asks is the wall's clock, which costs a tenth: ``until_s``.
    """

    left_s = math.inf
    end_s = math.inf
    until_s = math.inf


_budget = _Budget()


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """All templates within take so many seconds together; what takes more is a SecurityError."""
    _budget.left_s = seconds
    try:
        yield
    finally:
        _budget.left_s = math.inf


@contextmanager
def timed(template: str) -> Iterator[None]:
    """Around the use of a template: its time is taken from what :func:`limited` gave.

    Raises SecurityError for a template that is too long, or where no time is left.
    """
    if len(template) > _MOST_TEMPLATE:
        raise SecurityError(f"a template has at most {_MOST_TEMPLATE:,} characters")
    began = time.thread_time()
    _budget.end_s = began + _budget.left_s
    _budget.until_s = time.monotonic() + _budget.left_s
    _look()
    try:
        yield
    finally:
        _budget.left_s -= time.thread_time() - began


def _look() -> None:
    if time.monotonic() <= _budget.until_s:
        return
    left_s = _budget.end_s - time.thread_time()
    if left_s <= 0:
        raise SecurityError("the texts of the rule take too long")
    _budget.until_s = time.monotonic() + left_s  # others had the processor


class BoundedTemplates(ImmutableSandboxedEnvironment):
    """The environment: no globals, of Jinja's filters those that rules need, and ``filters``."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, filters: dict[str, Callable[..., Any]], **options: Any) -> None:
        super().__init__(**options)
        self.globals.clear()
        kept = {name: self.filters[name] for name in _FILTERS}
        own = {"join": _join, "replace": _replace, "format": _format, "round": _round}
        self.filters = {
            name: _bounded(one) for name, one in {**kept, **own, "each": _each, **filters}.items()
        }

    def _generate(self, source: nodes.Template, *args: Any, **options: Any) -> str:
        own: set[str] = set()
        for one in source.find_all((nodes.Stmt, nodes.Name)):
            if isinstance(one, nodes.Name):
                own |= {one.name} if one.ctx == "store" else set()
            elif not isinstance(one, _STATEMENTS) or (
                isinstance(one, nodes.For) and (one.recursive or one.find(nodes.For) is not None)
            ):
                raise TemplateSyntaxError("a loop in a loop, a macro or the like", one.lineno or 1)
        for made in source.find_all((nodes.List, nodes.Tuple, nodes.Dict)) if own else ():
            if any(name.ctx == "load" and name.name in own for name in made.find_all(nodes.Name)):
                raise TemplateSyntaxError("a list of what the template sets", made.lineno)
        tree = _Checked().visit(source).set_environment(self)
        return super()._generate(tree, *args, **options)

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """The text, as far as anybody shows it."""
        return _joined(pieces, "", cut=True)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic on numbers that stay short; texts are added, nothing is repeated."""
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            return _joined((left, right), "")
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            raise SecurityError(f"{operator} is for numbers")
        if isinstance(left, int) and isinstance(right, int) and operator != "%":
            bits, more = left.bit_length(), right.bit_length()
            if (bits * right if operator == "**" else bits + more) > _MOST_BITS:
                raise SecurityError(f"{operator} makes a number of over {_MOST_BITS} bits")
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Of text the methods that make none longer."""
        if isinstance(obj, str | bytes):
            return attr in _TEXT_METHODS
        return super().is_safe_attribute(obj, attr, value)

    def is_safe_callable(self, obj: Any) -> bool:
        """Methods of texts and of what has names. Numbers make bytes of any length."""
        _look()
        return isinstance(getattr(obj, "__self__", None), str | dict)

    def wrap_str_format(self, value: Any) -> None:
        """No str.format either: Jinja would let it through with attributes guarded, widths not."""
        if getattr(value, "__name__", "") in ("format", "format_map"):
            raise SecurityError("format as a filter: {{ '%.1f' | format(value) }}")


class _Checked(NodeTransformer):
    """``a ~ b`` joins as the filter does, and a loop looks at the time."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802 - Jinja's name
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(parts, "join", [], [], None, None, lineno=node.lineno)

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - Jinja's name
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, "each", [], [], None, None, lineno=node.lineno)
        return node


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that looks at the time and makes no long text."""

    @functools.wraps(function)
    def checked(*args: Any, **named: Any) -> Any:
        _look()
        made = function(*args, **named)
        if isinstance(made, str) and len(made) > _MOST_TEXT:
            raise SecurityError("a filter makes a text too long")
        return made

    return checked


def _each(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        _look()
        yield value


def _joined(values: Iterable[Any], between: str, *, cut: bool = False) -> str:
    """Values in one text; what is too long is cut or a SecurityError."""
    texts, room = [], _MOST_TEXT
    for value in values:
        _look()
        texts.append(str(value))
        room -= len(texts[-1]) + len(between)
        if room < 0:
            if cut:
                break
            raise SecurityError("a text too long")
    return between.join(texts)


def _join(values: Iterable[Any], between: str = "") -> str:
    return _joined(values, str(between))


def _replace(text: Any, old: str, new: str) -> str:
    """As Jinja's own, for results of a bounded length."""
    whole = str(text)
    if (len(whole) + 1) * (len(str(new)) + 1) > _MOST_TEXT:
        raise SecurityError("replace makes a text too long")
    return whole.replace(str(old), str(new))


def _format(text: Any, *values: Any) -> str:
    """As Jinja's own, for widths of at most three digits and values of a bounded length."""
    if _WIDTH.search(str(text)):
        raise SecurityError("format with a width of over three digits")
    _joined(values, "")
    return do_format(str(text), *values)


def _round(value: Any, precision: int = 0, method: Any = "common") -> float:
    """As Jinja's own, for as many digits as a number has."""
    if abs(precision) > _MOST_DIGITS:
        raise SecurityError(f"round to over {_MOST_DIGITS} digits")
    return do_round(value, precision, method)
