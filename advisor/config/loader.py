"""Read YAML 1.2 into pydantic models; every mistake in a file is reported at once, with its line.

PyYAML's YAML 1.1 reads ``on:`` as a boolean and ``1e-4`` as text, hence ruamel.yaml. Its parser in
C, and what was kept of it, know no lines of keys but are far quicker: a file is read that way
first, and with the other parser only when there is something to report.
"""

import contextlib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from advisor.config.parsed import NotYamlError, parsed, plain, refuse_endless, what_fails
from advisor.errors import AdvisorError

M = TypeVar("M", bound=BaseModel)


class FileModel(BaseModel):
    """What a file holds: nothing that is not known, and nobody changes it once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


_MAX_YAML_BYTES = 4 * 1024 * 1024


def read_yaml(path: Path) -> Any:
    """Parse one YAML file; mappings keep their line numbers. Raises AdvisorError with the line."""
    return _with_lines(path, _text(path))


def read_plain(path: Path) -> Any:
    """Parse one YAML file into dicts, lists and scalars. Raises AdvisorError with the line."""
    text = _text(path)
    with contextlib.suppress(NotYamlError):
        return parsed(text)
    return plain(_with_lines(path, text))


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_YAML_BYTES:
            raise _too_large(path)
        with path.open(encoding="utf-8") as file:  # a device has no size, and no end
            text = file.read(_MAX_YAML_BYTES + 1)
    except FileNotFoundError as error:
        raise AdvisorError("no such file", where=str(path), hint="check the path") from error
    except (OSError, UnicodeDecodeError) as error:
        raise AdvisorError(f"cannot be read: {error}", where=str(path)) from error
    if len(text) > _MAX_YAML_BYTES:
        raise _too_large(path)
    return text


def _too_large(path: Path) -> AdvisorError:
    return AdvisorError("this YAML file is larger than 4 MiB", where=str(path))


def _with_lines(path: Path, text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    try:
        refuse_endless(text, pure=True)
        document = YAML(typ="rt").load(text)
        plain(document)  # what is too much to write out is refused here
        return document
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise AdvisorError(f"not valid YAML: {error.problem}", where=f"{path}:{line}") from error
    except Exception as error:
        raise AdvisorError(f"not valid YAML: {what_fails(error)}", where=str(path)) from error


def line_of(node: Any, location: Sequence[int | str]) -> int:
    """The 1-based line of a key or item inside a parsed document, or of its nearest parent."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    line = 1
    for key in location:
        if isinstance(node, CommentedMap) and key in node:
            line = node.lc.key(key)[0] + 1
            node = node[key]
        elif isinstance(node, CommentedSeq) and isinstance(key, int) and key < len(node):
            line = node.lc.item(key)[0] + 1
            node = node[key]
        else:
            break
    return int(line)


def validate(document: Any, model: type[M], *, source: str) -> M:
    """Validate a parsed document; all mistakes in one AdvisorError, one line each, with lines."""
    try:
        return model.model_validate(plain(document))
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            *outer, last = problem["loc"] or ("document",)
            location = [part for part in outer if not _is_union_tag(part)]
            if problem["type"] == "extra_forbidden" or not _is_union_tag(last):
                location.append(last)
            line = line_of(document, location)
            lines.append((line, f"{source}:{line}: {_describe(problem, location, model)}"))
        lines.sort()
        raise AdvisorError(
            "\n".join(text for _, text in lines),
            hint=f"{len(lines)} mistake{'s' if len(lines) != 1 else ''}; correct and run again",
        ) from error


def load_model(path: Path, model: type[M]) -> M:
    """Read and validate one YAML file. Raises AdvisorError (file, line, what to write)."""
    made: M = _model_of(_text(path), path, model)
    return made


@lru_cache(maxsize=256)
def _model_of(text: str, path: Path, model: type[M]) -> M:
    """The same of a file's text, validated once in a process; for models that nobody changes."""
    with contextlib.suppress(NotYamlError, ValidationError):
        return model.model_validate(parsed(text))
    document = _with_lines(path, text)
    if not isinstance(document, Mapping):
        raise AdvisorError("expected a mapping of settings at the top level", where=f"{path}:1")
    return validate(document, model, source=str(path))


def _is_union_tag(part: int | str) -> bool:
    return isinstance(part, str) and ("[" in part or part.startswith("function-"))


def _describe(problem: Any, location: list[int | str], model: type[BaseModel]) -> str:
    name = ".".join(str(part) for part in location) or "document"
    if problem["type"] == "extra_forbidden":
        known = _fields_at(model, location[:-1])
        close = get_close_matches(str(location[-1]), known, n=1)
        inside = _section_with(str(location[-1]), model) if len(location) == 1 else ""
        if inside:
            tail = f"; it belongs under '{inside}'"
        elif close:
            tail = f"; did you mean '{close[0]}'?"
        else:
            tail = f"; known: {', '.join(known)}"
        return f"unknown setting '{name}'{tail}"
    if problem["type"] == "missing":
        return f"missing setting '{name}'"
    return f"{name}: {what_is_wrong(problem)}"


def what_is_wrong(problem: Any) -> str:
    """One of pydantic's problems with a value in words: ``write a number (got 'big')``."""
    shown = problem.get("input")
    got = "nothing" if shown is None else _written(shown)
    return _expected(problem) + (f" (got {got})" if got else "")


# The library's types of mistakes in the words of whoever writes YAML; {…} is the limit it gives.
@cache
def _what_to_write() -> Any:
    return read_plain(Path(__file__).with_name("expected.yaml"))


def _expected(problem: Any) -> str:
    known = _what_to_write().get(problem["type"])
    if known is None:
        return str(problem["msg"]).removeprefix("Value error, ")
    limits = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in (problem.get("ctx") or {}).items()
    }
    return str(known).format_map(limits)


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}'"
    return str(value) if isinstance(value, int | float) else ""


def _section_with(name: str, model: type[BaseModel]) -> str:
    """The section of ``model`` that has a setting ``name``; '' when none has."""
    sections = (top for top in model.model_fields if name in _fields_at(model, [top]))
    return next(sections, "")


def _fields_at(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    current: Any = model
    for part in location:
        fields = getattr(current, "model_fields", {})
        if isinstance(part, str) and part in fields:
            current = _model_inside(fields[part].annotation)
    return sorted(getattr(current, "model_fields", {}))


def _model_inside(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_inside(argument)
        if found is not None:
            return found
    return None
