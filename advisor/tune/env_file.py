"""Settings out of shell scripts, env files, nccl.conf and others, without running anything."""

import re
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from advisor.errors import AdvisorError
from advisor.tune import env_lines

_MAX_BYTES = 4 * 1024 * 1024
_LONGEST_LINE = 1 << 16
# An item of Slurm's list: commas part items, but for those in quotes of their own.
_ITEM = re.compile(r"(?:'[^']*'|[^,'])+")
_SETTING = re.compile(rf"({env_lines.NAME})=(.*)", re.DOTALL)
_HEREDOC = re.compile(r"(?<!<)<<-?\s*([\"']?)([A-Za-z_]\w*)\1")
# What they are given is printed, not set.
_PRINTING = ("echo", "printf")
_BENCHMARK = re.compile(r"\b([a-z_]{4,20})_perf(?:_mpi)?\b")
_OTHER_PROGRAM = re.compile(r"\b(?:python\d?|torchrun|accelerate|deepspeed)\b")


@dataclass
class EnvFile:
    """``settings``: name -> (value, line); ``unread``: name -> line of names in lines that set or
    remove nothing as far as is understood; ``benchmarked``: the collectives that programs of
    nccl-tests run, where the file starts nothing else that is known.
    """

    settings: dict[str, tuple[str, int]] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)
    benchmarked: frozenset[str] = frozenset()


def read_env_file(path: Path) -> EnvFile:
    """The NCCL_*, TORCH_* and CUDA_* settings of a file; the last one of a name wins,
    in nccl.conf the first (NCCL reads it with ``setenv(name, value, 0)``).

    Understands ``export A=b``, ``A=b command``, ``mpirun -x A=b``, ``--env A=b``, ``srun
    --export=ALL,A=b``, the same behind ``#SBATCH``, ``: ${A:=b}`` and ``unset A``; files of lines
    ``A=b``, where no character ends a value; ``setenv A b``, ``ENV A b``, fish's ``set -x A b``,
    YAML's ``A: b`` and ``name: A`` over ``value: b``, and ``os.environ["A"] = "b"``.
    Nothing is executed: values keep their ``$NAME``. Raises AdvisorError when it cannot be read.
    """
    lines = _text(path).splitlines()
    found = EnvFile()
    plain = path.name.endswith((".conf", ".env")) or env_lines.plain(lines)
    first_holds = path.name.endswith("nccl.conf")
    heredoc, before, ends = "", "", [line.strip() for line in lines]
    for number, line in enumerate(lines, 1):
        if heredoc:
            heredoc = "" if line.strip() == heredoc else heredoc
            understood = False
        else:
            settings = {} if first_holds else found.settings
            understood = _line(settings, line, number, before if number > 1 else "", plain)
            for name, value in settings.items() if first_holds else ():
                found.settings.setdefault(name, value)
            begun = None if plain or line.lstrip().startswith("#") else _HEREDOC.search(line)
            heredoc = begun[2] if begun and begun[2] in ends[number:] else ""
        if not understood and not line.lstrip().startswith("#"):
            for name in env_lines.names(line):
                found.unread.setdefault(name, number)
        before = line
    found.unread = {n: at for n, at in found.unread.items() if n not in found.settings}
    found.benchmarked = _benchmarked("\n".join(ln for ln in ends if not ln.startswith("#")))
    return found


def _benchmarked(text: str) -> frozenset[str]:
    if _OTHER_PROGRAM.search(text):
        return frozenset()
    return frozenset(name.title().replace("_", "") for name in _BENCHMARK.findall(text))


def _text(path: Path) -> str:
    """The text of a file or pipe, without a byte order mark."""
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            what = "a folder" if stat.S_ISDIR(mode) else "a device or socket"
            raise AdvisorError(f"cannot be read: {what}, no file of settings", where=str(path))
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise AdvisorError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if len(data) > _MAX_BYTES:
        raise AdvisorError("larger than 4 MiB: not a file of settings", where=str(path))
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    return data.decode("utf-16" if wide else "utf-8-sig", errors="replace")


def _line(
    settings: dict[str, tuple[str, int]], line: str, number: int, before: str, plain: bool
) -> bool:
    """Apply one line; whether what it says of NCCL's variables was understood."""
    if "_" not in line and "_" not in before:
        return True  # no name that counts is without one, and none awaits a value
    if plain and (alone := env_lines.plain_setting(line)):
        settings[alone[0]] = (alone[1], number)
        return True
    if other := env_lines.other_setting(line, before):
        settings[other[0]] = (other[1], number)
        return True
    if env_lines.awaits_value(line):
        return False
    understood = False
    if not line.lstrip().startswith("#"):
        for name, value in env_lines.defaults(line):
            settings.setdefault(name, (value, number))
            understood = True
    understood |= line.split()[:1] in [[command] for command in _PRINTING]
    return _shell(settings, _settings_apart(_words(line)), number) or understood


def _shell(settings: dict[str, tuple[str, int]], words: Iterator[str], number: int) -> bool:
    command, understood = "", False
    for word in words:
        if word[0] in ";&|":
            command = ""
        elif command in ("unset", "unsetenv"):
            settings.pop(word, None)
            understood = True
        elif command in _PRINTING:
            understood = True
        elif found := _SETTING.fullmatch(word.removeprefix("-x").removeprefix("--env=")):
            settings[found[1]] = (found[2], number)
            understood = True
        elif not command or command == "export":
            command = word
    return understood


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
    # The lexer takes the square of a word's length.
    if len(line) > _LONGEST_LINE:
        return []
    # Slurm reads its options out of comments.
    line = line.removeprefix("#SBATCH").rstrip("\\")
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    words: list[str] = []
    # A quote that ends on another line stops the lexer; what came before it is still good.
    with suppress(ValueError):
        words.extend(lexer)
    return [word for word in words if word]
