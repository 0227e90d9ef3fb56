"""Settings out of shell scripts, env files and nccl.conf, without running anything."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from advisor.errors import AdvisorError

_MAX_BYTES = 4 * 1024 * 1024
# An item of Slurm's list: commas part items, but for those in quotes of their own.
_ITEM = re.compile(r"(?:'[^']*'|[^,'])+")
_SETTING = re.compile(r"((?:NCCL|TORCH|CUDA)_\w+)=(.*)", re.DOTALL)


def read_env_file(path: Path) -> dict[str, tuple[str, int]]:
    """Name -> (value, line) of NCCL_*, TORCH_* and CUDA_* settings; the last one of a name wins.

    Understands ``export A=b``, ``A=b command``, ``mpirun -x A=b``, ``--env A=b``, ``srun
    --export=ALL,A=b``, the same behind ``#SBATCH``, and ``unset A``.
    Nothing is executed: values keep their ``$NAME``. Raises AdvisorError when it cannot be read.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise AdvisorError("larger than 4 MiB: not a file of settings", where=str(path))
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise AdvisorError(f"cannot be read: {error.strerror}", where=str(path)) from error
    settings: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        unsetting = False
        for word in _settings_apart(_words(line)):
            if word == "unset" or word[0] in ";&|":
                unsetting = word == "unset"
            elif unsetting:
                settings.pop(word, None)
            elif found := _SETTING.fullmatch(word.removeprefix("-x").removeprefix("--env=")):
                settings[found[1]] = (found[2], number)
    return settings


def _settings_apart(words: list[str]) -> Iterator[str]:
    """The words, a list of Slurm's (``--export=ALL,A=b``, ``--export ALL,A=b``) item by item, as
    Slurm parts them: ``A=b,c`` sets A to b, ``A='b,c'`` to both.
    """
    listed = False
    for word in words:
        if listed or word.startswith("--export="):
            for item in _ITEM.findall(word.removeprefix("--export=")):
                yield item.replace("'", "")
            listed = False
        else:
            listed = word == "--export"
            yield word


def _words(line: str) -> list[str]:
    # Slurm reads its options out of comments.
    line = line.removeprefix("#SBATCH").rstrip("\\")
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    words: list[str] = []
    # A quote that ends on another line stops the lexer; what came before it is still good.
    with suppress(ValueError):
        words.extend(lexer)
    return [word for word in words if word]
