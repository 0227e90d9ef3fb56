"""How launchers are asked to hand on the hook's variables, and which ranks did not get them."""

import contextlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from advisor.errors import AdvisorError
from advisor.profile.hook import order


def exporting(command: Sequence[str], names: set[str]) -> list[str]:
    """``command``, where Open MPI's launcher, or a ``srun`` that hands on a list only, is asked to
    hand the variables ``names`` on.

    Raises AdvisorError where Slurm is told to hand on nothing: no rank would be heard of.
    """
    program = Path(command[0]).name
    if program == "srun":
        return _of_srun(command, names)
    if program not in ("mpirun", "mpiexec", "orterun") or not _is_open_mpi(command[0]):
        return list(command)
    exports = [part for name in sorted(names) for part in ("-x", name)]
    return [command[0], *exports, *command[1:]]


def _of_srun(command: Sequence[str], names: set[str]) -> list[str]:
    """See :func:`exporting`; slurm.schedmd.com/srun.html, --export and SLURM_EXPORT_ENV."""
    given = [number for number, part in enumerate(command) if part.startswith("--export=")]
    asked = command[given[0]].partition("=")[2] if given else os.environ.get("SLURM_EXPORT_ENV")
    listed = (asked or "ALL").split(",")
    if "ALL" in listed:
        return list(command)
    if listed[0] in ("NONE", "NIL"):
        by = f"--export={listed[0]}" if given else f"SLURM_EXPORT_ENV={listed[0]}"
        raise AdvisorError(
            f"srun with {by} hands no variable on: its ranks would not load the recorder",
            hint="srun --export=ALL; to a list of names the recorder's own are added",
        )
    export = (
        f"--export={','.join([*listed, *sorted(names - {one.split('=')[0] for one in listed})])}"
    )
    rest = [part for number, part in enumerate(command[1:], 1) if number not in given]
    return [command[0], export, *rest]


def _is_open_mpi(program: str) -> bool:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        asked = [program, "--version"]
        said = subprocess.run(asked, capture_output=True, timeout=10, check=False).stdout
        return b"Open MPI" in said or b"OpenRTE" in said
    return False


def without_order(launcher: int) -> list[int]:
    """Processes below ``launcher`` on this machine that run torch and have no order (Linux)."""
    parents: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            # pid (name, which may hold anything) state parent
            parents[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
    return [pid for pid in parents if _is_below(pid, launcher, parents) and _is_unheard(pid)]


def _is_below(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == ancestor:
            return True
    return False


def _is_unheard(pid: int) -> bool:
    place = Path("/proc") / str(pid)
    with contextlib.suppress(OSError):  # it has ended, or is somebody else's
        return (
            f"{order.VARIABLE}=".encode() not in (place / "environ").read_bytes()
            and b"libtorch" in (place / "maps").read_bytes()
        )
    return False
