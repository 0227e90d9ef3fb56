"""One word, one number: bandwidth factors and element types, as their sources have them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import duckdb
import pytest

from advisor.model.alpha_beta import terms
from advisor.vocabulary.bandwidth import bus_factor, bus_factor_sql
from advisor.vocabulary.dtypes import element, short_name

ADVISOR = Path(__file__).resolve().parent.parent / "advisor"


@pytest.mark.parametrize(
    ("op", "factor"),
    [
        # The factors of nccl-tests 2.x, src/<op>.cu, ``*GetBw`` on 4 ranks.
        ("all_reduce", 2 * 3 / 4), ("all_gather", 3 / 4), ("reduce_scatter", 3 / 4),
        ("all_to_all", 3 / 4), ("gather", 3 / 4), ("scatter", 3 / 4), ("broadcast", 1.0),
        ("reduce", 1.0), ("send_recv", 1.0), ("hypercube", 1.0), ("barrier", None), ("other", None),
    ],
)  # fmt: skip
def test_the_bus_factor_is_nccl_tests(op: str, factor: float | None) -> None:
    assert bus_factor(op, 4) == factor
    ((in_sql,),) = duckdb.sql(
        f"SELECT ({bus_factor_sql('op', 'n')})::DOUBLE FROM (SELECT '{op}' AS op, 4 AS n)"
    ).fetchall()
    assert in_sql == factor
    if found := terms(op, 4):
        assert found[1] == factor


def test_operations_on_an_unknown_number_of_ranks_have_no_factor() -> None:
    assert bus_factor("all_reduce", None) is None
    assert bus_factor("all_reduce", 0) is None
    assert bus_factor("send", None) == 1.0


@pytest.mark.parametrize(
    ("name", "torch_name", "width", "short"),
    [
        ("c10::BFloat16", "bfloat16", 2, "bf16"),
        ("float", "float32", 4, "fp32"),
        ("torch.float16", "float16", 2, "fp16"),
        ("c10::Float8_e4m3fn", "float8_e4m3fn", 1, "fp8"),
        ("long int", "int64", 8, None),
        ("mystery", "mystery", None, None),
    ],
)
def test_an_element_type_has_one_name(
    name: str, torch_name: str, width: int | None, short: str | None
) -> None:
    assert element(name) == (torch_name, width)
    assert short_name(name) == short


# House names that nobody could guess, and what took their place.
_UNGUESSABLE = {
    "metrics": "places served track logged link_calls link_clocks clock_zero comparison",
    "engine": "unread unseen missing recorded recording possible",
    "ingest": "bare blanks stray swallowed outside guessed kept forget",
    "tune": "whole_files",
    "profile": "leave race meeting",
    "whatif": "untold",
}
# What is determined is identified, and what is not is inconclusive.
_NEVER_NAMED = {"told", "untold"}
_ROOMS = ("config", "engine", "integrations", "model", "profile", "report", "store",
          "tune", "vocabulary", "whatif")  # fmt: skip


def test_modules_say_in_their_names_what_they_hold() -> None:
    found = {
        str(path.relative_to(ADVISOR))
        for room, names in _UNGUESSABLE.items()
        for path in (ADVISOR / room).rglob("*.py")
        if path.stem in names.split()
    }
    assert not found


@pytest.mark.slow
def test_names_in_the_code_keep_to_the_glossary() -> None:
    found = {
        f"{path.relative_to(ADVISOR)}:{node.lineno}"
        for room in _ROOMS
        for path in (ADVISOR / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Name) and node.id in _NEVER_NAMED)
        or (isinstance(node, ast.Attribute) and node.attr in _NEVER_NAMED)
        or (isinstance(node, ast.arg) and node.arg in _NEVER_NAMED)
    }
    assert not found


def test_nothing_that_users_read_is_untold() -> None:
    texts = [*(ADVISOR.parent / "rules").rglob("*.yaml"), *(ADVISOR.parent / "docs").rglob("*.md"),
             *ADVISOR.rglob("*.py"), *ADVISOR.rglob("*.sql")]  # fmt: skip
    found = {str(path) for path in texts if re.search(r"\buntold\b", path.read_text())}
    assert not found
