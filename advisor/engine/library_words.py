"""What a fix says of DDP, in the words of the library whose code builds it.

A user of a Trainer writes no DistributedDataParallel(...): recordings of `advisor record` say who
does, and the rules' lines are handed to that library's own call.
"""

import re

from advisor.config.script_words import how_to_write

_CALL = re.compile(
    r"^DistributedDataParallel\((?:model|\.\.\.), ([^()\n]+)\)(?:  # [^\n]*)?$", re.MULTILINE
)
_HOOK = re.compile(
    r"^from torch\.distributed\.algorithms\.ddp_comm_hooks\.default_hooks "
    r"import (\w+)_compress_hook\n"
    r"model\.register_comm_hook\(None, \1_compress_hook\)$",
    re.MULTILINE,
)
# The libraries' own calls have not taken over the name of torch 2.13.
_OLDER = {"forward_sync_buffers": "broadcast_buffers"}


def in_words_of(library: str | None, fix: str, device: str | None) -> str:
    """``fix`` as it stands for a script that calls DDP itself, else for ``library``."""
    if not library:
        return fix

    def said(settings: dict[str, str]) -> str:
        built = {"ddp": {**dict.fromkeys(settings), "made_by": library}}
        lines = how_to_write(settings, built, "cpu" if device == "host" else "cuda")
        return "\n".join(lines).replace("; ", "\n")

    def call(found: re.Match[str]) -> str:
        pairs = (part.partition("=") for part in found[1].split(", "))
        return said({_OLDER.get(name, name): value for name, _, value in pairs})

    return _HOOK.sub(lambda found: said({"comm_hook": found[1]}), _CALL.sub(call, fix))
