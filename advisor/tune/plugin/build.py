"""Compile the tuner plugin with any C compiler; CUDA is not needed."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from advisor.config.atomic_files import half_written
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
    # A compiler that is ended leaves what it has begun, its own temporary files too.
    with half_written(out) as scratch:
        scratch.mkdir(mode=0o700)
        made = scratch / LIBRARY_NAME
        command = [*words, *FLAGS, "-o", str(made), str(source_path())]
        own = {**os.environ, "TMPDIR": str(scratch)}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=120, env=own
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise AdvisorError(f"{words[0]} cannot be run: {error}") from error
        if done.returncode:
            raise AdvisorError(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")
        made.replace(out)
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
