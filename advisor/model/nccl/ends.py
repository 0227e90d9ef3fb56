"""How launchers, shells and runtimes write that a process ended by a signal or with an exit code.

Each writes the one number its own way: as the signal, by its name or in words, as an exit code
below zero (Python), that in one byte, or as 128 and the signal (shells, containers). A pattern made
here knows all of them, so that an entry of the catalogue names the signal alone; so it is with the
number of an error that the operating system returned, and with the name or number of one that a
call of CUDA's or HIP's did (as CUDA's driver_types.h has them), where the sentence that CUDA has
for it is not printed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from signal import Signals

_WORDS = {
    Signals.SIGILL: "illegal instruction", Signals.SIGABRT: "aborted", Signals.SIGBUS: "bus error",
    Signals.SIGFPE: "floating point exception", Signals.SIGKILL: "killed",
    Signals.SIGSEGV: "segmentation fault", Signals.SIGTERM: "terminated",
}  # fmt: skip
_SHELL = 128  # added to the signal by POSIX shells and container runtimes
_BYTE = 256  # an exit code below zero is passed on as what is left of it in one byte
_CODE = (
    r"(?i:(?:\bexit(?:ed|s)?|return(?:ed)?|crashed|terminated)(?: with)?(?: non-zero)?"
    r"(?: exit| error)?[ _]?(?:status code|code|status) {0,5}[:=(]? {0,4})"
)
_SIGNS = (
    *("xit code", "xit_code", "xitcode", "xitCode", "xit Code", "XIT CODE", "xit status"),
    *("code -", "code: -", "code=-"),
    *("eturn code", "ith code", "ith status", "ignal ", "ignal: ", "IGNAL"),
)
_BEFORE_SIGNAL = r"(?i:\b(?:on|by|with|from|caught|received|died:) ?|\()"
_CUDA_NUMBER = r"(?i:\b(?:cuda|hip)(?: runtime| execution)?(?: failed with)? ?error(?:_t)? ?\(?)"
_CUDA_SIGNS = (
    "cudaError", "hipError", "uda error", "UDA error", "uda runtime error", "failed with error",
    "CUDA_ERROR_", "HIP_ERROR_",
)  # fmt: skip
# Where the driver's calls name an error otherwise than the runtime's.
_OF_DRIVER = {
    2: "OUT_OF_MEMORY", 3: "NOT_INITIALIZED", 4: "DEINITIALIZED", 46: "DEVICE_UNAVAILABLE",
    98: "INVALID_IMAGE", 101: "INVALID_DEVICE", 209: "NO_BINARY_FOR_GPU", 214: "ECC_UNCORRECTABLE",
    216: "CONTEXT_ALREADY_IN_USE", 500: "NOT_FOUND", 719: "LAUNCH_FAILED",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class End:
    """``pattern`` finds a line that tells of the end; each such line holds one of ``signs``."""

    pattern: str
    signs: tuple[str, ...]


def exited_with(codes: Sequence[int]) -> End:
    """How it is written that a process ended with one of ``codes``."""
    return End(rf"{_CODE}(?:{'|'.join(str(code) for code in codes)})\b", _SIGNS)


def returned(errnos: Sequence[int]) -> End:
    """How Python and Rust write that the operating system returned one of ``errnos``."""
    numbers = "|".join(str(number) for number in errnos)
    return End(
        rf"(?:\[Errno|\(os error) (?:{numbers})[\])]|\bcode: (?:{numbers}), kind: ",
        ("[Errno ", "(os error ", ", kind: "),
    )


def returned_by_cuda(errors: Mapping[int, str]) -> End:
    """How programs write which of ``errors`` was returned: number to name, without ``cudaError``
    before it."""
    names, numbers = "|".join(errors.values()), "|".join(str(number) for number in errors)
    of_driver = "|".join(_of_driver(number, name) for number, name in errors.items())
    return End(
        rf"(?:cuda|hip)Error(?:{names})\b|{_CUDA_NUMBER}(?:{numbers})\b|"
        rf"(?:CUDA|HIP)_ERROR_(?:{of_driver})\b",
        _CUDA_SIGNS,
    )


def _of_driver(number: int, name: str) -> str:
    return _OF_DRIVER.get(number, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper())


def ended_by(signal: int) -> End:
    """How it is written that ``signal`` ended a process."""
    number, words = Signals(signal), _WORDS[Signals(signal)]
    said = f"(?:{words}|{words.capitalize()}|{words.title()})"
    forms = (
        rf"{_CODE}(?:-{number:d}|{_SHELL + number}|{_BYTE - number})\b",
        rf"(?i:\bcode)[ =:]{{1,3}}-{number:d}\b",
        rf"{_BEFORE_SIGNAL}(?i:signal)[ :]{{1,2}}{number:d}\b",
        rf"Signal {number:d} \(|^signal {number:d} \(",
        rf"{_BEFORE_SIGNAL}(?:(?i:signal)[ :]{{1,2}})?{number.name}\b|Signals\.{number.name}\b",
        rf"\*\*\* {number.name} received|\({number.name}\)",
        rf"(?i:\bsignal): {{0,2}}{said}",
        rf"{said} {{1,20}}\(core dumped|(?:^|[\])%]){said}\s{{0,3}}$|Fatal Python error: {said}",
        # A loop of the shell's own is no rank.
        rf"`{said}` is detected|: (?:line|task) \d{{1,7}}: {{1,4}}(?:\d{{1,9}} {{1,2}})?{said}"
        r"(?! {1,40}\( (?:while|until|for|sleep) )",
    )
    return End("|".join(forms), (*_SIGNS, number.name, words[1:]))
