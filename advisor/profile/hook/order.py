"""What the ranks of a command are asked to do: one variable in their environment.

The launching side writes it with :func:`environment`, the ranks read it with :func:`given`. It is
JSON in hex digits, which nothing in between takes apart: DeepSpeed writes ``export NAME=value`` for
a shell without quotes, Slurm splits ``--export`` at commas and pdsh replaces ``%h``.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# DeepSpeed hands on what begins with PYTHON to other nodes (deepspeed/launcher/runner.py).
VARIABLE = "PYTHON_ADVISOR_HOOK"
HIDDEN = ".hook"  # no reader of a folder looks in there
_SITE = Path(__file__).parent / "site"
_ROOT = Path(__file__).resolve().parents[3]
# Loggers that would open a run of their own for every trial; each one's documented off switch.
_LOGGERS_OFF = {
    "WANDB_MODE": "disabled",  # docs.wandb.ai/guides/track/environment-variables
    "COMET_MODE": "disabled",  # comet.com/docs/v2: offline | disabled
    "NEPTUNE_MODE": "debug",  # docs.neptune.ai: debug sends nothing
    "CLEARML_OFFLINE_MODE": "1",  # clear.ml/docs: nothing leaves the machine
}


@dataclass(frozen=True)
class Order:
    """``folder`` takes the results; ``steps`` are timed after ``warmup``, then ``traced`` recorded.

    ``settings`` are applied where the script builds its wrappers; ``variables`` are set in every
    Python that the command starts, on any node: few launchers hand on all. With ``ends`` a rank
    leaves once it has its results, and writes no checkpoint of the job's; else it goes on.
    With ``every`` a line each so many steps says who is late (:mod:`.lateness`); ``on_demand``
    waits for somebody to ask for a recording (:mod:`.on_demand`).
    ``stop_above_ns``: steps surely longer than this end the trial. ``timeout_s`` is how long ranks
    wait for each other at the end.
    """

    folder: str
    warmup: int = 0
    steps: int = 0
    traced: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    ends: bool = False
    stop_above_ns: float | None = None
    timeout_s: float = 60.0
    ranks: tuple[int, ...] | None = None
    record_shapes: bool = True
    record_memory: bool = False
    record_stacks: bool = False
    every: int = 0
    on_demand: bool = False


def environment(order: Order, present: Mapping[str, str]) -> dict[str, str]:
    """``present`` with what makes Python load the hook and what that is to do."""
    path = [str(_SITE), *filter(None, [present.get("PYTHONPATH")])]
    ours = _LOGGERS_OFF if order.ends else {}
    text = _hex({"root": str(_ROOT), **asdict(order), "ours": ours})
    return {**present, **ours, "PYTHONPATH": os.pathsep.join(path), VARIABLE: text}


def given() -> Order | None:
    """The order in this process's environment; None without one."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    document = json.loads(bytes.fromhex(text))
    document.pop("root", None)
    document.pop("ours", None)
    ranks = document.pop("ranks", None)
    return Order(**document, ranks=None if ranks is None else tuple(ranks))


def mark(folder: Path) -> bytes:
    """What the environment of every process of an order with this folder holds."""
    return f"{VARIABLE}=".encode() + _hex({"root": str(_ROOT), "folder": str(folder)})[:-2].encode()


def _hex(document: Mapping[str, Any]) -> str:
    return json.dumps(document).encode().hex()


def alive(folder: Path, rank: int) -> Path:
    """The file whose time a rank renews while it steps; it holds how many steps it has made."""
    return folder / HIDDEN / f"rank{rank}.alive"


def steps_made(folder: Path) -> int:
    """How many steps the rank with most has made, as far as the ranks wrote it down."""
    texts = [path.read_text(encoding="utf-8") for path in (folder / HIDDEN).glob("rank*.alive")]
    return max((int(text) for text in texts if text.isdecimal()), default=0)


def loaded(folder: Path) -> Path:
    """The file that says that the hook was loaded into a process with torch at all."""
    return folder / HIDDEN / "loaded"
