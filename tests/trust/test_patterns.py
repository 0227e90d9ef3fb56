"""No pattern of the package takes more than linear time on one long line.

Every compiled pattern that a module holds, and every literal one or f-string that a function uses,
is run against texts pumped from the pattern itself, with the method by which the module uses it. In
an f-string a name of the module is its value, any other an escaped word. A linear pattern needs
milliseconds for 15,000 characters: the limit is CPU time of this process, more than what the
quickest quadratic one takes on this machine.
"""

from __future__ import annotations

import ast
import builtins
import gc
import importlib
import pkgutil
import re
import signal
import time
import timeit
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.ingest.classes import classify, keeps_shapes
from advisor.model.communication import communication, known_kernel
from advisor.model.nccl.env.statements import statements
from advisor.model.nccl.messages import messages
from tests.trust.pumping import LENGTH, pumped

_METHODS = frozenset({"match", "search", "fullmatch", "sub", "findall", "finditer", "split"})
_QUADRATIC = (re.compile("x[^y]*y"), "xa" * (LENGTH // 2))
_NEEDS_TORCH = ("advisor.profile", "advisor.integrations", "advisor.record")
_NO_MODULE = ("native._scan", "__main__")  # the scanner in C; what runs the command line

PACKAGES: dict[str, list[str]] = {}
for _found in pkgutil.walk_packages(advisor.__path__, "advisor."):
    if not _found.name.endswith(_NO_MODULE):
        PACKAGES.setdefault(".".join(_found.name.split(".")[:2]), []).append(_found.name)


class _TooSlowError(Exception):
    pass


def _give_up(*_: object) -> None:
    raise _TooSlowError


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_patterns_are_linear(package: str) -> None:
    if package.startswith(_NEEDS_TORCH):
        pytest.importorskip("torch")
    slow = [
        f"{name}: {label}.{method}({text[:30]!r}…): {pattern.pattern!r}"
        for name in PACKAGES[package]
        for label, pattern, methods in _patterns(importlib.import_module(name))
        for method in sorted(methods)
        if (text := _slow_text(pattern, method)) is not None
    ]
    assert not slow


def _from_data() -> Iterator[tuple[str, re.Pattern[str], str]]:
    """Patterns that stand in YAML, with the method by which they are used.

    Those of rules and views are RE2's, which is linear.
    """
    for item in messages():
        if item.pattern is not None:
            flags = re.IGNORECASE if item.effect == "probable" else 0
            yield item.id, re.compile(item.pattern, flags), "search"
        if item.calls:
            yield f"{item.id} (calls)", re.compile(item.calls), "search"
    for number, cost in enumerate(statements().costs):
        yield f"cost {number}", re.compile(cost.when, re.IGNORECASE), "fullmatch"


@pytest.mark.slow
def test_patterns_from_data_are_linear() -> None:
    slow = [
        f"{label}.{method}({text[:30]!r}…): {pattern.pattern!r}"
        for label, pattern, method in _from_data()
        if (text := _slow_text(pattern, method)) is not None
    ]
    assert not slow


def _read_name(name: str) -> None:
    classify("kernel", name, device=True)
    keeps_shapes(name)
    known_kernel(name)


@pytest.mark.slow
def test_a_name_of_a_kernel_costs_no_more_than_its_length() -> None:
    """GIVEN names made for the patterns of kernels, which are quadratic in Python."""
    slow = [
        text[:30]
        for one in communication().kernels
        for text in pumped(re.compile(one.pattern, re.ASCII))
        if not _ends(partial(_read_name, text))
    ]
    assert not slow


@pytest.fixture(autouse=True)
def _without_collections() -> Iterator[None]:
    """A collection of all that other tests of the process left would count as a pattern's time."""
    gc.disable()
    yield
    gc.enable()


class _Words(dict[str, Any]):
    """The names of a module; what a function holds is some escaped word."""

    def __missing__(self, name: str) -> str:
        if hasattr(builtins, name):
            raise KeyError(name)
        return "word"


@pytest.mark.slow
def test_a_pattern_of_an_f_string_is_seen() -> None:
    source = """
NAME = "[A-Z]+"
def defaults(line, key):
    return re.findall(rf"x{{{NAME}=([^}}]*)}}", line), re.compile(f"{re.escape(key)}: {{1,3}}")
"""
    held = _in_functions(ast.parse(source), {"re": re, "NAME": "[A-Z]+"})
    (_, slow, _), (_, linear, methods) = held
    assert (slow.pattern, linear.pattern) == ("x{[A-Z]+=([^}]*)}", "word: {1,3}")
    assert methods == {"finditer"}
    assert _slow_text(slow, "findall") is not None
    assert _slow_text(linear, "finditer") is None


def test_a_polynomial_pattern_is_seen() -> None:
    assert _slow_text(re.compile(r"(?:\s+,?)+x"), "match") is not None
    assert _slow_text(re.compile(r"(?:<!--.*?-->\s*)*<a"), "match") is not None
    assert _slow_text(re.compile(r"a{1,9} \d+"), "match") is None


def _slow_text(pattern: re.Pattern[Any], method: str) -> str | None:
    """A text on which the pattern does not end within the limit of CPU time."""
    for text in pumped(pattern):
        given = text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text
        if not _ends(partial(_run, pattern, method, given)):
            return text
    return None


@cache
def _limit_s() -> float:
    pattern, text = _QUADRATIC
    return 1.5 * min(timeit.repeat(lambda: pattern.search(text), timer=time.process_time, number=1))


def _ends(work: Callable[[], None]) -> bool:
    """Whether it ends within the limit of CPU time."""
    before = signal.signal(signal.SIGVTALRM, _give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, _limit_s())
    try:
        work()
    except _TooSlowError:
        return False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return True


def _run(pattern: re.Pattern[Any], method: str, text: Any) -> None:
    if method == "sub":
        pattern.sub(lambda found: found[0], text)
    elif method == "finditer":
        list(pattern.finditer(text))
    else:
        getattr(pattern, method)(text)


def _patterns(module: Any) -> Iterator[tuple[str, re.Pattern[Any], set[str]]]:
    """Label, pattern and the methods by which the module uses it."""
    used: dict[str, set[str]] = {}
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    yield from _in_functions(tree, vars(module))
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        method, holder = call.func.attr, call.func.value
        if method in _METHODS and isinstance(holder, ast.Name) and holder.id != "re":
            used.setdefault(holder.id, set()).add(method)
        for given in call.args if method not in _METHODS else ():
            if isinstance(given, ast.Name):  # handed to a helper that looks for it
                used.setdefault(given.id, set()).add("search" if method == "find" else "match")
    looped = set().union(*(methods for name, methods in used.items() if not hasattr(module, name)))
    for label, value in vars(module).items():
        for pattern in _held(value, 0):
            yield label, pattern, used.get(label) or looped & _METHODS


def _in_functions(tree: ast.AST, names: dict[str, Any]) -> list[Any]:
    """The same of the patterns that functions give to :mod:`re`, in the order of their lines."""
    calls = {
        call
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.Lambda)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "re"
        and call.func.attr in _METHODS | {"compile"}
        and isinstance(call.args[0], ast.Constant | ast.JoinedStr)
    }
    return [
        (f"line {call.lineno}", re.compile(_example(call.args[0], names)), {_method(call)})
        for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset))
    ]


def _example(given: ast.expr, names: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(given), "<pattern>", "eval"), {}, _Words(names))


def _method(call: ast.Call) -> str:
    assert isinstance(call.func, ast.Attribute)
    return "finditer" if call.func.attr == "compile" else call.func.attr


def _held(value: Any, depth: int) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, tuple | list) and depth < 3:
        for item in value:
            yield from _held(item, depth + 1)
    elif isinstance(value, dict) and depth < 3:
        for item in (*value, *value.values()):
            yield from _held(item, depth + 1)
