"""What the name of a line says of the job that printed it, by the effects of its entry."""

from functools import cache

from advisor.model.nccl.messages import EXCEPTION, exceptions_by_words, messages, named
from advisor.model.nccl.releases import Releases


def is_reason(text: str, *, of_several: bool) -> bool:
    """Whether a line that is no warning of NCCL's says by itself what a job died of.

    In the output of several processes that it died is enough.
    """
    reasons = _of("dies", "waits", "ended") if of_several else _of("dies", "waits")
    return named(text, is_warning=False) in reasons


def tells_of_failure(text: str) -> bool:
    """Whether a line that is no warning of NCCL's tells of an error, if by its form alone."""
    return named(text, is_warning=False) in _of(
        "dies", "waits", "ended", "raised", "reported", "degrades", "follows"
    )


def starts_no_task() -> frozenset[str]:
    """What programs of a batch script end with that are no tasks of the job."""
    return _of("raised") | {"launcher-missing"}


def by_form() -> frozenset[str]:
    """The entries that look at the form of a line alone: programs print many such lines."""
    return _of("reported", "follows")


def reported() -> frozenset[str]:
    """The entries that say by a line's form alone that something failed."""
    return _of("reported")


def passing() -> frozenset[str]:
    """The entries of warnings that a job goes on after: what it died of stands elsewhere."""
    return _of("degrades", "explains")


def ends_a_job(message: str) -> bool:
    """Whether a job that prints it is dead, or another of its processes is."""
    return message in _of("dies", "raised", "reported", "waits", "ended", "follows")


def recovers(message: str) -> bool:
    """Whether a job may go on that prints it."""
    return message in _recovers()


@cache
def _recovers() -> frozenset[str]:
    return frozenset(item.id for item in messages() if item.recovers)


def tells_an_end(message: str) -> bool:
    """Whether what an entry tells is one, and more than a line's form; "" is of no entry."""
    return not message or message in _of("dies", "raised", "waits", "unlisted", "ended", "follows")


def follows_a_cause(message: str) -> bool:
    """Whether an entry tells of an end whose cause stands before it, or elsewhere."""
    return message in _of("ended", "follows")


def tells_a_cause(message: str) -> bool:
    """Whether an entry names a cause, or quotes what was raised; "" is of no entry."""
    return not message or message in _of("dies", "raised", "waits", "unlisted")


def told_by_itself(message: str) -> bool:
    """Whether an entry names a cause, and not the form of a line alone."""
    return message in _of("dies", "waits")


@cache
def in_releases() -> dict[str, Releases]:
    """The entries whose cause only some releases of NCCL have, with these."""
    return {item.id: item.releases for item in messages() if item.releases is not None}


@cache
def named_by_class() -> frozenset[str]:
    """The entries of exceptions of which only the class, or nothing, is known."""
    by_class = frozenset(item.id for item in messages() if item.by_class)
    return by_class | exceptions_by_words() | {EXCEPTION}


@cache
def _of(*effects: str) -> frozenset[str]:
    return frozenset(item.id for item in messages() if item.effect in effects)
