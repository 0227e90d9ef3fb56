"""How a sweep's trial ended that recorded nothing, from the note that the sweep left beside it."""

import json
from collections.abc import Iterable
from pathlib import Path

from advisor.errors import AdvisorError

FILE_NAME = "trial.json"
_MOST_BYTES = 1 << 20
ENDED = {
    "crash": "crashed",
    "hang": "hung",
    "oom": "ran out of memory",
    "refused": "was refused",
    "stopped early": "was stopped early",
}


def refuse_failed_trial(paths: Iterable[Path]) -> None:
    """Raise AdvisorError where ``paths`` hold the note of one trial that did not run to its end.

    To be called when none of them is a trace: the note then says more than they do.
    """
    notes = [path for path in paths if path.name == FILE_NAME]
    if len(notes) != 1 or notes[0].stat().st_size > _MOST_BYTES:
        return
    try:
        note = json.loads(notes[0].read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return
    ended = ENDED.get(str(note.get("status"))) if isinstance(note, dict) else None
    if ended is None:
        return
    why = (str(note.get("message") or "").splitlines() or ["no message"])[0]
    raise AdvisorError(
        f"trial {note.get('number')} of a sweep {ended} and recorded nothing: {why}",
        where=str(notes[0].parent),
        hint=f"what its ranks wrote is in {notes[0].parent / 'logs'}",
    )
