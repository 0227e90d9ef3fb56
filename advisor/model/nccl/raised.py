"""What an exception is called: by its text, by the calls that led to it, by its class or its words.

A text that an entry knows tells most. Where none does, the calls may: whose code raised it, and
what was being done. A class of Python's tells more than that where it says what is wrong (a key
that is missing), and less where it does not (a value that is refused). What is left is told by its
words.
"""

import re
from functools import cache

from advisor.model.nccl.effects import named_by_class, told_by_itself
from advisor.model.nccl.messages import EXCEPTION, exceptions_by_words, messages, of_exception

_ASKED_TO_END = re.compile(r"(?:KeyboardInterrupt|SystemExit|\S{0,80}SignalException)\b")
_STOPPED = "stopped"
# Classes that tell less than the part of a library that raises them.
_VAGUE = (
    None, EXCEPTION, "value-refused", "assertion", "not-implemented", "system-call", "import-fails",
)  # fmt: skip


def named_raised(text: str, calls: str, message: str | None) -> str:
    """The entry of an exception: ``calls`` holds a file and a function a line, outermost first.

    ``message`` is the entry that ``text``, its last line, has by itself.
    """
    if both := named_by_both(text, calls):
        return both
    if message is not None and message not in named_by_class():
        return message
    known = named_by_calls(text, calls)
    if known is None or (known in named_by_class() and message not in _VAGUE):
        known = message or EXCEPTION
    if known == EXCEPTION and text.rstrip() == "SystemExit":  # a handler of signals raises it
        return _STOPPED
    return named_by_words(text) if known == EXCEPTION else known


def named_by_calls(text: str, calls: str) -> str | None:
    """The id of the entry that the calls of a traceback are of.

    ``calls`` holds a file and a function a line, outermost first, and ``text`` what was raised.
    An entry that names a cause needs its text too (:func:`named_by_both`).
    """
    if _ASKED_TO_END.match(text):
        return None
    of_any = (item for item, by, _ in _by_calls() if not told_by_itself(item) and by.search(calls))
    return next(of_any, None)


def is_guess(message: str, text: str) -> bool:
    """Whether an exception has its entry from the calls alone: its text is none of the entry's."""
    return message not in named_by_class() and any(
        item == message and (said is None or not said.search(text)) for item, _, said in _by_calls()
    )


def named_by_both(text: str, calls: str) -> str | None:
    """The id of an entry that what was raised and the calls both are of: no other is as sure.

    Whatever is raised is of one without a pattern.
    """
    both = (
        item
        for item, by, said in _by_calls()
        if item not in named_by_class() and by.search(calls) and (said is None or said.search(text))
    )
    return next(both, None)


def named_by_words(text: str) -> str:
    """The entry of an exception of which no other knows what it tells, by its words alone."""
    kind = of_exception(probably(text.partition(":")[2]))
    return kind if kind in exceptions_by_words() else EXCEPTION


def probably(text: str) -> str:
    """The entry of the kind of failure that a line's words are of: the last is of any."""
    kinds = ((item.id, item.pattern) for item in messages() if item.effect == "probable")
    return next(kind for kind, words in kinds if words is None or re.search(words, text, re.I))


@cache
def _by_calls() -> tuple[tuple[str, re.Pattern[str], re.Pattern[str] | None], ...]:
    """Each entry with calls: they, and what is raised there."""
    return tuple(
        (item.id, re.compile(item.calls), re.compile(item.pattern) if item.pattern else None)
        for item in messages()
        if item.calls
    )
