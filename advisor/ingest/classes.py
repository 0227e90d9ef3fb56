"""The class of an event, by its category and name: event_classes.yaml, so that classes are data."""

import re
from collections.abc import Callable
from functools import cache, cached_property, lru_cache
from importlib import resources
from pathlib import Path

from advisor.config.loader import FileModel, load_model
from advisor.model.communication import LOOKED_AT, asks_pattern, communication


class _Rule(FileModel, alias_generator=lambda name: name.rstrip("_")):
    class_: str
    source: str


class CategoryRule(_Rule):
    """Recorded categories of one class; ``device``: they ran on a stream."""

    names: list[str]
    device: bool


class NameRule(_Rule):
    """Names (an RE2 pattern) of one class, with what they are and where that is known from."""

    pattern: str
    what: str


class EventClasses(FileModel):
    """The whole file, and the kernels and operators of advisor/model/communication.yaml."""

    categories: list[CategoryRule]
    device_waits: list[NameRule]
    host_names: list[NameRule]
    enqueue_names: list[NameRule]

    @cached_property
    def device_names(self) -> list[NameRule]:
        """Device events by name: waits, then what sends nothing, then what communicates."""
        table = communication()
        local = [("compute", one.pattern, "local", one.source) for one in table.local]
        comm = [("comm", one.pattern, one.library, one.source) for one in table.kernels]
        return self.device_waits + [
            NameRule.model_validate(
                {"class": class_, "pattern": pattern, "what": what, "source": source}
            )
            for class_, pattern, what, source in (*local, *comm)
        ]


@cache
def event_classes() -> EventClasses:
    """The validated content of event_classes.yaml."""
    with resources.as_file(resources.files("advisor.ingest") / "event_classes.yaml") as path:
        classes = load_model(Path(path), EventClasses)
    asks = {"pattern": asks_pattern(), "class": "comm", "what": "asks", "source": "the same table"}
    return classes.model_copy(
        update={"enqueue_names": [*classes.enqueue_names, NameRule.model_validate(asks)]}
    )


def literal(text: str) -> str:
    """A SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


_MOST_KEPT = 1 << 14  # answers, of names of which a trace has hundreds, seldom thousands


def enqueue_sql(name: str) -> str:
    """SQL of :func:`keeps_shapes`."""
    pattern = "|".join(f"(?:{rule.pattern})" for rule in event_classes().enqueue_names)
    return f"regexp_matches(left({name}, {LOOKED_AT}), {literal(pattern)})"


@lru_cache(_MOST_KEPT)
def _known(category: str | None) -> CategoryRule | None:
    return next((rule for rule in event_classes().categories if category in rule.names), None)


def runs_on_device(category: str | None) -> bool:
    """Whether a category means something on a device stream."""
    known = _known(category)
    return known is not None and known.device


@lru_cache(_MOST_KEPT)
def keeps_shapes(name: str) -> bool:
    """Whether a host event asks for communication: its shapes are kept."""
    return any(search(name, 0, LOOKED_AT) for search, _ in _searches("enqueue_names"))


def decided_by_category(category: str | None) -> bool:
    """Whether all events of a category are of one class, whatever their names."""
    known = _known(category)
    return known is not None and not (
        known.class_ in ("compute", "other") or (known.class_ == "annotation" and not known.device)
    )


@cache
def _searches(kind: str) -> list[tuple[Callable[[str, int, int], object], str]]:
    """How the patterns of a kind of names are searched for, and the class of each.

    Compiled here: ``re.search`` looks each of them up again, which takes longer than to search.
    """
    rules: list[NameRule] = getattr(event_classes(), kind)
    # RE2's \\w and \\b are ASCII's.
    return [(re.compile(rule.pattern, re.ASCII).search, rule.class_) for rule in rules]


@lru_cache(_MOST_KEPT)
def classify(category: str | None, name: str | None, *, device: bool) -> str:
    """``event.class``; ``device`` decides about categories that the file does not list."""
    known = _known(category)
    base = known.class_ if known else ("other" if device else "annotation")
    if known and decided_by_category(category):
        return base
    on_device = known.device if known else device
    for search, class_ in _searches("device_names" if on_device else "host_names"):
        if search(name or "", 0, LOOKED_AT):
            return class_
    return base
