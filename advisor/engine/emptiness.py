"""Which tables a SELECT needs a row of: where one of them is empty it finds nothing, unasked.

A small recording fills few tables, and a query takes the database milliseconds to plan however
little there is to read. What is told here of a statement follows from its syntax tree alone: an
inner join with nothing is nothing, a left join with nothing on its right is not, an aggregate
without groups always gives a row. Where that leaves a doubt, nothing is told.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import duckdb

from advisor.config.parsed import keep, recalled
from advisor.engine.views import views

Needs = str | bool | list[Any]
"""A table; ``["any", ...]`` or ``["all", ...]`` of these being empty; False: nothing is told."""

# To be raised when `needs_of` tells something else of the same statement.
_FORMAT = "emptiness 1"
_OWN_ROWS = {"INNER": (True, True), "SEMI": (True, True), "LEFT": (True, False)} | {
    "ANTI": (True, False),
    "RIGHT": (False, True),
}
"""Of which sides of a join an empty one leaves no row."""
_PLAIN_JOINS = {"REGULAR", "NATURAL", "CROSS", "ASOF"}


def finds_nothing(needs: Needs, is_empty: Callable[[str], bool]) -> bool:
    """Whether a statement with these ``needs`` can have no row, given which tables are empty."""
    if isinstance(needs, str):
        return is_empty(needs)
    if isinstance(needs, bool):
        return needs
    kind, *parts = needs
    found = (finds_nothing(part, is_empty) for part in parts)
    return any(found) if kind == "any" else all(found)


def needs_of_all(statements: Iterable[str]) -> dict[str, Needs]:
    """Statement -> its needs; {} for statements that are met for the first time on this machine.

    To work them out takes a quarter of a second, ten times what they save: that is done the second
    time, and kept. A machine that starts anew for each run (a container) never does it.
    """
    ordered = sorted(set(statements))
    text = "\n;\n".join((_FORMAT, duckdb.__version__, *ordered))
    try:
        found = recalled(text)
    except (OSError, ValueError):
        keep(text, None)
        return {}
    if found is None:
        found = [*_worked_out(ordered)]
        keep(text, found)
    return dict(zip(ordered, found, strict=True))


@cache
def needs_of_views() -> Mapping[str, Needs]:
    """Name of a view -> the needs of its SELECT."""
    found = needs_of_all(view.select for view in views().values())
    return {view.name: found.get(view.select, False) for view in views().values()}


def _worked_out(statements: Iterable[str]) -> Iterable[Needs]:
    with duckdb.connect() as con:
        for statement in statements:
            yield needs_of(con, statement)


def needs_of(con: Any, statement: str) -> Needs:
    """The needs of one SELECT; False for what is no SELECT."""
    ((text,),) = con.execute("SELECT json_serialize_sql(?)", [statement]).fetchall()
    tree = json.loads(text)
    if tree["error"] or len(tree["statements"]) != 1:
        return False
    return _of_query(tree["statements"][0]["node"], {}, _scalar_functions())


@cache
def _scalar_functions() -> frozenset[str]:
    """Functions that give a value for each row; any other may be an aggregate."""
    with duckdb.connect() as con:
        found = con.execute(
            "SELECT function_name FROM duckdb_functions() GROUP BY function_name "
            "HAVING bool_and(function_type = 'scalar')"
        ).fetchall()
    return frozenset(name for (name,) in found)


def _of_query(node: Mapping[str, Any], outer: Mapping[str, Needs], scalar: frozenset[str]) -> Needs:
    """The needs of a query node; ``outer`` holds those of the named subqueries it sees."""
    known = dict(outer)
    for entry in node.get("cte_map", {}).get("map", ()):
        value = entry["value"]
        query = value["query_node"] if "query_node" in value else value["query"]["node"]
        known[entry["key"].lower()] = _of_query(query, known, scalar)
    if node["type"] == "SELECT_NODE":
        if _gives_a_row_of_nothing(node, scalar):
            return False
        return _either(
            _of_source(node["from_table"], known, scalar),
            _of_condition(node["where_clause"], known, scalar),
        )
    if node["type"] == "SET_OPERATION_NODE":
        parts = [_of_query(part, known, scalar) for part in node["children"]]
        if node["setop_type"] == "UNION":
            return False if False in parts else ["all", *parts]
        return parts[0] if node["setop_type"] == "EXCEPT" else _either(*parts)
    return False


def _gives_a_row_of_nothing(node: Mapping[str, Any], scalar: frozenset[str]) -> bool:
    """Whether a SELECT aggregates without groups, as far as that can be excluded."""
    if not all(node["group_sets"]):
        return True
    if node["group_expressions"]:
        return False
    items = [_may_aggregate(item, scalar) for item in node["select_list"]]
    if node["aggregate_handling"] == "FORCE_AGGREGATES":  # GROUP BY ALL: by what is no aggregate
        return all(items)
    others = (node["having"], node["qualify"], node["modifiers"])
    return any(items) or node["having"] is not None or _may_aggregate(others, scalar)


def _may_aggregate(part: Any, scalar: frozenset[str]) -> bool:
    if isinstance(part, Mapping):
        if part.get("class") == "SUBQUERY":
            return False
        if part.get("class") == "FUNCTION" and part["function_name"].lower() not in scalar:
            return True
        return any(_may_aggregate(value, scalar) for value in part.values())
    return isinstance(part, list | tuple) and any(_may_aggregate(one, scalar) for one in part)


def _of_source(
    source: Mapping[str, Any] | None, known: Mapping[str, Needs], scalar: frozenset[str]
) -> Needs:
    """The needs of what stands behind FROM."""
    if source is None:
        return False
    if source["type"] == "BASE_TABLE":
        name = source["table_name"].lower()
        return known.get(name, name)
    if source["type"] == "SUBQUERY":
        return _of_query(source["subquery"]["node"], known, scalar)
    if source["type"] == "JOIN" and source["ref_type"] in _PLAIN_JOINS:
        sides = zip(("left", "right"), _OWN_ROWS.get(source["join_type"], ()), strict=False)
        return _either(*(_of_source(source[side], known, scalar) for side, own in sides if own))
    return False


def _of_condition(
    condition: Mapping[str, Any] | None, known: Mapping[str, Needs], scalar: frozenset[str]
) -> Needs:
    """The needs of WHERE: of EXISTS and IN, where nothing else would do."""
    if condition is None:
        return False
    if condition["type"] == "CONJUNCTION_AND":
        return _either(*(_of_condition(one, known, scalar) for one in condition["children"]))
    if condition["class"] == "SUBQUERY" and condition["subquery_type"] in ("EXISTS", "ANY"):
        return _of_query(condition["subquery"]["node"], known, scalar)
    return False


def _either(*parts: Needs) -> Needs:
    """Nothing is found where any of these is empty."""
    known = [part for part in parts if part is not False]
    return known[0] if len(known) == 1 else ["any", *known] if known else False
