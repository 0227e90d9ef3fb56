"""``advisor.toml``: defaults for the command line, one table per command; flags beat the file."""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from advisor.errors import AdvisorError

FILE_NAME = "advisor.toml"
_MAX_BYTES = 1 << 20


def load_settings(path: Path | None) -> dict[str, Any]:
    """The file's tables; {} when no file is named and there is none here."""
    if path is None:
        path = Path(FILE_NAME)
        if not path.is_file():
            return {}
    import tomllib  # where there is no file it is not needed

    try:
        with path.open("rb") as file:  # a device has no end
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise AdvisorError("larger than 1 MiB, too much for settings", where=str(path))
        return tomllib.loads(data.decode("utf-8"))
    except FileNotFoundError as error:
        raise AdvisorError("no such file", where=str(path), hint="check --config") from error
    except OSError as error:
        raise AdvisorError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise AdvisorError(f"not valid TOML: {error}", where=str(path)) from error


class Option(NamedTuple):
    """The parameter that a flag sets; ``is_list``: it may be given several times."""

    parameter: str
    is_list: bool = False


def check_settings(
    settings: Mapping[str, Any],
    options: Mapping[str, Mapping[str, Option]],
    where: str,
) -> dict[str, dict[str, Any]]:
    """Defaults per command, by parameter. All mistakes are in one AdvisorError.

    ``options``: command -> long flag without dashes (what the file says) -> what it sets.
    """
    mistakes = []
    defaults: dict[str, dict[str, Any]] = {}
    for command, table in settings.items():
        if command not in options:
            mistakes.append(f"[{command}] is no command{_close(command, options)}")
            continue
        if not isinstance(table, Mapping):
            mistakes.append(f"{command} must be a table: [{command}]")
            continue
        for name, value in table.items():
            flag = name.replace("_", "-")
            if flag not in options[command]:
                mistakes.append(f"[{command}] {name} is no option{_close(flag, options[command])}")
                continue
            if options[command][flag].is_list != isinstance(value, list):
                mistakes.append(f"[{command}] {name} must be {_form(name, value)}")
                continue
            defaults.setdefault(command, {})[options[command][flag].parameter] = value
    if mistakes:
        raise AdvisorError(
            "\n".join(mistakes), where=where, hint="advisor COMMAND --help lists the options"
        )
    return defaults


def _form(name: str, value: Any) -> str:
    """How TOML writes ``value`` as the list, or the one value, that the option takes."""
    if not isinstance(value, list):
        return f"a list: {name} = {json.dumps([value], default=str)}"
    one = json.dumps(value[0], default=str) if value else '"..."'
    return f"one value, not a list: {name} = {one}"


def _close(name: str, known: Any) -> str:
    found = get_close_matches(name, list(known), n=1)
    return f"; did you mean '{found[0]}'?" if found else ""
