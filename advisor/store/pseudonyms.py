"""What stands for hosts, users and paths in a report that is to be shared.

A pseudonym is a keyed hash of the name: the same name has the same one in every report of one
user, and nobody without the key can try names.
"""

import contextlib
import hashlib
import ipaddress
import json
import re
from collections.abc import Iterable
from typing import Any

_BY_NAME = frozenset({"localhost"})
"""Names that say nothing of anybody."""
_FOLDERS = re.compile(
    r"(?<![\w.@+~/<-])(?:[a-z][a-z0-9]{1,9}:/)?/(?:[\w.@+~=%-]++/)*+"
    r"|(?<![\w.@+~=/<-])(?:[\w.@+~=-]++/)++(?=[\w-]++\.py\b)"
)
# Between quotes a folder's name may hold spaces.
QUOTED = re.compile(r"""(?<![\w"'`])(["'`])(~?/[^"'`\n]{1,4096}/)(?=[^"'`/\n]{0,255}\1)""")
WORD = re.compile(r"\w++(?:[.-]\w++)*+")
_BETWEEN = re.compile(r"([._-])")
_NUMBER = re.compile(r"\d+")
_NO_STEMS = frozenset(
    ("channel", "device", "eth", "gpu", "group", "layer", "local", "rank", "ring", "stage", "step")
)
"""Words of ours with a number: a host of such a name has no siblings that can be told."""
_LEAST_LETTERS = 3  # `n1` says nothing of `n2`
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
_USERS = re.compile(r"/(?:home|Users)/([^/]{1,64})/")
ENDINGS = frozenset(
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
        self._stems: set[str] = set()
        self._relative: re.Pattern[str] | None = None
        self._spaced: re.Pattern[str] | None = None
        self._longest = 1

    def learn(self, kind: str, name: str, *, in_full: bool = False) -> str:
        """From here on ``name`` is replaced wherever it stands as a word; returns by what.

        ``in_full``: the first part of a host's long name may be any word, unless it has a number.
        """
        if name.isdecimal() or name in _BY_NAME or not name:
            return name
        short, dot, _ = name.partition(".")
        if kind == "host" and dot and not short.isdecimal() and (_stem(short) or not in_full):
            # Logs write the first part only; of two hosts with one first part each has its own.
            mine = self._full.setdefault(short, name) == name
            said = self.learn(kind, short) if mine else self._of(kind, name)
        else:
            said = self._of(kind, name)
        self._words[name] = said
        if kind == "host":  # a name in capitals is the same one
            self._hosts.setdefault(name.lower(), said)
            self._stems |= {_stem(name)} - {""}
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
                for word in WORD.findall(user if " " in user else ""):
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
        text = QUOTED.sub(lambda found: found[1] + self._folder(found, 2), text)
        if self._spaced is not None:
            text = self._spaced.sub(self._folder, text)
        if self._relative is not None:
            text = self._relative.sub(self._folder, text)
        text = _FOLDERS.sub(self._folder, text)
        text = _ADDRESS.sub(self._address, text)
        return WORD.sub(self._word, text)

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

    def _known(self, name: str) -> str | None:
        """What stands for a name that was learnt, or for a host that has but another number."""
        said = self._words.get(name) or self._hosts.get(name.lower())
        if said is None and _stem(name) in self._stems:
            said = self.learn("host", name)
        return said

    def _word(self, found: re.Match[str]) -> str:
        """The word with each known name in it replaced, longest first: `node1-ib0` has `node1`."""
        parts = _BETWEEN.split(found[0])
        said: list[str] = []
        at = 0
        while at < len(parts):
            for end in range(min(len(parts), at + self._longest), at, -1):
                found_name = self._known("".join(parts[at:end]))
                if found_name is not None:
                    said.append(found_name)
                    if found_name.startswith("host-"):
                        end = _behind_domain(parts, end)
                    break
            else:
                end = at + 1
                said.append(parts[at])
            at = end
        return "".join(said)


def _stem(name: str) -> str:
    """A host's name without its numbers, where it has some and hosts can be told by the rest."""
    stem = _NUMBER.sub("#", name.lower())
    is_one = "#" in stem and sum(map(str.isalpha, stem)) >= _LEAST_LETTERS
    return stem if is_one and stem.strip("#_-") not in _NO_STEMS else ""


def _behind_domain(parts: list[str], end: int) -> int:
    """Where the domain ends that follows a host's name: all of it says where the host is."""
    while end + 1 < len(parts) and parts[end] == "." and _is_label(parts[end + 1]):
        end += 2
        while end + 1 < len(parts) and parts[end] == "-":
            end += 2
    return end


def _is_label(part: str) -> bool:
    return part[:1].isalpha() and part not in ENDINGS
