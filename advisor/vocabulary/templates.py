"""Words findings: sandboxed Jinja with filters that print numbers with their units.

Rows hold names from traces, which are data: templates come from rule files only, values are
inserted as text, and a template that names an unknown value is an error, not a blank.
"""

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template
from jinja2.environment import TemplateExpression

from advisor.vocabulary import words
from advisor.vocabulary.bounded_templates import BoundedTemplates, timed

MAX_TEXT = 4000


@cache
def _environment() -> BoundedTemplates:
    # The output is plain text; escaping belongs to the view that shows it (HTML escapes).
    filters = dict[str, Callable[..., Any]](
        about=words.about,
        ms=words.about,  # in rules of users
        span=words.span,
        between=words.between,
        differs=words.differs,
        estimate=words.estimate,
        ends=words.ends,
        of_step=words.of_step,
        lower_first=words.lower_first,
        size=words.size,
        num=words.short,
        whole="{:,}".format,
        pct=words.percent,
        plural=words.plural,
        certainty=words.certainty,
        ranks=words.ranks_text,
        named_ranks=words.named_ranks,
        some_ranks=words.some_ranks,
        some_hosts=words.some_hosts,
        counts=words.counts_text,
        cut=words.cut,
        op=words.op_text,
        group=words.group_text,
    )
    # Texts are made once or twice: what folds their constants takes an eighth of their compilation.
    return BoundedTemplates(
        filters,
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,
    )


@lru_cache(maxsize=1000)
def _compiled(template: str) -> Template:
    return _environment().from_string(template)


def render(template: str, values: Mapping[str, Any]) -> str:
    """Fill one text. Raises jinja2.TemplateError for unknown values or bad templates."""
    return " ".join(_text(template, values).split())[:MAX_TEXT]


def _text(template: str, values: Mapping[str, Any]) -> str:
    """Filled; half of a surrogate pair, which no file holds, is written out as an escape."""
    # Most texts of rules name no value: to compile one takes Jinja a millisecond.
    if "{" in template:
        with timed(template):
            template = _compiled(template).render(values)
    return template.encode(errors="backslashreplace").decode()


def holds(condition: str, values: Mapping[str, Any]) -> bool:
    """Whether a Jinja expression is true. Raises jinja2.TemplateError as :func:`render` does."""
    with timed(condition):
        return bool(_expression(condition)(**values))


@cache
def _expression(condition: str) -> TemplateExpression:
    return _environment().compile_expression(condition, undefined_to_none=False)


def render_lines(template: str, values: Mapping[str, Any]) -> str:
    """As :func:`render`, but line breaks and indentation stay (commands, code)."""
    return _text(template, values).strip()[:MAX_TEXT]
