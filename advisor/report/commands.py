"""What in a step of advice is to be pasted: our own commands, settings, calls, code."""

import re
from collections.abc import Iterator

from markupsafe import Markup, escape

from advisor.report.clean import printable
from advisor.report.numbers import bound

_CODE = Markup("<code>{}</code>")
_LINES = Markup('<code class="lines">{}</code>')
_COPIED = Markup('<br><code class="lines copy">{}</code>')
_LINE = Markup('<span class="line{}">{}</span>')
_SIGNS = re.compile(r"(?<=[(\[,=./])(?=\w)|(?<=\w)(?=_\w)")
# One of our commands inside a sentence: its arguments are flags, numbers, paths and CAPITALS.
_FLAG = r"--?[a-z][\w-]*(?:[ =](?=\S*[^a-z\s;:.])[^\s;:]*[^\s;:,.])?"
_PATH = r"[^\s,;:]*[./*=](?=\S)[^\s,;:]*|[\w.-]+/(?=\s|$)"
_OURS = (
    # A run may have a name of one plain word, which only its place tells from a sentence's.
    r"advisor (?:compare [^\s,;:]+ NEW\b|open [\w-]+ [^\s,;:]+$"
    r"|explain [a-z][a-z0-9]*(?:-[a-z0-9]+)*|[a-z]+(?:-[a-z]+)*"
    rf"(?: (?:{_FLAG}|…|[A-Z]{{2,}}\b|\d+\b|{_PATH}|[a-z][a-z0-9]*(?:-[a-z0-9]+)+))*+)"
)
_SETTING = r"\b[A-Z][A-Z0-9_]{2,}='[^'\s]*'|\b[A-Z][A-Z0-9_]{2,}=[^\s,;:)]+(?:,[A-Z][^\s,;:)]*)*"
_LAUNCH = r"torchrun [^,;:]{0,300}\.py\b"
# Of words before a bracket, calls are those with a dot, with nothing or with name=value inside.
_CALL = (
    r"(?<![\w.])[a-z_]\w*(?:\.\w+)+\([^()]*\)|\b[A-Za-z_]\w*\(\)"
    r"|\b[A-Za-z_]\w*\((?=[^()]*\w=)[^()]*\)"
)
_KEYWORD = r"\b[a-z]+(?:_[a-z]+)+=[^\s,;:)]*[^\s,;:).]"
_NAME = r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b|\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b"
# A program by its name, or one that may be a plain word too with its arguments.
_ARGUMENT = r"(?:[/-][^\s,;:')]*[^\s,;:').]|'[^']*'|(?:all|unlimited)\b|[A-Z]{2,}\b|\d+\b)"
_PIPED = rf"\| grep(?: {_ARGUMENT})*(?: \w+)?"
_PROGRAM = (
    r"(?<![\w./-])(?:(?:dcgmi diag|docker run|git lfs pull|hccn_tool|npu-smi info|nvidia-smi nvlink"
    r"|pip (?:install [\w-]+|list)|py-spy dump|ray st(?:atus|art|op)|chronyc tracking|dmesg|ibstat"
    rf"|lspci|mlxlink|(?:amd|nvidia|rocm)-smi|perftest|ulimit)(?![\w-])(?: {_ARGUMENT})*"
    r"|(?:df|ethtool|fi_info|free|ip|ldd|mpirun|nc|pip install|python3?|sacct|sbatch"
    rf"|srun)(?= [-'/])(?: {_ARGUMENT})*)(?: {_PIPED})?"
)
_INLINE = re.compile(f"«[^«»]*»|{_OURS}|{_LAUNCH}|{_SETTING}|{_CALL}|{_KEYWORD}|{_PROGRAM}|{_NAME}")
# A program we or the rules name, VARIABLE=value, name=value without further words, or a call.
_COMMAND = re.compile(
    rf"{_OURS}$|(?:\$ )?(?:torchrun|python3?|sh|export|nvidia-smi|ibstat|ethtool)\s+\S(?!.*: )"
    r"|[A-Z][A-Z0-9_]*=\S+(?:\s+[A-Z][A-Z0-9_]*=\S+)*$"
    r"|[a-z_][\w.]*=\S+$"
    r"|[A-Za-z_][\w.]*\(.*\)$"
)


def step_code(text: str, *, copy: bool = False) -> Markup:
    """A step of advice: its first line in words, those below it code (``copy``: to be copied)."""
    words, _, code = text.partition("\n")
    below = (_COPIED if copy else _LINES).format(_by_line(printable(code))) if code else ""
    return inline_code(bound(words)) + below


def _by_line(code: str) -> Markup:
    """Each line of code on its own, with how far it is indented: what a narrow page wraps hangs."""
    return Markup("\n").join(
        _LINE.format(f" in{min(depth, 2)}" if depth else "", _breakable(line))
        for line in code.split("\n")
        for depth in [(len(line) - len(line.lstrip(" "))) // 4]
    )


def _breakable(code: str) -> Markup:
    """Escaped code whose long words break behind a bracket or sign, where a line is too short."""
    parts = re.split(r"(\S{25,})", code)
    return Markup("").join(
        Markup("<wbr>").join(_SIGNS.split(part)) if index % 2 else escape(part)
        for index, part in enumerate(parts)
    )


def inline_code(text: str) -> Markup:
    """Escaped text in which `words between backticks`, our commands and settings are code."""
    return Markup("").join(
        _CODE.format(part) if is_code else escape(part) for part, is_code in code_spans(text)
    )


def code_spans(text: str) -> Iterator[tuple[str, bool]]:
    """The parts of a text, and whether each is code: what a log says between «…» is none."""
    parts = printable(text).split("`")
    if len(parts) % 2 == 0:
        yield "`".join(parts), False
        return
    for index, part in enumerate(parts):
        if index % 2:
            yield part, True
            continue
        after = 0
        for match in _INLINE.finditer(part):
            yield part[after : match.start()], False
            yield match[0], not match[0].startswith("«")
            after = match.end()
        yield part[after:], False


def is_command(text: str) -> bool:
    """Whether a step is something to paste (a command, setting or call) and not advice in words."""
    return bool(_COMMAND.match(text.strip()))
