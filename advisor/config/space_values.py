"""Are the values of a space's axes ones that their settings can take at all?

Checked before any trial: a value of the wrong type is a mistake in the file, not a combination that
the job refuses.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from advisor.config.loader import line_of, read_yaml, what_is_wrong
from advisor.config.workload import Workload
from advisor.errors import AdvisorError


def check_values(
    path: Path, axes: list[tuple[str, list[Any]]], model: type[BaseModel] = Workload
) -> None:
    """Raise AdvisorError with file, line, setting, value and what is allowed, for every mistake.

    ``axes`` are (setting, values) in the order of the file; a variable's name has a dot before it
    (``env.NCCL_ALGO``). ``model`` has the other settings as its fields.
    """
    problems = [
        (axis, place, text)
        for axis, (setting, values) in enumerate(axes)
        for place, text in (
            _of_variable(setting, values)
            if setting.startswith("env.")
            else _of_setting(setting, values, model)
        )
    ]
    if not problems:
        return
    document = read_yaml(path)
    raise AdvisorError(
        "\n".join(
            f"{path}:{line_of(document, ['axes', axis, 'values', place])}: {text}"
            for axis, place, text in problems
        ),
        hint=f"{len(problems)} mistake{'s' if len(problems) != 1 else ''}; correct and run again",
    )


def _of_setting(
    setting: str, values: list[Any], model: type[BaseModel]
) -> Iterator[tuple[int, str]]:
    adapter = _adapter(setting, model)
    for place, value in enumerate(values):
        try:
            adapter.validate_python(value)
        except ValidationError as error:
            yield place, f"{setting}: {what_is_wrong(error.errors()[0])}"


def _of_variable(setting: str, values: list[Any]) -> Iterator[tuple[int, str]]:
    for place, value in enumerate(values):
        if isinstance(value, bool):
            yield place, f"{setting}: write text or a number, or null for not set (got {value})"
        elif isinstance(value, str) and "\0" in value:
            yield place, f"{setting}: no variable can hold a zero byte"


@cache
def _adapter(setting: str, model: type[BaseModel]) -> TypeAdapter[Any]:
    """What a model takes for a setting, its limits included."""
    *sections, name = setting.split(".")
    for section in sections:
        annotation = model.model_fields[section].annotation
        kinds = (annotation, *get_args(annotation))
        model = next(k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel))
    field = model.model_fields[name]
    kind: Any = Annotated[field.annotation, field]
    return TypeAdapter(kind)
