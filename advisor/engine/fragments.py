"""A rule's words as fragments: each said on its own condition, or the first of several that holds.

A text of a rule is a list. An item is a text, a text with a condition, or a list of alternatives of
which the first that holds is said:

    - Its peers wait {{ waiting_ns | about }} for it.
    - {when: unread > 0, say: "{{ unread }} ranks were not read."}
    - - {when: reason == 'slow-compute', say: The same kernels take longer on it.}
      - Why is not in the recording.
    - {say: Do not wait for the device., code: "torch.cuda.set_sync_debug_mode('warn')"}
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from advisor.vocabulary.placeholders import hinted
from advisor.vocabulary.templates import holds, render


class Fragment(BaseModel):
    """A text that is said where its condition holds, with code to type or without."""

    model_config = ConfigDict(extra="forbid")

    when: str = Field("true", description="Jinja expression over the finding's columns and facts")
    say: str = Field(description="Jinja")
    code: str = Field("", description="Jinja: what to type, as it is typed, in lines of its own")

    @property
    def text(self) -> str:
        """What is said, and in the lines below it what to type."""
        return f"{self.say}\n{self.code}" if self.code else self.say


def _listed(words: object) -> object:
    return [words] if isinstance(words, str) else words


Alternatives = list[str | Fragment]
# A text alone is a list of one.
Words = Annotated[list[str | Fragment | Alternatives], BeforeValidator(_listed)]


def said(
    words: Sequence[str | Fragment | Alternatives],
    values: Mapping[str, Any],
    fill: Callable[[str, Mapping[str, Any]], str] = render,
) -> list[str]:
    """The texts that hold for ``values``, without empty ones.

    Raises jinja2.TemplateError for unknown values or bad templates.
    """
    return [text for item in words if (text := _first(item, values, fill))]


def templates(words: Sequence[str | Fragment | Alternatives]) -> Iterator[str]:
    """Every text of it, whatever its condition."""
    for item in words:
        for one in item if isinstance(item, list) else [item]:
            yield one.text if isinstance(one, Fragment) else one


def _first(
    item: str | Fragment | Alternatives,
    values: Mapping[str, Any],
    fill: Callable[[str, Mapping[str, Any]], str],
) -> str:
    for one in item if isinstance(item, list) else [item]:
        if isinstance(one, str):
            return fill(one, values)
        if holds(one.when, values):
            text, _, code = fill(one.text, values).partition("\n")
            return f"{text}\n{hinted(code)}" if code else text
    return ""
