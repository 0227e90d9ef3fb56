"""What NCCL, its plugins and torch print when something is wrong, and what is to be done about it.

The catalogue is data (messages.yaml): a pattern, its cause, its fix, where it was seen. Adding one
is one entry there. The reader of logs names each line once (:func:`named`), and the rule
``nccl-error`` finds cause and fix by that name.
"""

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from advisor.config.loader import FileModel, load_model
from advisor.model.nccl.ends import ended_by, exited_with, returned, returned_by_cuda
from advisor.model.nccl.releases import Releases
from advisor.model.nccl.version import NcclVersion

EXCEPTION = "exception"
"""The entry of an exception of which no other knows what it tells."""

_LONGEST = 2_000
_ANY_DIGIT = dict.fromkeys(range(ord("1"), ord("9") + 1), "0")
# What nccl-tests, XLA, torch and the first aws-ofi-nccl print around the reason given to them.
_QUOTES = re.compile(
    r"Test (?:NCCL|CUDA|HIP) failure |NCCL failure \S{1,200}:\d|(?:CUDA|HIP) error: |"
    r"WARN: Function: \w{1,80} Line: "
    r"|Last NCCL warning\(error\) log entry"
)
# What a program says of an exception that it caught: a logger's level, or what it does without.
_GOES_ON = re.compile(
    r"^.{0,60}\b(?:INFO|DEBUG|WARNING|WARN)\b|^I\d{4} [\d:.]{8,20} |"
    r"[Ff]all(?:s|ing)? ?back (?:to|on)\b|"
    r"[Cc]ontinuing with|[,;] (?:ignored|ignoring|skipped|skipping)\b|"
    r"\b[Uu]s(?:es|ing) (?:the |a |its )?"
    r"(?:defaults?|fall ?back|native|slow|eager|plain|python|Python|torch|foreach|math)\b|"
    r"\b(?:logging|tracking) disabled\b|"
    r"\.py:\d{1,6}: [A-Z]\w{0,40}Warning: "
)

# What is told of calls that a program or a library tries for itself.
_TRIED = re.compile(r"^.{0,100}(?:^|[\s\[(|:])DEBUG[\s\]):|]")


class Message(FileModel):
    """One entry. ``effect``: the job dies of it; the program raised it; a line says by its form
    alone that something failed; it gave up waiting for a peer, whose own log may tell more; it runs
    slower; a part of NCCL warned of what is not listed; the job died of what stands elsewhere; it
    is what others print when one died; or it is harmless alone and the cause of the messages that
    ``explains`` names. ``probable``: its words tell what kind of failure a line is of that has no
    known form: no line is named so but the strongest of an output without any other.

    Without a ``pattern`` several lines tell it together: the view ``said_message`` says how.
    ``signs`` are texts of which a line that is no warning of NCCL's must hold one to be looked at:
    torch, the driver or a scheduler prints it, or NCCL as information. ``signal`` ended a process:
    every form in which that is written is one of the entry's too, as those of the errors in
    ``cuda`` (number to name) and ``errnos`` and of the exit codes in ``exits`` are.
    ``between_hosts``: on one host it does no harm. ``calls`` names an exception by the calls of its
    traceback, files and functions, where its text does not.
    ``by_class``: the class of an exception is all that names it, so that its calls tell more.
    ``recovers``: it is printed while the job may go on yet, so that what is raised behind it is no
    consequence.
    ``releases`` of NCCL have the cause; a log of others alone is not told it.
    """

    id: str = Field(pattern=r"^[a-z0-9-]+$")
    pattern: str | None = None
    effect: Literal[
        "dies", "raised", "reported", "waits", "degrades", "unlisted", "ended", "follows",
        "explains", "probable",
    ]  # fmt: skip
    cause: str = Field(min_length=10, max_length=110)
    fix: str = Field(min_length=10, max_length=220)
    source: str = Field(pattern=r"^https://")
    signs: list[str] = Field([])
    signal: int | None = None
    exits: list[int] = Field([])
    errnos: list[int] = Field([])
    cuda: dict[int, str] = Field({})
    between_hosts: bool = False
    calls: str | None = None
    by_class: bool = False
    recovers: bool = False
    explains: list[str] = Field([])
    releases: Releases | None = None


class _Messages(FileModel):
    messages: list[Message]


@cache
def messages() -> tuple[Message, ...]:
    """The catalogue in its order: the first entry that fits a line names it."""
    path = Path(__file__).with_name("messages.yaml")
    read = load_model(path, _Messages).messages
    kinds = [item for item in read if item.effect == "probable" and item.pattern is not None]
    return tuple(read) + tuple(
        item.model_copy(update={"id": of_exception(item.id), "effect": "raised"}) for item in kinds
    )


def of_exception(kind: str) -> str:
    """The entry of an exception whose words are of ``kind``."""
    return kind.replace("probable", "exception", 1)


@cache
def exceptions_by_words() -> frozenset[str]:
    """The entries of exceptions that their words alone name."""
    kinds = (item.id for item in messages() if item.effect == "probable")
    return frozenset(of_exception(kind) for kind in kinds) & {item.id for item in messages()}


def named(text: str, *, is_warning: bool, release: NcclVersion | None = None) -> str | None:
    """The id of the entry that names a line of ``release``, where it is known; None: none does.

    Of lines that are no warning, and quote none, only those entries are asked whose signs are in
    it. An exception that the program says it caught names nothing, and what is told to debug it no
    death.
    """
    of_nccl = is_warning
    if not of_nccl:
        is_asked, is_warning = _asked(text[:_LONGEST].translate(_ANY_DIGIT))
        if not is_asked:
            return None
    for number in range(len(_whole())) if is_warning else _signed_in(text):
        item = _whole()[number][0]
        if of_nccl and item.effect == "reported":
            continue
        if not of_nccl and item.effect == "raised" and goes_on(text):
            continue
        if release is not None and item.releases is not None and release not in item.releases:
            continue
        if item.effect == "dies" and _TRIED.match(text):
            continue
        if _compiled(number).search(text, 0, _LONGEST):
            return item.id
    return None


@lru_cache(maxsize=4096)
def _asked(shape: str) -> tuple[bool, bool]:
    """Whether a line may have a name, and whether it quotes a warning.

    Training prints the same line with other numbers: ``shape`` is it with every digit a zero.
    """
    quotes = _QUOTES.search(shape) is not None
    return quotes or _signs().search(shape) is not None, quotes


def _signed_in(text: str) -> list[int]:
    """The places of entries of which a sign stands in ``text``, in their order."""
    return sorted({number for sign, numbers in _by_sign() if sign in text for number in numbers})


def goes_on(text: str) -> bool:
    """Whether a program says of an error that it goes on without what failed."""
    return _GOES_ON.search(text, 0, _LONGEST) is not None


@cache
def _compiled(number: int) -> re.Pattern[str]:
    """The pattern of the entry at this place: to compile all takes longer than many a log does."""
    return re.compile(_whole()[number][1])


@cache
def _by_sign() -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Of each sign the places of its entries among those with a pattern."""
    found: dict[str, list[int]] = {}
    for number, (_, _, signs) in enumerate(_whole()):
        for sign in signs:
            found.setdefault(sign, []).append(number)
    return tuple((sign, tuple(numbers)) for sign, numbers in found.items())


@cache
def _whole() -> tuple[tuple[Message, str, tuple[str, ...]], ...]:
    """Each entry with its pattern, which is of all that it names, and the signs of all."""
    out = []
    for item in messages():
        if item.effect == "probable" or item.id in exceptions_by_words():
            continue
        forms, signs = [item.pattern] if item.pattern else [], list(item.signs)
        ends = [ended_by(item.signal)] if item.signal is not None else []
        ends += [exited_with(item.exits)] if item.exits else []
        ends += [returned(item.errnos)] if item.errnos else []
        ends += [returned_by_cuda(item.cuda)] if item.cuda else []
        forms += [end.pattern for end in ends]
        signs += [sign for end in ends for sign in end.signs]
        if forms:
            out.append((item, "|".join(forms), tuple(signs)))
    return tuple(out)


@cache
def _signs() -> re.Pattern[str]:
    """One of them must stand in a line, of which every digit is a zero."""
    return re.compile(_any_of(sorted({sign.translate(_ANY_DIGIT) for sign, _ in _by_sign()})))


def _any_of(texts: list[str]) -> str:
    """A pattern that finds any of ``texts``."""
    rests: dict[str, list[str]] = {}
    for text in texts:
        rests.setdefault(text[:1], []).append(text[1:])
    if "" in rests:  # one of them ends here
        return ""
    parts = [re.escape(first) + _any_of(rest) for first, rest in rests.items()]
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"
