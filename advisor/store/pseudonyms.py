"""Pseudonyms for hosts, users and paths of a store whose report is to be shared.

A pseudonym is a keyed hash of the name: the same name has the same one in every report of one
user, and nobody without the key can try names. All text that came from an input is rewritten,
after everything was derived and before any rule has read it, so that no format can forget one.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from advisor.store.store import Store

_HOSTS = ("rank", "topology", "link_excess")
_HOST_FIELDS = frozenset({"host", "host_name", "hostname"})
_BY_NAME = frozenset({"localhost"})
"""Names that say nothing of anybody."""
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

_FOLDERS = re.compile(
    r"(?<![\w.@+~/<-])(?:[a-z][a-z0-9]{1,9}:/)?/(?:[\w.@+~=%-]++/)*+"
    r"|(?<![\w.@+~=/<-])(?:[\w.@+~=-]++/)++(?=[\w-]++\.py\b)"
)
# Between quotes a folder's name may hold spaces.
_QUOTED = re.compile(r"""(?<![\w"'`])(["'`])(~?/[^"'`\n]{1,4096}/)(?=[^"'`/\n]{0,255}\1)""")
_WORD = re.compile(r"\w++(?:[.-]\w++)*+")
_BETWEEN = re.compile(r"([._-])")
_ADDRESS = re.compile(
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])|(?<![\w.:])[0-9A-Fa-f:]{3,39}+(?![\w:])"
)
# An option, a variable or a field that is quoted, with what it is set to.
_SECRET = re.compile(
    r"(?<![\w-])((?:(-)[\w-]{0,60}?|[\w-]{0,60}?)"
    r"(?:passw|token|secret|credential|(?<![a-z])(?:auth(?:orization)?|(?:api)?key)(?![a-z]))"
    r"[\w-]{0,60}+[\"']?(?:\s?[=:]\s?|(?(2)\s|(?!)))(?:(?:bearer|basic)\s)?)"
    r"(?:\"[^\"]*+\"|'[^']*+'|[^\s\"'&]++)",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"(?<=://)[^/\s@]{1,256}+@")
_USER = re.compile(r"/(?:home|Users)/([^/\s]{1,64})")
_USERS = re.compile(r"/(?:home|Users)/([^/]{1,64})/")
_ENDINGS = frozenset(
    ("json", "jsonl", "sqlite", "db", "parquet", "log", "txt", "csv", "xml", "gz", "zst", "xz")
)
_MOST_SPACED = 256
"""Folders with spaces that are looked for: each is tried at each path of a text."""
_PUBLIC = ("https://", "http://")


class Pseudonyms:
    """What stands for each name; made by one key, and the same for the same name."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._words: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self._taken: dict[str, str] = {}
        self._full: dict[str, str] = {}
        self._hosts: dict[str, str] = {}
        self._relative: re.Pattern[str] | None = None
        self._spaced: re.Pattern[str] | None = None
        self._longest = 1

    def learn(self, kind: str, name: str) -> str:
        """From here on ``name`` is replaced wherever it stands as a word; returns by what."""
        if name.isdecimal() or name in _BY_NAME or not name:
            return name
        short, dot, _ = name.partition(".")
        if kind == "host" and dot and not short.isdecimal():
            # Logs write the first part only; of two hosts with one first part each has its own.
            mine = self._full.setdefault(short, name) == name
            said = self.learn(kind, short) if mine else self._of(kind, name)
        else:
            said = self._of(kind, name)
        self._words[name] = said
        if kind == "host":  # a name in capitals is the same one
            self._hosts.setdefault(name.lower(), said)
        self._longest = max(self._longest, len(_BETWEEN.split(name)))
        return said

    def learn_word(self, name: str, said: str) -> None:
        """From here on ``name`` is replaced by ``said`` wherever it stands as a word."""
        self._words.setdefault(name, said)
        self._longest = max(self._longest, len(_BETWEEN.split(name)))

    def learn_folders(self, folders: Iterable[str]) -> None:
        """From here on these relative folders are replaced wherever a path begins with one."""
        named = sorted({one for one in folders if one.strip("./")}, key=len, reverse=True)
        if named:
            one_of = "|".join(map(re.escape, named))
            self._relative = re.compile(rf"(?<![\w./~-])(?:{one_of})/")

    def learn_spaced(self, folders: Iterable[str]) -> None:
        """From here on these whole folders, whose names hold spaces, and all above are replaced."""
        named: set[str] = set()
        for folder in folders:
            whole = f"{folder.rstrip('/')}/"
            ends = (at for at, sign in enumerate(whole) if sign == "/" and " " in whole[:at])
            named |= {whole[:at] for at in ends}
            for user in _USERS.findall(whole):
                for word in _WORD.findall(user if " " in user else ""):
                    self.learn("user", word)
        if named:
            few = sorted(named, key=len)[:_MOST_SPACED]
            one_of = "|".join(map(re.escape, reversed(few)))
            self._spaced = re.compile(rf"(?<![\w.@+~/<-])(?:{one_of})/(?:[\w.@+~=%-]++/)*+")

    def learn_text(self, name: str, said: str) -> None:
        """From here on a text that is ``name`` as a whole is replaced by ``said``."""
        self._texts[name] = said

    def hidden(self, text: str) -> str:
        """``text`` without the names that were learnt, without addresses and folders."""
        whole = self._texts.get(text)
        if whole is not None:
            return whole
        if text[:1] in ("{", "["):
            with contextlib.suppress(ValueError, RecursionError):
                return json.dumps(self._hidden_in(json.loads(text)), ensure_ascii=False)
        text = _LOGIN.sub("…@", _SECRET.sub(r"\1…", text))
        text = _QUOTED.sub(lambda found: found[1] + self._folder(found, 2), text)
        if self._spaced is not None:
            text = self._spaced.sub(self._folder, text)
        if self._relative is not None:
            text = self._relative.sub(self._folder, text)
        text = _FOLDERS.sub(self._folder, text)
        text = _ADDRESS.sub(self._address, text)
        return _WORD.sub(self._word, text)

    def hidden_command(self, line: str, paths: Iterable[str]) -> str:
        """A command line without the names that were learnt and these paths, which it was given."""
        for path in sorted({*paths}, key=len, reverse=True):
            if path.strip("./"):
                whole = rf"(?<![^\s\"'=]){re.escape(path)}(?=/?(?:[\s\"']|$))"
                line = re.sub(whole, self._of("input", path), line)
        return self.hidden(line)

    def _hidden_in(self, value: Any) -> Any:
        """As :meth:`hidden` for the values of a document; keys stay, but those that are names."""
        if isinstance(value, str):
            return self.hidden(value)
        if isinstance(value, list):
            return [self._hidden_in(one) for one in value]
        if isinstance(value, dict):
            return {self._words.get(key, key): self._hidden_in(one) for key, one in value.items()}
        return value

    def _of(self, kind: str, name: str) -> str:
        digest = hashlib.blake2b(f"{kind}\0{name}".encode(errors="replace"), key=self._key)
        for length in (8, 16, 32):
            said = f"{kind}-{digest.hexdigest()[:length]}"
            if self._taken.setdefault(said, name) == name:
                return said
        raise AssertionError("two names of one hash of 128 bits")

    def _folder(self, found: re.Match[str], group: int = 0) -> str:
        folder = found[group]
        if folder == "/" or folder.startswith(_PUBLIC) or folder[:-1] in self._taken:
            return folder
        return f"{self._of('path', folder)}/"

    def _address(self, found: re.Match[str]) -> str:
        try:
            address = ipaddress.ip_address(found[0])
        except ValueError:
            return found[0]
        if address.is_loopback or address.is_unspecified:
            return found[0]
        return self._of("host", str(address))

    def _word(self, found: re.Match[str]) -> str:
        """The word with each known name in it replaced, longest first: `node1-ib0` has `node1`."""
        parts = _BETWEEN.split(found[0])
        said: list[str] = []
        at = 0
        while at < len(parts):
            for end in range(min(len(parts), at + self._longest), at, -1):
                name = "".join(parts[at:end])
                found_name = self._words.get(name) or self._hosts.get(name.lower())
                if found_name is not None:
                    said.append(found_name)
                    break
            else:
                end = at + 1
                said.append(parts[at])
            at = end
        return "".join(said)


def hide_names(store: Store, key: bytes) -> Pseudonyms:
    """Replace hosts, users, addresses and paths in every derived table of a store, in place.

    Returns what stands for what, for texts that are in no table.
    """
    names = Pseudonyms(key)
    for host in _hosts(store):
        names.learn("host", host)
    texts = list(_texts(store))
    spaced: set[str] = set()
    for table, column in texts:
        for value in _distinct(store, table, column):
            text = value if isinstance(value, str) else " ".join(value)
            spaced |= {folder for _, folder in _QUOTED.findall(text) if " " in folder}
            for user in _USER.findall(text):
                if user != "root":
                    names.learn("user", user)
    paths = [path for (path,) in store.con.execute("SELECT DISTINCT path FROM source").fetchall()]
    names.learn_spaced(
        {*spaced, *(path.rpartition("/")[0] for path in paths if path.startswith("/"))}
    )
    names.learn_folders(
        path.rpartition("/")[0] for path in paths if not path.startswith("/") and "/" in path
    )
    for path in paths:
        name = path.rsplit("/", 1)[-1]
        endings = [part for part in name.split(".")[1:] if part in _ENDINGS]
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
