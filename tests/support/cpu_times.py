"""Prints the processor time of the most expensive tests and of each file, of child processes too.

python -m pytest -p tests.support.cpu_times -m 'not slow and not chromium' tests/engine

Wall-clock durations say little on a machine that does other work. Setups of shared fixtures count
to the test that needs them first.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator

import pytest

_SPENT: Counter[str] = Counter()
_SHOWN = 60


def _now() -> float:
    """Processor time of this process and of those it started and waited for, seconds."""
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Add up what a test takes, its fixtures included."""
    before = _now()
    result = yield
    _SPENT[item.nodeid] += _now() - before
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each file and one for each expensive test, the most expensive first."""
    files: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for test, seconds in _SPENT.items():
        name = test.partition("::")[0]
        files[name] += seconds
        counts[name] += 1
    terminalreporter.section(f"processor time: {sum(_SPENT.values()):.0f} s")
    for name, seconds in files.most_common():
        terminalreporter.write_line(f"{seconds:8.1f} s {counts[name]:5d} {name}")
    for test, seconds in _SPENT.most_common(_SHOWN):
        terminalreporter.write_line(f"{seconds:8.2f} s {test}")
