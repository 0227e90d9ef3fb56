"""Puts pseudonyms for hosts, users and paths into a store whose report is to be shared.

All text that came from an input is rewritten, after everything was derived and before any rule has
read it, so that no format can forget one.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from advisor.store.pseudonyms import ENDINGS, QUOTED, WORD, Pseudonyms
from advisor.store.store import Store

_HOSTS = ("rank", "topology", "link_excess")
_HOST_FIELDS = frozenset({"host", "host_name", "hostname"})
_RAW = frozenset({"event", "comm_event", "activity", "meta"})
"""No rule and no section of a report reads these."""
_OURS = frozenset(
    (
        *("advisor_version", "algorithm", "backend", "blake3", "class", "collective", "compute"),
        *("confidence", "created_at", "direction", "dtype", "edge", "engine", "expected_from"),
        *("format", "kind", "left_out", "library", "link_kind", "memory", "op", "origin"),
        *("outcome", "phase", "protocol", "purpose", "reason", "rule", "severity", "state"),
        *("strategy", "t_is", "timeline", "tool", "transport", "wire_op"),
    )
)
"""Columns whose values are words of this tool or of the communication library."""

_HOME = re.compile(r"/(?:home|Users)/([^/\s]{1,64})")
_OPTION = re.compile(
    r"(?<![\w-])(?:--?user(?:name)?[= ]|user(?:name)?=)[\"']?([A-Za-z_][\w.-]{1,63}+)", re.I
)
_LOGIN = re.compile(r"(?<![\w.@+-])([A-Za-z_][\w.-]{0,63}+)@([A-Za-z][\w.-]{0,253}+)")
# NCCL writes the other end of a connection so, by its address or its name.
_PEER = re.compile(r"(?<![\w.:@/-])([A-Za-z][\w.-]{0,253}+)<\d{1,5}>")
_ANYBODY = frozenset(("root", "git", "user", "users", "admin", "nobody", "ubuntu", "shared"))
"""Users that many machines have: their names say nothing of anybody, and are words."""
_TOP = frozenset(
    ("com", "corp", "edu", "example", "gov", "internal", "intranet", "lan", "local", "localdomain",
     "mil", "net", "org")
)  # fmt: skip
"""Last parts of hosts' names that are no last parts of Python's."""
_PUBLIC = ("github.com", "nvidia.com", "pytorch.org", "python.org")
"""Sites that logs and rules refer to."""


def hide_names(store: Store, key: bytes) -> Pseudonyms:
    """Replace hosts, users, addresses and paths in every derived table of a store, in place.

    Returns what stands for what, for texts that are in no table.
    """
    names = Pseudonyms(key)
    for host in _hosts(store):
        names.learn("host", host)
    texts = list(_texts(store))
    domains = {host.partition(".")[2].lower() for host in _hosts(store)}
    spaced: set[str] = set()
    for table, column in texts:
        for value in _distinct(store, table, column):
            text = value if isinstance(value, str) else " ".join(value)
            spaced |= {folder for _, folder in QUOTED.findall(text) if " " in folder}
            _learn_from(text, names, domains)
    paths = [path for (path,) in store.con.execute("SELECT DISTINCT path FROM source").fetchall()]
    names.learn_spaced(
        {*spaced, *(path.rpartition("/")[0] for path in paths if path.startswith("/"))}
    )
    names.learn_folders(
        path.rpartition("/")[0] for path in paths if not path.startswith("/") and "/" in path
    )
    for path in paths:
        name = path.rsplit("/", 1)[-1]
        endings = [part for part in name.split(".")[1:] if part in ENDINGS]
        said = ".".join([names.learn("input", path), *endings])
        names.learn_text(path, said)
        names.learn_text(name, said)
        names.learn_word(name, said)
    for (run,) in store.con.execute("SELECT run FROM run").fetchall():
        if run != "run":
            names.learn_text(run, names.learn("run", run))
    for table, column in texts:
        _rewrite(store, table, column, names)
    return names


def _learn_from(text: str, names: Pseudonyms, domains: set[str]) -> None:
    """Learn the users and hosts that a free text names, by the form in which it does."""
    for user in (*_HOME.findall(text), *_OPTION.findall(text)):
        if user not in _ANYBODY:
            names.learn("user", user)
    for user, host in _LOGIN.findall(text):
        if not host.endswith(_PUBLIC):
            if user not in _ANYBODY:
                names.learn("user", user)
            names.learn("host", host.rstrip("."), in_full=True)
    for host in _PEER.findall(text):
        names.learn("host", host, in_full=True)
    for word in WORD.findall(text) if "." in text else ():
        _, dot, domain = word.lower().partition(".")
        is_one = domain in domains or domain.rpartition(".")[2] in _TOP
        if dot and is_one and not word.lower().endswith(_PUBLIC):
            names.learn("host", word, in_full=True)


def _hosts(store: Store) -> Iterator[str]:
    for table in _HOSTS:
        yield from _distinct(store, table, "host")
    # The variables whose value is a host's name: NCCL's own, and torchrun's.
    yield from (
        name
        for (name,) in store.con.execute(
            "SELECT DISTINCT value FROM topology WHERE kind = 'env' AND value IS NOT NULL "
            "AND name IN ('NCCL_HOSTID', 'MASTER_ADDR')"
        ).fetchall()
    )
    for hosts in _distinct(store, "bench", "hosts"):
        yield from hosts
    for (text,) in store.con.execute("SELECT DISTINCT metadata FROM rank").fetchall():
        yield from _named_hosts(json.loads(text or "{}"))


def _named_hosts(value: Any) -> Iterator[str]:
    """Values of the fields of a trace that name a host, at any depth."""
    inner: Iterable[Any] = value if isinstance(value, list) else ()
    if isinstance(value, dict):
        yield from (
            name for field, name in value.items() if field in _HOST_FIELDS and isinstance(name, str)
        )
        inner = value.values()
    for one in inner:
        yield from _named_hosts(one)


def _texts(store: Store) -> Iterator[tuple[str, str]]:
    yield from store.con.execute(
        "SELECT c.table_name, c.column_name FROM duckdb_columns() c JOIN duckdb_tables() t "
        "USING (database_name, table_name) "
        "WHERE c.data_type IN ('VARCHAR', 'VARCHAR[]') AND NOT c.internal "
        "AND c.database_name = current_database() AND c.table_name NOT IN $raw "
        "AND c.column_name NOT IN $ours ORDER BY ALL",
        {"raw": sorted(_RAW), "ours": sorted(_OURS)},
    ).fetchall()


def _distinct(store: Store, table: str, column: str) -> list[Any]:
    rows = store.con.execute(
        f'SELECT DISTINCT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'
    ).fetchall()
    return [value for (value,) in rows]


def _rewrite(store: Store, table: str, column: str, names: Pseudonyms) -> None:
    def hidden(value: Any) -> Any:
        return names.hidden(value) if isinstance(value, str) else [*map(names.hidden, value)]

    values = _distinct(store, table, column)
    changed = [(value, said) for value in values if (said := hidden(value)) != value]
    if not changed:
        return
    old, new = zip(*changed, strict=True)
    store.con.register("renamed", pa.table({"old": pa.array(old), "new": pa.array(new)}))
    try:
        store.con.execute(
            f'UPDATE "{table}" SET "{column}" = renamed.new FROM renamed '
            f'WHERE "{table}"."{column}" = renamed.old'
        )
    finally:
        store.con.unregister("renamed")
