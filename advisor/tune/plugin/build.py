"""Compile the tuner plugin with any C compiler; CUDA is not needed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from advisor.errors import AdvisorError

LIBRARY_NAME = "libnccl-tuner-advisor.so"
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden")


def source_path() -> Path:
    """Where tuner.c is."""
    return Path(__file__).with_name("tuner.c")


def build_plugin(folder: Path, *, compiler: str | None = None, force: bool = False) -> Path:
    """Compile the plugin into `folder` and return its path.

    `compiler` defaults to $CC, else cc or gcc. Raises AdvisorError without a compiler, when it
    fails (with its output), or when the library is there and `force` is not given.
    """
    out = folder / LIBRARY_NAME
    if out.exists() and not force:
        raise AdvisorError("the library exists already", where=str(out), hint="use --force")
    words = shlex.split(compiler or os.environ.get("CC", "")) or [_find_compiler()]
    folder.mkdir(parents=True, exist_ok=True)
    command = [*words, *FLAGS, "-o", str(out), str(source_path())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AdvisorError(f"{words[0]} cannot be run: {error}") from error
    if done.returncode:
        raise AdvisorError(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")
    return out


def _find_compiler() -> str:
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return found
    raise AdvisorError(
        "no C compiler found",
        hint=f"install gcc, or compile {source_path()} where one is: "
        f"gcc {' '.join(FLAGS)} -o {LIBRARY_NAME} tuner.c",
    )
